package sqljobs

import (
	"context"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// query asks for jobs. All that is set must hold of a job.
type query struct {
	jobstore.Page
	ids       []jobstore.ID // not nil: these
	name      string
	sequence  string
	parent    jobstore.ID
	queue     string
	uniqueKey string // with a name
	key       string // with a name
	last      bool   // of a key: the last ones instead of the first
}

// find returns the jobs that q asks for. It locks those of ids.
func (t *tx) find(ctx context.Context, q query) ([]jobstore.Row, error) {
	if t.err != nil {
		return nil, t.err
	}
	if q.States != nil && len(q.States) == 0 || q.Limit < 0 {
		return nil, nil
	}
	if !possible(q.name) || !possible(q.sequence) || !possible(q.queue) || !possibleKey(q.uniqueKey) || !possibleKey(q.key) {
		return nil, nil
	}
	b := builder{lite: t.s.lite}
	text, read := b.find(q), t.read
	if q.ids != nil {
		if read = t.jobs; !t.s.lite && !t.view {
			text += " FOR UPDATE"
		}
	}
	found, _, err := read(ctx, text, b.args...)
	return found, t.fail("find", err)
}

// possible reports whether a job may have this text for a name or a key. Not every database takes others.
func possible(text string) bool { return text == "" || jobstore.CheckName(text) == nil }

// builder makes a statement of a query.
type builder struct {
	lite bool
	args []any
}

func (b *builder) arg(v any, kind string) string {
	b.args = append(b.args, v)
	return cast(len(b.args), kind)
}

// possibleKey is the same of a key.
func possibleKey(text string) bool {
	return len(text) <= jobstore.MaxKey && utf8.ValidString(text) && strings.IndexByte(text, 0) < 0
}

// find is the statement of a query. There are few shapes, which are prepared once each.
func (b *builder) find(q query) string {
	index := b.way(q)
	if ofKey(index) {
		return b.ofKey(q, index)
	}
	where := b.where(q)
	id, order := "j.id", "j.id"
	switch {
	case index != "" && b.lite && byID(index): // it is told the index
	case index != "":
		// No other index may seem as good to PostgreSQL, which might walk all jobs by their ids when it has seen the table empty.
		id, order = "j.id + 0", "j.id + 0"
	case q.name != "":
		where += " AND j.id > -1" // which PostgreSQL's index says
	}
	query := "SELECT " + columns("j") + " FROM " + b.table(index) + " WHERE " + id + " > " + b.arg(int64(q.After), "bigint") + where + b.names(index) + " ORDER BY " + order
	if q.Limit > 0 {
		query += " LIMIT " + b.arg(q.Limit, "bigint")
	}
	return query
}

// ofKey is the statement of a query for jobs of a key, a parent or a sequence. It looks up each
// state by itself: jobs of other states are not read, however many are kept.
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

// stateText is a state as an argument. Not every database takes any text.
func stateText(s jobstore.State) string {
	return strings.ToValidUTF8(strings.ReplaceAll(string(s), "\x00", "?"), "?")
}

// where is what must hold of a job, but for After, each condition after an AND.
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
		if len(states) == 1 { // as the last column of an index's condition: a list may be no part of it
			and("state", "= "+b.arg(states[0], "text"))
		} else {
			and("state", b.oneOf(states))
		}
	}
	for _, c := range [...]struct{ column, value string }{
		{"name", q.name}, {"sequence_key", q.sequence}, {"queue", q.queue}, {"unique_key", q.uniqueKey}, {"answer_key", q.key},
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

// way is the index that is to be used; "": one that the database thinks best of those that are for other questions.
func (b *builder) way(q query) string {
	switch {
	case q.ids != nil:
	case q.sequence != "":
		return indexSequence
	case q.parent != 0:
		return indexParent
	case q.name != "" && q.key != "":
		return indexAnswer
	case q.name != "" && q.uniqueKey != "":
		return indexUnique
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

// The indexes that have all jobs of a key, a parent or a sequence, by state and then by id.
const (
	indexSequence = "swarmiji_job_sequence"
	indexParent   = "swarmiji_job_parent"
	indexAnswer   = "swarmiji_job_answer"
	indexUnique   = "swarmiji_job_unique"
)

// ofKey reports whether an index is one of these.
func ofKey(index string) bool {
	return index == indexSequence || index == indexParent || index == indexAnswer || index == indexUnique
}

// The indexes that are in the order of ids.
const (
	indexRuns    = "swarmiji_job_runs"
	indexRest    = "swarmiji_job_rest"
	indexQueueID = "swarmiji_job_queue_id"
)

func byID(index string) bool {
	return index == indexRuns || index == indexRest || index == indexQueueID
}

// all reports whether there are states, and is holds of each.
func all(states []jobstore.State, is func(jobstore.State) bool) bool {
	return len(states) > 0 && !slices.ContainsFunc(states, func(s jobstore.State) bool { return !is(s) })
}

// list is the condition that an id is one of a list, which is one argument whatever its length.
func (b *builder) list(ids []int64) string {
	if b.lite {
		return "IN (SELECT value FROM json_each(" + b.arg(asJSON(ids), "text") + "))"
	}
	return "= ANY(" + b.arg(ids, "bigint[]") + ")"
}

// oneOf is the condition that a text is one of a list. On PostgreSQL the list must not be a table to join with: when a row that was waited for has
// changed, its new version would be compared only with the element of the list that the old one had, and not be found.
func (b *builder) oneOf(texts []string) string {
	if b.lite {
		return "IN (SELECT value FROM json_each(" + b.arg(asJSON(texts), "text") + "))"
	}
	return "= ANY(" + b.arg(texts, "text[]") + ")"
}
