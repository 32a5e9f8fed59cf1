package sqlresults

import "github.com/swarmiji/swarmiji/internal/sqlconn"

// texts are the statements in a database's dialect. $1 is the namespace, except where something else is said.
type texts struct {
	// save: $2 id, $3 generation, $4 deliveries, $5 state, $6 final, $7 node or null, $8 how long, $9 value. It changes a row if
	// the record is kept.
	save string
	// token: $2 id. It answers with generation, deliveries, state and final.
	token string
	load  string // $2 id
	drop  string // $2 id

	// here answers with the place in the table where a new stream begins; it has no parameters.
	here string
	// look: $2 node, then the stream's place, then the largest value and how many. See cursor.
	look string

	// group: $2 id. It makes the group if there is none and holds it for this transaction; it answers with size, done, failed,
	// largest, decider, expires and now.
	group string
	// known: $2 id. It answers with size, done, failed and decider.
	known string
	// arrived: $2 size, $3 done, $4 failed, $5 largest, $6 decider, $7 how long, $8 id.
	arrived string
	member  string // $2 id, $3 place, $4 value. It changes a row if there was none.
	forget  string // $2 id: all members
	members string // $2 id, $3 the first place, $4 how many. It answers with place and value.
	// claim: $2 id, $3 the holder that asks, $4 how long. It answers with the holder that has the row then.
	claim   string
	pass    string // $2 id, $3 holder, $4 the next one, $5 how long. It changes a row if one of them has it.
	release string // $2 id, $3 holder. It deletes the row if the holder has it.

	// sweepResults and sweepBegun: $1 how many at most.
	sweepResults, sweepBegun string
	// sweepGroups: $1 how many at most. It answers with namespace and id, and holds the rows for this transaction.
	sweepGroups  string
	sweepMembers string // $2 id, $3 how many at most
	sweepGroup   string // $2 id
}

func newTexts(d sqlconn.Dialect) *texts {
	now := d.Now()
	// As a value of its own the clock is read once, and an index is used. PostgreSQL's changes from row to row.
	once := "(SELECT " + now + ")"
	t := &texts{
		token: `SELECT generation, deliveries, state, final FROM swarmiji_result WHERE namespace = $1 AND id = $2 AND expires > ` + now,
		load:  `SELECT value FROM swarmiji_result WHERE namespace = $1 AND id = $2 AND expires > ` + now,
		drop:  `DELETE FROM swarmiji_result WHERE namespace = $1 AND id = $2`,

		group: `INSERT INTO swarmiji_result_group AS g (namespace, id, size, done, failed, largest, decider, expires)
			VALUES ($1, $2, 0, 0, 0, -1, -1, 0) ON CONFLICT (namespace, id) DO UPDATE SET size = g.size
			RETURNING size, done, failed, largest, decider, expires, ` + now,
		known: `SELECT size, done, failed, decider FROM swarmiji_result_group WHERE namespace = $1 AND id = $2 AND expires > ` + now,
		arrived: `UPDATE swarmiji_result_group SET size = $2, done = $3, failed = $4, largest = $5, decider = $6, expires = ` + now + ` + $7
			WHERE namespace = $1 AND id = $8`,
		member: `INSERT INTO swarmiji_result_member (namespace, id, place, value) VALUES ($1, $2, $3, $4)
			ON CONFLICT (namespace, id, place) DO NOTHING`,
		forget: `DELETE FROM swarmiji_result_member WHERE namespace = $1 AND id = $2`,
		members: `SELECT m.place, m.value FROM swarmiji_result_member AS m
			WHERE m.namespace = $1 AND m.id = $2 AND m.place >= $3 AND EXISTS (
				SELECT 1 FROM swarmiji_result_group AS g WHERE g.namespace = $1 AND g.id = $2 AND g.expires > ` + once + `)
			ORDER BY m.place LIMIT $4`,
		// A row that another one has is written as it is: then one statement answers with it, whoever came in between.
		claim: `INSERT INTO swarmiji_result_begun AS b (namespace, id, which, expires) VALUES ($1, $2, $3, ` + now + ` + $4)
			ON CONFLICT (namespace, id) DO UPDATE SET (which, expires) = (
				SELECT CASE WHEN b.expires <= t.now THEN excluded.which ELSE b.which END,
					CASE WHEN b.expires <= t.now THEN excluded.expires ELSE b.expires END FROM (SELECT ` + now + ` AS now) AS t)
			RETURNING which`,
		pass: `UPDATE swarmiji_result_begun SET which = $4, expires = ` + now + ` + $5
			WHERE namespace = $1 AND id = $2 AND which IN ($3, $4) AND expires > ` + now,
		release: `DELETE FROM swarmiji_result_begun WHERE namespace = $1 AND id = $2 AND which = $3`,

		sweepMembers: `WITH old AS MATERIALIZED (SELECT place FROM swarmiji_result_member WHERE namespace = $1 AND id = $2 LIMIT $3)
			DELETE FROM swarmiji_result_member WHERE namespace = $1 AND id = $2 AND place IN (SELECT place FROM old)`,
		sweepGroup: `DELETE FROM swarmiji_result_group WHERE namespace = $1 AND id = $2`,
	}
	// Two that sweep at a time, or a sweep and a write, do not wait for each other.
	skip := ""
	if d == sqlconn.Postgres {
		skip = " FOR UPDATE SKIP LOCKED"
	}
	expired := func(table string) string {
		return `SELECT namespace, id FROM ` + table + ` WHERE expires <= ` + once + ` ORDER BY expires LIMIT $1` + skip
	}
	sweep := func(table string) string {
		return `WITH old AS MATERIALIZED (` + expired(table) + `) DELETE FROM ` + table + ` WHERE (namespace, id) IN (SELECT namespace, id FROM old)`
	}
	t.sweepResults, t.sweepBegun, t.sweepGroups = sweep("swarmiji_result"), sweep("swarmiji_result_begun"), expired("swarmiji_result_group")
	if d == sqlconn.Postgres {
		t.forPostgres(now)
	} else {
		t.forSQLite(now)
	}
	return t
}

