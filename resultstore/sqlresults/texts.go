package sqlresults

import "github.com/swarmiji/swarmiji/internal/sqlconn"

// texts holds the SQL statements in a database's dialect. $1 is the namespace, unless the comment
// says otherwise. Times are in microseconds.
type texts struct {
	// save: $2 id, $3 generation, $4 deliveries, $5 state, $6 final, $7 node or '', $8 retention, $9
	// value. It changes a row if the record is stored.
	save string
	// saveAll is save for many rows, with arrays for $2 and so on, for PostgreSQL. It returns the ids
	// that were stored. It locks rows in the order of their ids.
	saveAll string
	// saveAllDrop is saveAll that also drops checkpoints, if the record is stored: the last
	// parameter is an array of ids.
	saveAllDrop string
	// token: $2 id. It returns generation, deliveries, state and final.
	token string
	load  string // $2 id
	drop  string // $2 id

	// enterCheckpoints: $2 id. It inserts the row of the checkpoints if it does not exist, and
	// locks it for this transaction. It returns 1 if it had not expired, else 0, and its value.
	enterCheckpoints string
	saveCheckpoints  string // $2 id, $3 retention, $4 value
	dropCheckpoints  string // $2 id

	// here returns the cursor of a new stream; it has no parameters.
	here string
	// look: $2 node, then the stream's cursor, then the largest value and the number of rows. See
	// cursor.
	look string

	// group: $2 id. It inserts the group if it does not exist, and locks its row for this transaction.
	// It returns size, done, failed, largest, decider, expires and now.
	group string
	// known: $2 id. It returns size, done, failed and decider.
	known string
	// arrived: $2 size, $3 done, $4 failed, $5 largest, $6 decider, $7 retention, $8 id.
	arrived string
	member  string // $2 id, $3 place, $4 value. It changes a row if the place was empty.
	forget  string // $2 id. It deletes all members.
	members string // $2 id, $3 first place, $4 number of rows. It returns place and value.
	// claim: $2 id, $3 new holder, $4 duration. It returns the holder in the row after the statement.
	claim string
	// $2 id, $3 holder, $4 next holder, $5 duration. It changes a row if one of the two holds it.
	pass    string
	release string // $2 id, $3 holder. It deletes the row if the holder holds it.
	value   string // $2 id. It returns the holder of a row that has not expired.

	// sweepResults, sweepBegun and sweepCheckpoints: $1 largest number of rows.
	sweepResults, sweepBegun, sweepCheckpoints string
	// sweepGroups: $1 largest number of rows. It returns namespace and id, and locks the rows for this
	// transaction.
	sweepGroups  string
	sweepMembers string // $2 id, $3 largest number of rows
	sweepGroup   string // $2 id
}

// newTexts returns the SQL statements for a dialect, as the fields of texts describe them. It calls
// no database.
func newTexts(d sqlconn.Dialect) *texts {
	now := d.Now()
	// As a subquery the clock is read once and an index is used. PostgreSQL's clock function gives
	// another time for each row.
	once := "(SELECT " + now + ")"
	t := &texts{
		token: `SELECT generation, deliveries, state, final FROM swarmiji_result WHERE namespace = $1 AND id = $2 AND expires > ` + now,
		load:  `SELECT value FROM swarmiji_result WHERE namespace = $1 AND id = $2 AND expires > ` + now,
		drop:  `DELETE FROM swarmiji_result WHERE namespace = $1 AND id = $2`,

		enterCheckpoints: `INSERT INTO swarmiji_result_checkpoint AS c (namespace, id, expires, value) VALUES ($1, $2, 0, '')
			ON CONFLICT (namespace, id) DO UPDATE SET expires = c.expires
			RETURNING CASE WHEN expires > ` + now + ` THEN 1 ELSE 0 END, value`,
		saveCheckpoints: `UPDATE swarmiji_result_checkpoint SET expires = ` + now + ` + $3, value = $4 WHERE namespace = $1 AND id = $2`,
		dropCheckpoints: `DELETE FROM swarmiji_result_checkpoint WHERE namespace = $1 AND id = $2`,

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
		// A row with another holder is written unchanged. One statement then returns the holder, even if
		// another claim came in between.
		claim: `INSERT INTO swarmiji_result_begun AS b (namespace, id, which, expires) VALUES ($1, $2, $3, ` + now + ` + $4)
			ON CONFLICT (namespace, id) DO UPDATE SET (which, expires) = (
				SELECT CASE WHEN b.expires <= t.now THEN excluded.which ELSE b.which END,
					CASE WHEN b.expires <= t.now THEN excluded.expires ELSE b.expires END FROM (SELECT ` + now + ` AS now) AS t)
			RETURNING which`,
		pass: `UPDATE swarmiji_result_begun SET which = $4, expires = ` + now + ` + $5
			WHERE namespace = $1 AND id = $2 AND which IN ($3, $4) AND expires > ` + now,
		release: `DELETE FROM swarmiji_result_begun WHERE namespace = $1 AND id = $2 AND which = $3`,
		value:   `SELECT which FROM swarmiji_result_begun WHERE namespace = $1 AND id = $2 AND expires > ` + now,

		sweepMembers: `WITH old AS MATERIALIZED (SELECT place FROM swarmiji_result_member WHERE namespace = $1 AND id = $2 LIMIT $3)
			DELETE FROM swarmiji_result_member WHERE namespace = $1 AND id = $2 AND place IN (SELECT place FROM old)`,
		sweepGroup: `DELETE FROM swarmiji_result_group WHERE namespace = $1 AND id = $2`,
	}
	// Concurrent sweeps, or a sweep and a write, do not wait for each other.
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
	t.sweepCheckpoints = sweep("swarmiji_result_checkpoint")
	t.sweepResults, t.sweepBegun, t.sweepGroups = sweep("swarmiji_result"), sweep("swarmiji_result_begun"), expired("swarmiji_result_group")
	if d == sqlconn.Postgres {
		t.forPostgres(now)
	} else {
		t.forSQLite(now)
	}
	return t
}

