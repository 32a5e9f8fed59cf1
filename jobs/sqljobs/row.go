package sqljobs

import (
	"database/sql/driver"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// none stands for a missing time in the result of a statement.
const none = -9223372036854775807

// groups is a set of groups of columns. An update writes whole groups. It leaves unchanged groups
// out, so PostgreSQL copies no long text and SQLite updates no index.
type groups uint8

const (
	lease      groups = 1 << iota // changed by a renewal; each update writes it
	course                        // changed from attempt to attempt
	content                       // texts of any length
	nature                        // seldom changed
	everyGroup groups = 1<<iota - 1
)

// of returns those of the values (see the function values) whose columns are in g, in the same
// order.
func (g groups) of(values []any) []any {
	var some []any
	for i, v := range values {
		if g&stored[i].group != 0 {
			some = append(some, v)
		}
	}
	return some
}

// kinds returns the SQL types of the columns in g, in the order of stored.
func (g groups) kinds() (kinds []string) {
	for _, c := range stored {
		if g&c.group != 0 {
			kinds = append(kinds, c.kind)
		}
	}
	return kinds
}

// stored lists the columns of a job except the id, in the order of values.
var stored = [...]struct {
	name, kind string
	group      groups
}{
	{"name", "text", nature},
	{"state", "text", course},
	{"priority", "integer", nature},
	{"created", "bigint", nature},
	{"changed", "bigint", lease},
	{"next_run", "bigint", course},
	{"last_run", "bigint", course},
	{"scheduled", "bigint", course},
	{"due", "bigint", lease},
	{"parent", "bigint", nature},
	{"has_children", "smallint", nature},
	{"mock", "smallint", nature},
	{"run", "bigint", course},
	{"token", "bigint", course},
	{"repeat", "text", nature},
	{"retry_after", "text", nature},
	{"sequence_key", "text", nature},
	{"reason", "text", content},
	{"data", "text", content},
	// The following columns have a default.
	{"queue", "text", nature},
	{"queue_due", "bigint", lease},
	{"weight", "bigint", nature},
	{"time_window", "text", nature},
	{"timeout", "bigint", nature},
	{"deadline", "bigint", course},
	{"attempts", "bigint", course},
	{"unique_key", "text", nature},
	{"answer_key", "text", nature},
	{"phase", "text", course},
	{"respond", "smallint", course},
	{"answer", "text", content},
	{"expires", "bigint", course},
	{"handouts", "bigint", course},
}

// basic is the number of columns that a job without a queue and without an answer needs. An INSERT
// for other jobs writes all columns.
const basic = 19

// isBasic reports whether the basic columns hold all values of j.
func isBasic(j *jobstore.Row) bool {
	return j.Queue == "" && j.Weight == 0 && j.Window == "" && j.Timeout == 0 && j.Deadline.IsZero() && j.Attempt == 0 && j.UniqueKey == "" &&
		j.Key == "" && j.Phase == "" && !j.Respond && j.Answer == nil && j.Expires.IsZero() && j.Handouts == 0
}

// columns returns the list of columns that scan reads, from the table with that alias. NULL becomes
// 0, "" or none. A row of nulls, as an outer join returns it, is read as a job with id 0.
func columns(of string) string {
	cols := make([]string, 0, len(stored))
	cols = append(cols, "coalesce("+of+".id, 0)")
	for _, c := range stored {
		missing := "0"
		switch c.name {
		case "queue_due":
			continue // scan reads it as due
		case "due":
			missing = of + ".queue_due, -9223372036854775807"
		case "created", "changed", "next_run", "last_run", "scheduled", "deadline", "expires":
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

// values returns the values of the columns in stored for j. A job of a queue has its Due in
// queue_due, any other job in due.
func values(j *jobstore.Row) []any {
	due, queueDue := micros(j.Due), driver.Value(nil)
	if j.Queue != "" {
		due, queueDue = nil, due
	}
	return []any{
		j.Name, string(j.State), int64(j.Priority), micros(j.Created), micros(j.Changed), micros(j.NextRun),
		micros(j.LastRun), micros(j.Scheduled), due, number(int64(j.Parent)), bit(j.HasChildren),
		bit(j.Mock), j.Run, j.Token, text(j.Repeat), text(j.RetryAfter), text(j.SequenceKey),
		text(j.Reason), string(j.Data), text(j.Queue), queueDue, j.Weight, text(j.Window), j.Timeout.Microseconds(),
		micros(j.Deadline), j.Attempt, text(j.UniqueKey), text(j.Key), text(string(j.Phase)), bit(j.Respond),
		text(string(j.Answer)), micros(j.Expires), int64(j.Handouts),
	}
}

// scan reads the columns (see the function columns) of the present row into j. Message is not
// among them. An empty Answer becomes nil; missing times become zero. Returns the error of the
// row, which does not fail the transaction.
func scan(rows sqlconn.Rows, j *jobstore.Row) error {
	var v struct { // one allocation for all
		state, phase                                                     string
		id, priority, parent, children, mock, timeout, respond, handouts int64
		created, changed, next, last, scheduled, due, deadline, expires  int64
	}
	if err := rows.Scan(
		&v.id, &j.Name, &v.state, &v.priority, &v.created, &v.changed, &v.next, &v.last, &v.scheduled, &v.due, &v.parent, &v.children,
		&v.mock, &j.Run, &j.Token, &j.Repeat, &j.RetryAfter, &j.SequenceKey, &j.Reason, &j.Data,
		&j.Queue, &j.Weight, &j.Window, &v.timeout, &v.deadline, &j.Attempt, &j.UniqueKey, &j.Key, &v.phase, &v.respond, &j.Answer, &v.expires, &v.handouts,
	); err != nil {
		return err
	}
	j.ID, j.State, j.Priority, j.Parent = jobstore.ID(v.id), jobstore.State(v.state), int(v.priority), jobstore.ID(v.parent)
	j.Created, j.Changed, j.NextRun = moment(v.created), moment(v.changed), moment(v.next)
	j.LastRun, j.Scheduled, j.Due = moment(v.last), moment(v.scheduled), moment(v.due)
	j.HasChildren, j.Mock, j.Handouts = v.children != 0, v.mock != 0, int32(v.handouts)
	j.Deadline, j.Expires, j.Timeout = moment(v.deadline), moment(v.expires), time.Duration(v.timeout)*time.Microsecond
	j.Phase, j.Respond = jobstore.Phase(v.phase), v.respond != 0
	if len(j.Answer) == 0 {
		j.Answer = nil
	}
	return nil
}

// micros returns t in microseconds since 1970, or NULL for the zero time.
func micros(t time.Time) driver.Value {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

// moment returns the time in UTC of us, microseconds since 1970, or the zero time for the constant
// none.
func moment(us int64) time.Time {
	if us == none {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// number returns n, or NULL for 0.
func number(n int64) driver.Value {
	if n == 0 {
		return nil
	}
	return n
}

// text returns s, or NULL for "".
func text(s string) driver.Value {
	if s == "" {
		return nil
	}
	return s
}

// bit returns 1 for true and 0 for false.
func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