// forSQLite adds what SQLite has its own way for. To replace a row gives it a new seq, the largest there ever was, and since there is
// one writer rows become visible in that order.
func (t *texts) forSQLite(now string) {
	t.save = `INSERT OR REPLACE INTO swarmiji_result (namespace, id, generation, deliveries, state, final, node, expires, value)
		SELECT $1, $2, $3, $4, $5, $6, $7, ` + now + ` + $8, $9 WHERE NOT EXISTS (
			SELECT 1 FROM swarmiji_result AS r WHERE r.namespace = $1 AND r.id = $2 AND r.expires > ` + now + `
				AND ((r.generation, r.deliveries) > ($3, $4) OR r.final = 1
					AND NOT ($5 = 'requeued' AND r.generation < $3 AND r.state IN ('failed', 'expired'))))`
	t.here = `SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'swarmiji_result'), 0)`
	t.look = `SELECT seq, id, CASE WHEN length(value) <= $4 THEN value END FROM swarmiji_result
		WHERE namespace = $1 AND node = $2 AND seq > $3 AND expires > ` + now + ` ORDER BY seq LIMIT $5`
}

// forPostgres adds what PostgreSQL has its own way for. Its transactions become visible in another order than they began in, so
// that no number of a row tells what is new. What a snapshot of the past did not see does: $3 is that snapshot, $4 the one
// up to which a look of several pages goes, "" at its first page, $5 and $6 the last row of the page before.
//
// A snapshot did not see the transactions that began after it, from its xmax on, nor those that
// were open in it, its xip. The statement asks for each by itself. From its xmin on would be
// everything since the oldest open transaction.
func (t *texts) forPostgres(now string) {
	t.save = `INSERT INTO swarmiji_result AS r (namespace, id, generation, deliveries, state, final, node, xact, expires, value)
		VALUES ($1, $2, $3, $4, $5, $6, $7, pg_current_xact_id(), ` + now + ` + $8, $9)
		ON CONFLICT (namespace, id) DO UPDATE SET generation = excluded.generation, deliveries = excluded.deliveries, state = excluded.state,
			final = excluded.final, node = excluded.node, xact = excluded.xact, expires = excluded.expires, value = excluded.value
		WHERE r.expires <= ` + now + `
			OR r.final = 0 AND (r.generation, r.deliveries) <= (excluded.generation, excluded.deliveries)
			OR excluded.state = 'requeued' AND r.generation < excluded.generation AND r.state IN ('failed', 'expired')`
	t.here = `SELECT pg_current_snapshot()::text`
	page := func(which string) string {
		return `(SELECT xact, id, CASE WHEN length(value) <= $7 THEN value END AS value FROM swarmiji_result
			WHERE namespace = $1 AND node = $2 AND ` + which + `
				AND coalesce(pg_visible_in_snapshot(xact, nullif($4::text, '')::pg_snapshot), true)
				AND (xact, id) > ($5::text::xid8, $6::text) AND expires > ` + now + `
			ORDER BY xact, id LIMIT $8)`
	}
	t.look = `SELECT pg_current_snapshot()::text, r.xact::text, r.id, r.value FROM (SELECT 1) AS one LEFT JOIN (
			` + page(`xact >= greatest(pg_snapshot_xmax($3::text::pg_snapshot), $5::text::xid8)`) + `
			UNION ALL
			SELECT r.* FROM pg_snapshot_xip($3::text::pg_snapshot) AS began(by) CROSS JOIN LATERAL ` + page(`xact = began.by`) + ` AS r
			ORDER BY xact, id LIMIT $8
		) AS r ON true ORDER BY r.xact, r.id`
}
