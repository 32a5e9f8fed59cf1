package sqljobs

import (
	"database/sql/driver"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/jobs"
)

// none is a time that is not there, in an answer.
const none = -9223372036854775807

// stored are the columns in the order of values, beside the id.
var stored = [...]struct{ name, kind string }{
	{"name", "text"},
	{"state", "text"},
	{"priority", "integer"},
	{"created", "bigint"},
	{"changed", "bigint"},
	{"next_run", "bigint"},
	{"last_run", "bigint"},
	{"scheduled", "bigint"},
	{"due", "bigint"},
	{"parent", "bigint"},
	{"has_children", "smallint"},
	{"mock", "smallint"},
	{"run", "bigint"},
	{"token", "bigint"},
	{"repeat", "text"},
	{"retry_after", "text"},
	{"sequence_key", "text"},
	{"reason", "text"},
	{"data", "text"},
}

// columns are a job as scan reads it, of the table of that name. A row of nulls is a job without an id.
func columns(of string) string {
	cols := make([]string, 0, len(stored)+1)
	cols = append(cols, "coalesce("+of+".id, 0)")
	for _, c := range stored {
		missing := "0"
		switch c.name {
		case "created", "changed", "next_run", "last_run", "scheduled", "due":
			missing = "-9223372036854775807"
		default:
			if c.kind == "text" {
				missing = "''"
			}
		}
		cols = append(cols, "coalesce("+of+"."+c.name+", "+missing+")")
	}
	return strings.Join(cols, ", ")
}

// values are what is stored of a job, beside its id.
func values(j *jobs.Job) []any {
	return []any{
		j.Name, string(j.State), int64(j.Priority), micros(j.Created), micros(j.Changed), micros(j.NextRun),
		micros(j.LastRun), micros(j.Scheduled), micros(j.Due), number(int64(j.Parent)), bit(j.HasChildren),
		bit(j.Mock), j.Run, j.Token, text(j.Repeat), text(j.RetryAfter), text(j.SequenceKey),
		text(j.Reason), string(j.Data),
	}
}

// scan reads the columns of a job, and what follows them.
func scan(rows sqlconn.Rows, j *jobs.Job, more ...any) error {
	var state string
	var id, priority, parent, children, mock int64
	var created, changed, next, last, scheduled, due int64
	dest := [24]any{
		&id, &j.Name, &state, &priority, &created, &changed, &next, &last, &scheduled, &due, &parent, &children,
		&mock, &j.Run, &j.Token, &j.Repeat, &j.RetryAfter, &j.SequenceKey, &j.Reason, &j.Data,
	}
	n := 20 + copy(dest[20:], more)
	if err := rows.Scan(dest[:n]...); err != nil {
		return err
	}
	j.ID, j.State, j.Priority, j.Parent = jobs.ID(id), jobs.State(state), int(priority), jobs.ID(parent)
	j.Created, j.Changed, j.NextRun = moment(created), moment(changed), moment(next)
	j.LastRun, j.Scheduled, j.Due = moment(last), moment(scheduled), moment(due)
	j.HasChildren, j.Mock = children != 0, mock != 0
	return nil
}

// micros is a time for the database.
func micros(t time.Time) driver.Value {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

// moment is a time of the database.
func moment(us int64) time.Time {
	if us == none {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

func number(n int64) driver.Value {
	if n == 0 {
		return nil
	}
	return n
}

func text(s string) driver.Value {
	if s == "" {
		return nil
	}
	return s
}

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
