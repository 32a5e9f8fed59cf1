package sqljobs

import (
	"context"
	"strings"

	"github.com/swarmiji/swarmiji/jobs"
)

// Find implements [jobs.Tx].
func (t *tx) Find(ctx context.Context, q jobs.Query) ([]jobs.Job, error) {
	if t.err != nil {
		return nil, t.err
	}
	if q.Due != nil {
		found, err := t.findDue(ctx, *q.Due, q.Limit)
		return found, t.fail("find", err)
	}
	if q.IDs != nil && len(q.IDs) == 0 || q.States != nil && len(q.States) == 0 || q.Limit < 0 {
		return nil, nil
	}
	if !possible(q.Name) || !possible(q.SequenceKey) {
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

// find is the statement of a Query. There are few shapes, which are prepared once each.
func (b *builder) find(q jobs.Query) string {
	where := []string{"j.id > " + b.arg(int64(q.After), "bigint")}
	if q.IDs != nil {
		ids := make([]int64, len(q.IDs))
		for i, id := range q.IDs {
			ids[i] = int64(id)
		}
		where = append(where, "j.id "+b.list(ids))
	}
	if q.Name != "" {
		where = append(where, "j.name = "+b.arg(q.Name, "text"), "j.id > -1") // which PostgreSQL's index says
	}
	if q.States != nil {
		states := make([]string, len(q.States))
		for i, s := range q.States {
			states[i] = strings.ToValidUTF8(strings.ReplaceAll(string(s), "\x00", "?"), "?")
		}
		where = append(where, "j.state "+b.oneOf(states))
	}
	if q.SequenceKey != "" {
		where = append(where, "j.sequence_key = "+b.arg(q.SequenceKey, "text"))
	}
	if q.Parent != 0 {
		where = append(where, "j.parent = "+b.arg(int64(q.Parent), "bigint"))
	}
	query := "SELECT " + columns("j") + " FROM swarmiji_job AS j WHERE " + strings.Join(where, " AND ") + " ORDER BY j.id"
	if q.Limit > 0 {
		query += " LIMIT " + b.arg(q.Limit, "bigint")
	}
	return query
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
