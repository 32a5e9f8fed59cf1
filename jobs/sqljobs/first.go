package sqljobs

import (
	"context"
	"errors"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// groupTexts holds the statements that look up groups. On PostgreSQL the arguments are arrays: $1
// names, $2 keys and $3 states. Each row is the number of a group, counted from 1, and an id or a
// task. On SQLite the arguments are one name, one key and the states as JSON. The answer is for
// this group alone.
type groupTexts struct {
	first [jobstore.ByMockName + 1]string
	open  string // takes no states
}

// newGroupTexts returns the statements that look up groups, in the dialect d. It calls no database.
func newGroupTexts(d sqlconn.Dialect) groupTexts {
	var t groupTexts
	for by := range t.first {
		t.first[by] = firstText(d, jobstore.GroupBy(by))
	}
	t.open = "SELECT 1, d.task FROM swarmiji_deferral AS d INDEXED BY swarmiji_deferral_key WHERE d.name = $1 AND d.key = $2 AND d.expires IS NULL LIMIT 1"
	if d == sqlconn.Postgres {
		t.open = "SELECT g.n, i.task FROM " + groupTable + " CROSS JOIN LATERAL " +
			"(SELECT d.task FROM swarmiji_deferral AS d WHERE d.name = g.name AND d.key = g.key AND d.expires IS NULL LIMIT 1) AS i"
	}
	return t
}

// groupTable is the table expression for the groups, on PostgreSQL.
const groupTable = "unnest(CAST($1 AS text[]), CAST($2 AS text[])) WITH ORDINALITY AS g(name, key, n)"

// firstText returns the statement for the job with the lowest id of each group of a kind. It looks
// up each state separately, so jobs of other states are not read. The index of names does not
// contain the state, so a group by name is looked up once for all states. A group by name contains
// no jobs of queues, and no jobs with an expiry time except FAILED ones. ByMockName selects mock
// jobs, ByName the others.
func firstText(d sqlconn.Dialect, by jobstore.GroupBy) string {
	lite := d == sqlconn.SQLite
	name, key, states := "g.name", "g.key", "unnest(CAST($3 AS text[])) AS s(value)"
	if lite {
		name, key, states = cast(1, "text"), cast(2, "text"), "json_each($3) AS s"
	}
	var where, index string
	switch by {
	case jobstore.ByKey:
		where, index = "j.name = "+name+" AND j.answer_key = "+key, indexAnswer
	case jobstore.ByUniqueKey:
		where, index = "j.name = "+name+" AND j.unique_key = "+key, indexUnique
	case jobstore.BySequence:
		where, index = "j.sequence_key = "+key, indexSequence
	default:
		same := "j.name = " + name
		if !lite {
			// With "=", PostgreSQL does not detect that this is one name, and cannot scan its jobs by id.
			same = "j.name >= g.name AND j.name <= g.name"
		}
		where = same + " AND j.id > -1 AND j.queue IS NULL AND (j.expires IS NULL OR j.state = 'FAILED') AND j.mock = "
		if by == jobstore.ByName {
			where += "0"
		} else {
			where += "1"
		}
	}
	b := builder{lite: lite}
	order := "j.id"
	switch {
	case lite:
	case index == "":
		order = "j.name, j.id"
	default:
		order = "j.id + 0" // for the same reason as in builder.find
	}
	find := func(state string) string {
		return "SELECT j.id FROM " + b.table(index) + " WHERE " + where + " AND j.state " + state + " ORDER BY " + order + " LIMIT 1"
	}
	first := "SELECT min((" + find("= s.value") + ")) AS id FROM " + states
	switch {
	case index == "" && lite:
		first = find("IN (SELECT value FROM " + states + ")")
	case index == "":
		first = find("= ANY(CAST($3 AS text[]))")
	}
	if lite {
		return "SELECT 1, i.id FROM (" + first + ") AS i WHERE i.id IS NOT NULL"
	}
	return "SELECT g.n, i.id FROM " + groupTable + " CROSS JOIN LATERAL (" + first + ") AS i WHERE i.id IS NOT NULL"
}

// First returns the lowest id of a job in the states for each group. nil states means all states;
// an empty list means none. Groups without such a job, and groups that no job can have, are
// missing from the map. It locks nothing. A database error fails the transaction, and later calls
// return it. It implements [jobstore.Finder].
func (t *tx) First(ctx context.Context, states []jobstore.State, groups ...jobstore.Group) (map[jobstore.Group]jobstore.ID, error) {
	if states == nil {
		states = everyState
	}
	texts := make([]string, len(states))
	for i, s := range states {
		texts[i] = stateText(s)
	}
	found := map[jobstore.Group]jobstore.ID{}
	for by, text := range t.s.text.groups.first {
		if err := eachGroup(ctx, t, text, jobstore.GroupBy(by), groups, texts, func(g jobstore.Group, id int64) { found[g] = jobstore.ID(id) }); err != nil {
			return nil, t.fail("first", err)
		}
	}
	return found, t.err
}

// OpenDeferrals returns the task of an open deferral for each group by key; other groups are
// ignored. Groups without such a deferral are missing from the map. It locks nothing. A database
// error fails the transaction, and later calls return it. It implements [jobstore.AnswerTx].
func (t *tx) OpenDeferrals(ctx context.Context, groups ...jobstore.Group) (map[jobstore.Group]task.ID, error) {
	found := map[jobstore.Group]task.ID{}
	err := eachGroup(ctx, t, t.s.text.groups.open, jobstore.ByKey, groups, nil, func(g jobstore.Group, id string) { found[g] = task.ID(id) })
	return found, t.fail("open deferrals", errors.Join(err, t.err))
}

// eachGroup runs the statement text for those groups of all whose kind is by: once on PostgreSQL,
// once for each group on SQLite. It calls have with each group and value that the statement
// returns. If states is nil, the statement takes no states.
//
// It ignores groups that no job can have. In a failed transaction it does nothing and returns nil.
// Returns the first error of the database, which does not fail the transaction.
func eachGroup[V any](ctx context.Context, t *tx, text string, by jobstore.GroupBy, all []jobstore.Group, states []string, have func(jobstore.Group, V)) error {
	var names, keys []string
	var groups []jobstore.Group
	for _, g := range all {
		if g.By == by && possible(g.Name) && possibleKey(g.Key) {
			names, keys, groups = append(names, g.Name), append(keys, g.Key), append(groups, g)
		}
	}
	if t.err != nil || len(groups) == 0 { // the callers return t.err
		return nil //nolint:nilerr // see above
	}
	if !t.s.lite {
		args := []any{names, keys, states}
		if states == nil {
			args = args[:2]
		}
		return eachRow(ctx, t, text, args, func(n int64, v V) { have(groups[n-1], v) })
	}
	args := []any{nil, nil, nil}
	if states == nil {
		args = args[:2]
	} else {
		args[2] = asJSON(states)
	}
	for _, g := range groups {
		args[0], args[1] = g.Name, g.Key
		if err := eachRow(ctx, t, text, args, func(_ int64, v V) { have(g, v) }); err != nil {
			return err
		}
	}
	return nil
}

// eachRow runs the statement text and calls have with each row, which is a number and a value.
// Returns the error of the statement, which does not fail the transaction.
func eachRow[V any](ctx context.Context, t *tx, text string, args []any, have func(int64, V)) error {
	rows, err := t.c.Query(ctx, text, args...)
	if err != nil {
		return err
	}
	for rows.Next() {
		var n int64
		var v V
		if err := rows.Scan(&n, &v); err != nil {
			return err
		}
		have(n, v)
	}
	return errors.Join(rows.Err(), rows.Close())
}
