package sqljobs

import (
	"context"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// query selects jobs. A job must meet all conditions that are set.
type query struct {
	jobstore.Page
	ids    []jobstore.ID // if not nil: only these jobs
	free   bool          // with ids: without the jobs that others have locked
	name   string
	parent jobstore.ID
	queue  string
	key    string // used together with name
	last   bool   // with key: the last jobs instead of the first
}

// find returns the jobs that q selects, in the order of ids. In an update it locks them if q has
// ids, and waits for other holders or, with q.free, skips their jobs. It returns no job for an
// empty list of states, a negative limit, or a name or key that no job can have. An error fails the
// transaction. Returns the earlier error of a failed transaction.
func (t *tx) find(ctx context.Context, q query) ([]jobstore.Row, error) {
	if t.err != nil {
		return nil, t.err
	}
	if q.States != nil && len(q.States) == 0 || q.Limit < 0 {
		return nil, nil
	}
	if !possible(q.name) || !possible(q.queue) || !possibleKey(q.key) {
		return nil, nil
	}
	b := builder{lite: t.s.lite}
	text, read := b.find(q), t.read
	if q.ids != nil {
		if read = t.jobs; !t.s.lite && !t.view {
			if text += " FOR UPDATE"; q.free {
				text += " SKIP LOCKED"
			}
		}
	}
	found, _, err := read(ctx, text, b.args...)
	return found, t.fail("find", err)
}

// possible reports whether text is empty or a valid job name. Some databases reject other texts, so
// the store does not send them.
func possible(text string) bool { return text == "" || jobstore.CheckName(text) == nil }

// builder builds one statement and collects its arguments in args.
type builder struct {
	lite bool
	args []any
}

// arg adds v to the arguments and returns its place in the statement, with a CAST to the SQL type
// kind.
func (b *builder) arg(v any, kind string) string {
	b.args = append(b.args, v)
	return cast(len(b.args), kind)
}

// possibleKey reports whether a job can have this key: at most MaxKey bytes, valid UTF-8, no zero
// byte.
func possibleKey(text string) bool {
	return len(text) <= jobstore.MaxKey && utf8.ValidString(text) && strings.IndexByte(text, 0) < 0
}

// find returns the SELECT statement for q and adds its arguments to b.args. The same conditions
// give the same text, so few texts exist, and each is prepared once. The statement locks nothing.
func (b *builder) find(q query) string {
	index := b.way(q)
	if ofKey(index) {
		return b.ofKey(q, index)
	}
	where := b.where(q)
	id, order := "j.id", "j.id"
	switch {
	case index != "" && b.lite && byID(index): // the table expression names the index
	case index != "":
		// The expression keeps PostgreSQL off the index by id. It would scan all jobs through it if the
		// table was empty when it made the plan.
		id, order = "j.id + 0", "j.id + 0"
	case q.name != "":
		where += " AND j.id > -1" // the condition of PostgreSQL's index
	}
	query := "SELECT " + columns("j") + " FROM " + b.table(index) + " WHERE " + id + " > " + b.arg(int64(q.After), "bigint") + where + b.names(index) + " ORDER BY " + order
	if q.Limit > 0 {
		query += " LIMIT " + b.arg(q.Limit, "bigint")
	}
	return query
}

// ofKey returns the statement for the jobs of a key or a parent, in the order of ids. With q.last
// it selects the jobs with the highest ids. It looks up each state separately, so jobs of other
// states are not read, however many are stored. index is the index of the key or the parent.
func (b *builder) ofKey(q query, index string) string {
	states := q.States
	if states == nil {
		states = everyState
	}
	states = slices.Compact(slices.Sorted(slices.Values(states)))
	q.States = nil
	id, desc, limit := "j.id + 0", "", ""
	if b.lite {
		id = "j.id"
	}
	if q.last {
		desc = " DESC"
	}
	where := " FROM " + b.table(index) + " WHERE " + id + " > " + b.arg(int64(q.After), "bigint") + b.where(q)
	if q.Limit > 0 {
		limit = " LIMIT " + b.arg(q.Limit, "bigint")
	}
	texts := make([]string, len(states))
	for i, s := range states {
		texts[i] = stateText(s)
	}
	of := func(state string) string {
		return "(SELECT j.id" + where + " AND j.state = " + state + " ORDER BY " + id + desc + limit + ") AS s"
	}
	last := " ORDER BY id" + desc + limit
	if !b.lite {
		return "SELECT " + columns("j") + " FROM swarmiji_jobs AS j WHERE j.id = ANY(ARRAY(SELECT s.id FROM unnest(" + b.arg(texts, "text[]") +
			") AS u(state) CROSS JOIN LATERAL " + of("u.state") + last + ")) ORDER BY j.id"
	}
	parts := make([]string, len(texts))
	for i, text := range texts {
		parts[i] = "SELECT id FROM " + of(b.arg(text, "text"))
	}
	return "SELECT " + columns("j") + " FROM swarmiji_jobs AS j WHERE j.id IN (SELECT id FROM (" + strings.Join(parts, " UNION ALL ") + ")" + last + ") ORDER BY j.id"
}

var everyState = []jobstore.State{
	jobstore.Queued, jobstore.RunQueued, jobstore.Running, jobstore.Paused, jobstore.Waiting, jobstore.Finished, jobstore.Failed, jobstore.Cancelled,
}

// stateText returns the state as an argument of a statement. It replaces invalid UTF-8 and zero
// bytes with "?", because some databases reject them.
func stateText(s jobstore.State) string {
	return strings.ToValidUTF8(strings.ReplaceAll(string(s), "\x00", "?"), "?")
}

// where returns the conditions of q except After and Limit, each with a leading AND, and adds their
// arguments. It is empty if q has no such condition.
func (b *builder) where(q query) string {
	var where strings.Builder
	and := func(column, condition string) { where.WriteString(" AND j." + column + " " + condition) }
	if q.ids != nil {
		ids := make([]int64, len(q.ids))
		for i, id := range q.ids {
			ids[i] = int64(id)
		}
		and("id", b.list(ids))
	}
	if q.States != nil {
		states := make([]string, len(q.States))
		for i, s := range q.States {
			states[i] = stateText(s)
		}
		if len(states) == 1 { // a list may not be used for the last column of an index
			and("state", "= "+b.arg(states[0], "text"))
		} else {
			and("state", b.oneOf(states))
		}
	}
	for _, c := range [...]struct{ column, value string }{
		{"name", q.name}, {"queue", q.queue}, {"answer_key", q.key},
	} {
		if c.value != "" {
			and(c.column, "= "+b.arg(c.value, "text"))
		}
	}
	if q.parent != 0 {
		and("parent", "= "+b.arg(int64(q.parent), "bigint"))
	}
	return where.String()
}

// way returns the name of the index that the statement for q must use. "" leaves the choice to the
// database: it then uses the index by id or by name.
func (b *builder) way(q query) string {
	switch {
	case q.ids != nil:
	case q.parent != 0:
		return indexParent
	case q.name != "" && q.key != "":
		return indexAnswer
	case q.queue != "" && q.States == nil && q.name == "":
		return indexQueueID
	case q.queue != "":
		return "swarmiji_job_queue"
	case all(q.States, jobstore.State.Runs):
		return indexRuns
	case q.name == "" && all(q.States, func(s jobstore.State) bool { return s != jobstore.Queued && !s.Runs() }):
		return indexRest
	}
	return ""
}

// These indexes contain all jobs of a key, a parent or a sequence, in the order of state and id.
const (
	indexSequence = "swarmiji_job_sequence"
	indexParent   = "swarmiji_job_parent"
	indexAnswer   = "swarmiji_job_answer"
	indexUnique   = "swarmiji_job_unique"
)

// ofKey reports whether builder.ofKey builds the statement for a query that uses this index.
func ofKey(index string) bool { return index == indexParent || index == indexAnswer }

// These indexes are in the order of ids.
const (
	indexRuns    = "swarmiji_job_runs"
	indexRest    = "swarmiji_job_rest"
	indexQueueID = "swarmiji_job_queue_id"
)

// byID reports whether an index is in the order of ids.
func byID(index string) bool {
	return index == indexRuns || index == indexRest || index == indexQueueID
}

// all reports whether states is not empty and is holds for every state.
func all(states []jobstore.State, is func(jobstore.State) bool) bool {
	return len(states) > 0 && !slices.ContainsFunc(states, func(s jobstore.State) bool { return !is(s) })
}

// list returns the condition that an id is in ids, in the form that follows the name of a column.
// The list is one argument, which it adds to b.args, whatever its length.
func (b *builder) list(ids []int64) string {
	if b.lite {
		return "IN (SELECT value FROM json_each(" + b.arg(asJSON(ids), "text") + "))"
	}
	return "= ANY(" + b.arg(ids, "bigint[]") + ")"
}

// oneOf returns the condition that a text is in texts. On PostgreSQL the list must not be a table
// to join with. After a wait for a row lock, PostgreSQL checks the row's new version. With a join
// it would compare only the list element of the old version, and would not find the row.
func (b *builder) oneOf(texts []string) string {
	if b.lite {
		return "IN (SELECT value FROM json_each(" + b.arg(asJSON(texts), "text") + "))"
	}
	return "= ANY(" + b.arg(texts, "text[]") + ")"
}
