package sqljobs

import (
	"context"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/jobs"
)

// Find implements [jobs.Tx].
func (t *tx) Find(ctx context.Context, q jobs.Query) ([]jobs.Row, error) {
	if t.err != nil {
		return nil, t.err
	}
	if q.Line != nil {
		found, err := t.findLine(ctx, q.Line, q.Limit)
		return found, t.fail("find", err)
	}
	if q.Due != nil {
		found, err := t.findDue(ctx, *q.Due, q.Limit)
		return found, t.fail("find", err)
	}
	if q.IDs != nil && len(q.IDs) == 0 || q.States != nil && len(q.States) == 0 || q.Limit < 0 {
		return nil, nil
	}
	if !possible(q.Name) || !possible(q.SequenceKey) || !possible(q.Queue) || !possibleKey(q.UniqueKey) || !possibleKey(q.Key) {
		return nil, nil
	}
	b := builder{lite: t.s.lite}
	query := b.find(q)
	if !t.s.lite && !t.view {
		query += " FOR UPDATE"
	}
	found, _, err := t.jobs(ctx, query, b.args...)
	return found, t.fail("find", err)
}

// possible reports whether a job may have this text for a name or a key. Not every database takes others.
func possible(text string) bool { return text == "" || jobs.CheckName(text) == nil }

// builder makes a statement of what a Query asks.
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
	return len(text) <= jobs.MaxKey && utf8.ValidString(text) && strings.IndexByte(text, 0) < 0
}

// find is the statement of a Query. There are few shapes, which are prepared once each.
func (b *builder) find(q jobs.Query) string {
	where, index := b.where(q), b.way(q)
	id, order := "j.id", "j.id"
	switch {
	case index != "" && b.lite && byID(index): // it is told the index
	case index != "":
		// No other index may seem as good to PostgreSQL, which might walk all jobs by their ids when it has seen the table empty.
		id, order = "j.id + 0", "j.id + 0"
	case q.Name != "":
		where += " AND j.id > -1" // which PostgreSQL's index says
	}
	if !q.Expired.IsZero() {
		order = "j.expires, j.id"
	}
	query := "SELECT " + columns("j") + " FROM " + b.table(index) + " WHERE " + id + " > " + b.arg(int64(q.After), "bigint") + where + b.names(index) + " ORDER BY " + order
	if q.Limit > 0 {
		query += " LIMIT " + b.arg(q.Limit, "bigint")
	}
	return query
}

// where is what must hold of a job, but for After, each condition after an AND.
func (b *builder) where(q jobs.Query) string {
	var where strings.Builder
	and := func(column, condition string) { where.WriteString(" AND j." + column + " " + condition) }
	if q.IDs != nil {
		ids := make([]int64, len(q.IDs))
		for i, id := range q.IDs {
			ids[i] = int64(id)
		}
		and("id", b.list(ids))
	}
	if q.States != nil {
		states := make([]string, len(q.States))
		for i, s := range q.States {
			states[i] = strings.ToValidUTF8(strings.ReplaceAll(string(s), "\x00", "?"), "?")
		}
		if len(states) == 1 { // as the last column of an index's condition: a list may be no part of it
			and("state", "= "+b.arg(states[0], "text"))
		} else {
			and("state", b.oneOf(states))
		}
	}
	for _, c := range [...]struct{ column, value string }{
		{"name", q.Name}, {"sequence_key", q.SequenceKey}, {"queue", q.Queue}, {"unique_key", q.UniqueKey}, {"answer_key", q.Key},
	} {
		if c.value != "" {
			and(c.column, "= "+b.arg(c.value, "text"))
		}
	}
	if q.Parent != 0 {
		and("parent", "= "+b.arg(int64(q.Parent), "bigint"))
	}
	if !q.Expired.IsZero() {
		and("expires", "<= "+b.arg(q.Expired.UnixMicro(), "bigint"))
	}
	return where.String()
}

// way is the index that is to be used; "": one that the database thinks best of those that are for other questions.
func (b *builder) way(q jobs.Query) string {
	switch {
	case q.IDs != nil || q.SequenceKey != "" || q.Parent != 0:
	case q.Name != "" && q.Key != "":
		return "swarmiji_job_answer"
	case q.Name != "" && q.UniqueKey != "":
		return "swarmiji_job_unique"
	case !q.Expired.IsZero():
		return "swarmiji_job_expires"
	case q.Queue != "" && q.States == nil && q.Name == "":
		return indexQueueID
	case q.Queue != "":
		return "swarmiji_job_queue"
	case all(q.States, jobs.State.Runs):
		return indexRuns
	case q.Name == "" && all(q.States, func(s jobs.State) bool { return s != jobs.Queued && !s.Runs() }):
		return indexRest
	}
	return ""
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
func all(states []jobs.State, is func(jobs.State) bool) bool {
	return len(states) > 0 && !slices.ContainsFunc(states, func(s jobs.State) bool { return !is(s) })
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