// forSQLite sets the statements that are particular to SQLite. Replacing a row gives it a new seq,
// which is larger than all earlier ones. SQLite has one writer, so rows become visible in the order
// of seq.
func (t *texts) forSQLite(now string) {
	t.save = `INSERT OR REPLACE INTO swarmiji_result (namespace, id, generation, deliveries, state, final, node, expires, value)
		SELECT $1, $2, $3, $4, $5, $6, nullif($7, ''), ` + now + ` + $8, $9 WHERE NOT EXISTS (
			SELECT 1 FROM swarmiji_result AS r WHERE r.namespace = $1 AND r.id = $2 AND r.expires > ` + now + `
				AND ((r.generation, r.deliveries) > ($3, $4) OR r.final = 1
					AND NOT ($5 = 'requeued' AND r.generation < $3 AND r.state IN ('failed', 'expired'))))`
	t.here = `SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'swarmiji_result'), 0)`
	t.look = `SELECT seq, id, CASE WHEN length(value) <= $4 THEN value END FROM swarmiji_result
		WHERE namespace = $1 AND node = $2 AND seq > $3 AND expires > ` + now + ` ORDER BY seq LIMIT $5`
}

// forPostgres sets the statements that are particular to PostgreSQL. Its transactions do not become
// visible in the order in which they began. A number in the rows therefore cannot tell which rows
// are new; the statement look reads the rows that an earlier snapshot did not see. $3 is that
// snapshot. $4 is the snapshot that limits a read of several pages, "" for its first page. $5 and
// $6 are the last row of the previous page.
//
// A snapshot did not see the transactions that began after it, from its xmax on, and those open in
// it, its xip. The statement selects each of them. All rows from its xmin on would include
// everything since the oldest open transaction.
func (t *texts) forPostgres(now string) {
	const into = `INSERT INTO swarmiji_result AS r (namespace, id, generation, deliveries, state, final, node, xact, expires, value) `
	unless := ` ON CONFLICT (namespace, id) DO UPDATE SET generation = excluded.generation, deliveries = excluded.deliveries, state = excluded.state,
			final = excluded.final, node = excluded.node, xact = excluded.xact, expires = excluded.expires, value = excluded.value
		WHERE r.expires <= ` + now + `
			OR r.final = 0 AND (r.generation, r.deliveries) <= (excluded.generation, excluded.deliveries)
			OR excluded.state = 'requeued' AND r.generation < excluded.generation AND r.state IN ('failed', 'expired')`
	t.save = into + `VALUES ($1, $2, $3, $4, $5, $6, nullif($7, ''), pg_current_xact_id(), ` + now + ` + $8, $9)` + unless
	t.saveAll = into + `SELECT $1, k.id, k.generation, k.deliveries, k.state, k.final, nullif(k.node, ''), pg_current_xact_id(), ` + now + ` + k.ttl, k.value
		FROM ` + unnest(2, saveColumns) + ` ORDER BY k.id` + unless + ` RETURNING r.id`
	t.saveAllDrop = `WITH saved AS (` + t.saveAll + `), dropped AS (
			DELETE FROM swarmiji_result_checkpoint AS c USING saved WHERE c.namespace = $1 AND c.id = saved.id AND c.id = ANY($10::text[])
		) SELECT id FROM saved`
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
