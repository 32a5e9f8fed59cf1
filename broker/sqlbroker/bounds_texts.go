package sqlbroker

import (
	"cmp"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

// boundTexts are the statements about the bounds of fair queues.
type boundTexts struct {
	// boundKeys is keys with the parts for bounds. It does not choose a level. $6 says whether to
	// count held messages.
	boundKeys string
	// boundClaim is claim with bounds, for PostgreSQL: $1 queue, $2 keys, $3 and $4 the mark of
	// each, $5 level, $6 lease, $7 token, $8 number of each. The bound of each key: $9 Max, $10
	// Rate, $11 its interval. $12 to $14 are the bound of the queue. 0: none.
	boundClaim string
	// boundOf returns the held messages of a key, and the time until its rate is unused or null: $1
	// queue, $2 key. boundOfAll is the same for the queue. SQLite only.
	boundOf, boundOfAll string
	// use counts a use of a rate: $1 queue, $2 whether it is that of the queue, $3 key, $4 duration.
	use string
	// mark makes the held messages of a queue bound: $1 queue.
	mark string
	// drop: $1 queue, $2 number. It removes rates that are not used any more.
	drop string
	// listKeys: $1 queue, $2 lowest key, $3 number. See broker.KeyLister.
	listKeys string
	// usedOf returns the time up to which the rate of a queue is used: $1 queue.
	usedOf string
}

// boundTable has the used rates of fair queues.
const boundTable = "swarmiji_fair_bound"

// held returns an expression for the number of held messages of a fair queue and, unless it is "",
// a key.
func held(key, now string) string {
	text := `(SELECT count(*) FROM ` + fairTable + ` AS h WHERE h.queue = $1 AND h.bound AND h.leased > ` + now
	if key != "" {
		text += ` AND h.key = ` + key
	}
	return text + `)`
}

// used returns an expression for the time up to which the rate of a fair queue is used, or null: of
// the queue, or of a key unless that is "".
func used(key string) string {
	text := `(SELECT u.used FROM ` + boundTable + ` AS u WHERE u.queue = $1 AND `
	if key == "" {
		return text + `u.whole = true)`
	}
	return text + `u.whole = false AND u.key = ` + key + `)`
}

// ofQueue returns the first part of texts.keys, which is one row:
//
//   - the time until the next delayed message is due, or null
//   - the number of held messages, or 0 if the condition count is false or ""
//   - the time until the rate of the queue is unused, or null if no consumer has used bounds
func ofQueue(now, count string) string {
	return `SELECT (SELECT min(due) FROM ` + fairTable + ` WHERE queue = $1 AND NOT ready) - ` + now + ` AS next,
		CASE WHEN ` + cmp.Or(count, "false") + ` THEN ` + held("", now) + ` ELSE 0 END AS held, ` + used("") + ` - ` + now + ` AS used`
}

// ofKeys returns the last two columns of the second part of texts.keys. A row of that part is a key
// with a free message, or null. Its columns:
//
//   - the level, the key, and the weight and the row of its first free message
//   - the number of held messages of the key, or 0 if the condition count is false or ""
//   - the time until the rate of the key is unused, or null. Always null if count is ""
func ofKeys(count, key, now string) string {
	if count == "" {
		return `, 0, CAST(NULL AS bigint)`
	}
	return `, CASE WHEN ` + count + ` THEN ` + held(key, now) + ` ELSE 0 END AS held, ` + used(key) + ` - ` + now + ` AS used`
}

// boundPostgres sets the statements of boundTexts for PostgreSQL. now and once are expressions for
// the time, as with forPostgres.
//
// boundClaim counts the held messages and claims others, in one statement. A statement before it
// gets the locks: a statement sees no change that was committed after its start.
func (t *texts) boundPostgres(now, once string) {
	const at = `(SELECT t FROM c)`
	most := func(n, max, key, rate, every string) string {
		return `greatest(0, least(` + n + `, CASE WHEN ` + max + ` > 0 THEN ` + max + ` - ` + held(key, at) + ` ELSE ` + n + ` END,
			CASE WHEN ` + rate + ` > 0 THEN ` + rate + ` - (greatest(0, coalesce(` + used(key) + ` - ` + at + `, 0)) + ` + every + ` - 1) / ` + every + ` ELSE ` + n + ` END))`
	}
	t.boundClaim = `WITH c AS MATERIALIZED (SELECT ` + now + ` AS t, set_config('synchronous_commit', 'off', true)),
		l AS MATERIALIZED (SELECT l.*, ` + most("l.n", "l.most", "l.key", "l.rate", "l.every") + ` AS free
			FROM unnest($2::text[], $3::bigint[], $4::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[]) AS l(key, due, seq, n, most, rate, every)),
		f AS MATERIALIZED (SELECT x.row, l.key, l.every FROM l CROSS JOIN LATERAL (
				SELECT m.ctid AS row FROM ` + fairTable + ` AS m
				WHERE ` + freeRow + at + ` AND m.level = $5 AND m.key = l.key AND (m.due, m.seq) > (l.due, l.seq)
				ORDER BY m.due, m.seq LIMIT l.free FOR UPDATE SKIP LOCKED) AS x
			LIMIT (SELECT ` + most("1000000", "$12::bigint", "", "$13::bigint", "$14::bigint") + `)),
		m AS (UPDATE ` + fairTable + ` AS m SET leased = ` + at + ` + $6, bound = true, token = $7, deliveries = m.deliveries + 1
			FROM f WHERE m.ctid = f.row RETURNING ` + claimed + `, f.key, f.every),
		k AS (INSERT INTO ` + boundTable + ` AS u (queue, whole, key, used)
			SELECT $1, false, m.key, ` + at + ` + count(*) * m.every FROM m WHERE m.every > 0 GROUP BY m.key, m.every
			ON CONFLICT (queue, whole, key) DO UPDATE SET used = excluded.used + greatest(0, u.used - ` + at + `)),
		q AS (UPDATE ` + boundTable + ` AS u SET used = greatest(u.used, ` + at + `) + (SELECT count(*) FROM m) * $14::bigint
			WHERE u.queue = $1 AND u.whole = true AND $14::bigint > 0)
		SELECT CAST(NULL AS bigint), c.t, ` + claimed + ` FROM c LEFT JOIN m ON true`
	t.mark = `WITH f AS MATERIALIZED (SELECT queue, id, generation FROM ` + fairTable + ` WHERE queue = $1 AND ready AND leased > ` + once + ` FOR UPDATE SKIP LOCKED)
		UPDATE ` + fairTable + ` AS m SET bound = true FROM f WHERE m.queue = f.queue AND m.id = f.id AND m.generation = f.generation`
	t.drop = `WITH f AS MATERIALIZED (SELECT queue, whole, key FROM ` + boundTable + `
			WHERE queue = $1 AND NOT whole AND used <= ` + once + ` ORDER BY used LIMIT $2 FOR UPDATE SKIP LOCKED)
		DELETE FROM ` + boundTable + ` AS u USING f WHERE u.queue = f.queue AND u.whole = f.whole AND u.key = f.key`
	t.bound(sqlconn.Postgres, now, once)
}

// boundSQLite sets the statements of boundTexts for SQLite. now and once are expressions for the
// time, as with forPostgres.
func (t *texts) boundSQLite(now, once string) {
	t.boundOf = `SELECT ` + held("$2", once) + `, ` + used("$2") + ` - ` + once
	t.boundOfAll = `SELECT ` + held("", once) + `, ` + used("") + ` - ` + once
	t.mark = `UPDATE ` + fairTable + ` SET bound = 1 WHERE queue = $1 AND leased > ` + once
	t.drop = `DELETE FROM ` + boundTable + ` WHERE (queue, whole, key) IN (SELECT queue, whole, key FROM ` + boundTable + `
		WHERE queue = $1 AND NOT whole AND used <= ` + once + ` ORDER BY used LIMIT $2)`
	t.bound(sqlconn.SQLite, now, once)
}

// bound sets the statements of boundTexts that both databases share.
func (t *texts) bound(d sqlconn.Dialect, now, once string) {
	later := "greatest"
	if d == sqlconn.SQLite {
		later = "max"
	}
	t.use = `INSERT INTO ` + boundTable + ` AS u (queue, whole, key, used) VALUES ($1, $2, $3, ` + now + ` + $4)
		ON CONFLICT (queue, whole, key) DO UPDATE SET used = ` + later + `(u.used, ` + now + `) + $4 WHERE $4 > 0`
	t.usedOf = `SELECT coalesce(max(used), 0) FROM ` + boundTable + ` WHERE queue = $1 AND whole = true AND used > ` + once
	t.listKeys = `SELECT a.key, sum(a.ready), sum(a.held), coalesce(min(a.due), 0), coalesce(max(a.used), 0) FROM (
			SELECT m.key, CASE WHEN m.leased <= c.t THEN 1 ELSE 0 END AS ready, CASE WHEN m.leased > c.t THEN 1 ELSE 0 END AS held,
				CASE WHEN m.leased <= c.t THEN m.due END AS due, CAST(NULL AS bigint) AS used
			FROM (SELECT ` + now + ` AS t) AS c JOIN ` + fairTable + ` AS m ON m.queue = $1 AND m.key >= $2 AND (m.due <= c.t OR m.leased > c.t)
			UNION ALL SELECT u.key, 0, 0, NULL, u.used FROM ` + boundTable + ` AS u WHERE u.queue = $1 AND u.whole = false AND u.key >= $2 AND u.used > ` + once + `) AS a
		GROUP BY a.key ORDER BY a.key LIMIT $3`
}
