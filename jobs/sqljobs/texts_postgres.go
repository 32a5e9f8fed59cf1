package sqljobs

import (
	"fmt"
	"strings"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

// addNames inserts the names of jobs into the table of names. Each name's lock is shared and held
// until the end of the transaction. A sweep needs this lock exclusively to remove the name, and
// fails to get it. The lock comes before the read, which then sees all earlier commits.
const addNames = `l AS MATERIALIZED (SELECT v.name, pg_advisory_xact_lock_shared(v.key) FROM %s AS v(name, key)),
	m AS (INSERT INTO swarmiji_job_name (name) SELECT l.name FROM l ON CONFLICT DO NOTHING RETURNING 1)`

// postgres sets the statements of t that only PostgreSQL uses, or that differ there. It calls no
// database.
func (t *texts) postgres() {
	into, names := insertInto(len(stored))
	arrays := make([]string, len(stored))
	for i, c := range stored {
		arrays[i] = cast(i+1, c.kind+"[]")
	}
	t.lock += " FOR UPDATE"
	t.addNames = "WITH " + fmt.Sprintf(addNames, "unnest(CAST($1 AS text[]), CAST($2 AS bigint[]))") + " SELECT count(*) FROM m"
	t.insertMany = into + " SELECT " + names + " FROM unnest(" + strings.Join(arrays, ", ") + ") WITH ORDINALITY AS v(" + names +
		", place) ORDER BY v.place RETURNING id"
	for g := lease; g <= everyGroup; g++ {
		t.updateMany[g] = updateManyText(g)
	}
	t.delete = "WITH m AS (DELETE FROM swarmiji_job_message WHERE job = ANY(CAST($1 AS bigint[]))) DELETE FROM swarmiji_jobs WHERE id = ANY(CAST($1 AS bigint[]))"
	t.expireJobs = `WITH x AS MATERIALIZED (SELECT j.id FROM swarmiji_jobs AS j WHERE j.expires <= CAST($1 AS bigint)
			ORDER BY j.expires, j.id LIMIT CAST($2 AS bigint) FOR UPDATE SKIP LOCKED),
		m AS (DELETE FROM swarmiji_job_message WHERE job = ANY(ARRAY(SELECT x.id FROM x)))
		DELETE FROM swarmiji_jobs WHERE id = ANY(ARRAY(SELECT x.id FROM x))`
	t.addMessage = "INSERT INTO swarmiji_job_message (job, message) SELECT * FROM unnest(CAST($1 AS bigint[]), CAST($2 AS text[]))"
	// A sweep removes names without jobs, but not those whose locks are held.
	t.join = `WITH l AS MATERIALIZED (SELECT v.name, CAST(pg_advisory_xact_lock_shared(v.key) AS text)
			FROM unnest(CAST($1 AS text[]), CAST($2 AS bigint[])) AS v(name, key))
		SELECT current_setting('transaction_isolation'), ` + sqlconn.Postgres.Now() + `,
			(SELECT count(*) FROM l WHERE EXISTS (SELECT 1 FROM swarmiji_job_name AS n WHERE n.name = l.name))`
	t.names = namesText()
	t.forget = `DELETE FROM swarmiji_job_name AS n WHERE n.name = ANY(CAST($1 AS text[]))
		AND NOT EXISTS (SELECT 1 FROM swarmiji_jobs AS j WHERE j.name = n.name AND j.id > -1)`

	each := newSource(sqlconn.Postgres)
	each.where, each.by = "name = m.name AND "+each.where, serverBy
	t.many = manyText(each)
	each.first = cast(4, "integer")
	t.manyOf = manyText(each)
	ids := " FROM swarmiji_jobs AS j WHERE j.id = ANY(CAST($3 AS bigint[])) AND j.due <= " + serverBy +
		" ORDER BY j.priority, j.due, j.id LIMIT $1 FOR UPDATE SKIP LOCKED"
	t.lockIDs = "WITH " + now(sqlconn.Postgres) + "one AS (SELECT 1) SELECT " + columns("j") + ids
	t.takeIDs = "WITH " + now(sqlconn.Postgres) + takeText("SELECT j.id, j.priority, j.due, ("+plain+") AS plain"+ids, 4)
}

// updateManyText returns the statement that updates the columns in g for many jobs. Its arguments
// are arrays: one for each column, then the ids.
func updateManyText(g groups) string {
	var names, arrays, sets []string
	for _, c := range stored {
		if g&c.group != 0 {
			names, sets = append(names, c.name), append(sets, c.name+" = v."+c.name)
			arrays = append(arrays, cast(len(names), c.kind+"[]"))
		}
	}
	ids := cast(len(names)+1, "bigint[]")
	return "UPDATE swarmiji_jobs AS j SET " + strings.Join(sets, ", ") + " FROM unnest(" + strings.Join(arrays, ", ") + ", " + ids + ") AS v(" +
		// the second condition: see takeText
		strings.Join(names, ", ") + ", id) WHERE j.id = v.id AND j.id = ANY(" + ids + ")"
}

// manyText returns the statement that finds the first due rows of each name, and returns the first
// $1 of all these rows as candidates.
func manyText(each source) string {
	return "WITH " + strings.TrimSuffix(now(sqlconn.Postgres), ", ") + " SELECT a.* FROM unnest(CAST($3 AS text[])) AS m(name) CROSS JOIN LATERAL (WITH RECURSIVE " +
		each.priorities() + " " + each.rows(candidate, "") + ") AS a ORDER BY a.priority, a.due, a.id LIMIT $1"
}

// namesText returns the statement that reads the names which an earlier snapshot did not see. These
// names belong to transactions that began after it, from its xmax on. They also belong to
// transactions that were open in it: its xip and the transaction that took it. Reading from its
// xmin on would return all names since the oldest open transaction.
func namesText() string {
	number := func(xid string) string { return "CAST(CAST(" + xid + " AS text) AS bigint)" }
	past := "CAST(nullif(CAST($2 AS text), '') AS pg_snapshot)"
	next := "coalesce(" + number("pg_snapshot_xmax("+past+")") + ", 0)"
	open := "SELECT " + number("x.xid") + " FROM pg_snapshot_xip(" + past + ") AS x(xid) UNION ALL SELECT CAST($1 AS bigint) WHERE CAST($1 AS bigint) < " + next
	return "SELECT coalesce(" + number("pg_current_xact_id_if_assigned()") + ", 0), CAST(pg_current_snapshot() AS text), coalesce(w.name, '')" +
		" FROM (SELECT 1) AS one LEFT JOIN (SELECT n.name FROM swarmiji_job_name AS n WHERE n.xid >= " + next +
		" UNION ALL SELECT n.name FROM (" + open + ") AS o(xid) CROSS JOIN LATERAL (SELECT m.name FROM swarmiji_job_name AS m WHERE m.xid = o.xid) AS n) AS w ON true"
}
