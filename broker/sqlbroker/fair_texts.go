package sqlbroker

import (
	"strconv"
	"strings"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

// afterKeys returns a text that is greater than each key. A key has at most 255 bytes.
func afterKeys() string { return strings.Repeat("\U0010FFFF", 64) }

// freeRow is the condition for a message m of a fair queue that can be claimed now. The index
// swarmiji_fair_message_ring has the rows with "ready".
const freeRow = `m.queue = $1 AND m.ready AND m.leased <= `

// forFair replaces the statements of t that differ for fair queues. now and once are expressions
// for the time, as with forPostgres.
//
// A delayed message is not "ready" until promote has run. So the keys that have only delayed
// messages are not in the ring. A held message stays in it: a claim writes no index entry.
func (t *texts) forFair(d sqlconn.Dialect, now, once string) {
	t.addQueue = `INSERT INTO swarmiji_queue (id, namespace, name, levels) OVERRIDING SYSTEM VALUE
		SELECT coalesce(min(id), 0) - 1, $1, $2, $3 FROM swarmiji_queue WHERE id < 0 ON CONFLICT DO NOTHING`
	due := ` FROM ` + fairTable + ` WHERE queue = $1 AND NOT ready AND due <= ` + once + ` ORDER BY due, seq LIMIT $2`
	if d == sqlconn.Postgres {
		t.promote = `WITH f AS MATERIALIZED (SELECT queue, id, generation` + due + ` FOR UPDATE SKIP LOCKED)
			UPDATE ` + fairTable + ` AS m SET ready = true FROM f WHERE m.queue = f.queue AND m.id = f.id AND m.generation = f.generation`
		t.fairPostgres(now, once)
		t.boundPostgres(now, once)
		return
	}
	t.addQueue = strings.Replace(t.addQueue, " OVERRIDING SYSTEM VALUE", "", 1)
	t.promote = `UPDATE ` + fairTable + ` SET ready = 1 WHERE seq IN (SELECT seq` + due + `)`
	t.fairSQLite(now, once)
	t.boundSQLite(now, once)
}

// fairPostgres sets the statements of forFair that are particular to PostgreSQL.
//
// keys: $1 queue, $2 levels, $3 and $4 for each the first key and the key behind the last one, $5
// number. A level may have several such parts of the ring. It returns the columns of ofQueue and
// ofKeys. A recursive step finds the next key by one descent into the index.
//
// A row is the place in the table, which claim finds without an index. Another message of the key
// may be there meanwhile, but only if the first one was changed.
func (t *texts) fairPostgres(now, once string) {
	free := freeRow + `(SELECT t FROM c)`
	first := `SELECT m.key, m.weight, m.ctid AS row FROM ` + fairTable + ` AS m WHERE ` + free + ` AND m.level = l.level AND m.key < l.high AND m.key `
	inOrder := ` ORDER BY m.key, m.due, m.seq LIMIT 1`
	ring := ` FROM unnest($2::bigint[], $3::text[], $4::text[]) AS l(level, low, high)
			CROSS JOIN LATERAL (
				WITH RECURSIVE r(key, weight, row) AS ((` + first + `>= l.low` + inOrder + `)
					UNION ALL SELECT x.key, x.weight, x.row FROM r CROSS JOIN LATERAL (` + first + `> r.key` + inOrder + `) AS x)
				SELECT key, weight, row FROM r) AS r`
	t.keys = `WITH c AS MATERIALIZED (SELECT ` + now + ` AS t), s AS MATERIALIZED (
			SELECT l.level FROM unnest($2::bigint[]) WITH ORDINALITY AS l(level, n)
			WHERE (SELECT true FROM ` + fairTable + ` AS m WHERE ` + free + ` AND m.level = l.level LIMIT 1) ORDER BY l.n LIMIT 1)
		SELECT n.*, k.* FROM (` + ofQueue(`(SELECT t FROM c)`, "") + `) AS n
		LEFT JOIN (SELECT l.level, r.key, r.weight, CAST(r.row AS text)` + ofKeys("", "", "") + ring + ` WHERE l.level = (SELECT level FROM s) LIMIT $5) AS k ON true`
	t.boundKeys = `WITH c AS MATERIALIZED (SELECT ` + now + ` AS t)
		SELECT n.*, k.* FROM (` + ofQueue(`(SELECT t FROM c)`, "$6") + `) AS n
		LEFT JOIN (SELECT l.level, r.key, r.weight, CAST('' AS text)` + ofKeys("$6", "r.key", `(SELECT t FROM c)`) + ring + ` LIMIT $5) AS k ON true`
	t.recover = `SELECT ` + claimed + ` FROM unnest($5::text[]) AS l(key) CROSS JOIN LATERAL (
			SELECT * FROM ` + fairTable + ` AS m WHERE m.queue = $1 AND m.ready AND m.level = $4 AND m.key = l.key
			ORDER BY m.due, m.seq LIMIT $3) AS m
		WHERE m.token = $2 AND m.leased > ` + once
	claimable := free + ` AND m.level = $5 AND m.key = l.key `
	t.claim = t.claimText(now, `SELECT x.row FROM unnest($2::text[], $3::bigint[], $4::bigint[], $8::bigint[]) AS l(key, due, seq, n)
			CROSS JOIN LATERAL (SELECT m.ctid AS row FROM `+fairTable+` AS m WHERE `+claimable+` AND (m.due, m.seq) > (l.due, l.seq)
				ORDER BY m.due, m.seq LIMIT l.n FOR UPDATE SKIP LOCKED) AS x
			UNION ALL SELECT x.row FROM unnest($9::tid[], $10::text[]) AS l(row, key)
			CROSS JOIN LATERAL (SELECT m.ctid AS row FROM `+fairTable+` AS m WHERE m.ctid = l.row AND `+claimable+` FOR UPDATE SKIP LOCKED) AS x`,
		`m.ctid = f.row`, `CAST(NULL AS bigint)`)
	t.claim = strings.Replace(t.claim, ", token = $7", ", bound = m.bound OR $11, token = $7", 1)
	t.peek = `SELECT k.n - 1, x.next FROM ` + unnest("queue bigint", "level bigint", "due bigint") + ` CROSS JOIN (SELECT ` + now + ` AS t) AS c
		CROSS JOIN LATERAL (SELECT coalesce(
			(SELECT 0 FROM ` + fairTable + ` AS m WHERE m.queue = k.queue AND m.level = k.level AND m.ready AND m.leased <= c.t
				ORDER BY m.key, m.due, m.seq LIMIT 1),
			(SELECT m.due - c.t FROM ` + fairTable + ` AS m WHERE m.queue = k.queue AND NOT m.ready ORDER BY m.due, m.seq LIMIT 1)) AS next) AS x
		WHERE x.next IS NOT NULL`
}

// fairSQLite sets the statements of forFair that are particular to SQLite.
//
// keys: $1 queue, $2 level, $3 the first key, $4 the key behind the last one, $5 number. It returns
// the columns of ofQueue and ofKeys.
func (t *texts) fairSQLite(now, once string) {
	of := ` FROM ` + fairTable + ` AS m WHERE ` + freeRow + once + ` AND m.level = $2 `
	first := func(after string) string {
		return `(SELECT m.seq` + of + `AND m.key ` + after + ` AND m.key < $4 ORDER BY m.key, m.due, m.seq LIMIT 1)`
	}
	keys := func(max, key string) string {
		return `WITH RECURSIVE r(seq) AS (SELECT ` + first(`>= $3`) + ` UNION ALL
			SELECT ` + first(`> (SELECT f.key FROM `+fairTable+` AS f WHERE f.seq = r.seq)`) + ` FROM r WHERE r.seq IS NOT NULL ` + limit(`$5`) + `)
		SELECT n.*, k.* FROM (` + ofQueue(once, max) + `) AS n
		LEFT JOIN (SELECT f.level, f.key, f.weight, CAST(f.seq AS text)` + ofKeys(max, key, once) + `
			FROM r JOIN ` + fairTable + ` AS f ON f.seq = r.seq) AS k ON true ORDER BY k.key`
	}
	t.keys, t.boundKeys = keys("", ""), keys("$6", "f.key")
	t.recover = `SELECT ` + claimed + ` FROM (SELECT * FROM ` + fairTable + ` AS m WHERE m.queue = $1 AND m.ready
			ORDER BY m.level, m.key, m.due, m.seq LIMIT $3) AS m WHERE m.token = $2 AND m.leased > ` + once
	claim := func(lease, token, bound, rows string) string {
		return `UPDATE ` + fairTable + ` AS m SET leased = ` + now + ` + ` + lease + `, token = ` + token + `, bound = bound OR ` + bound + `, deliveries = deliveries + 1
			WHERE m.seq IN (` + rows + ` RETURNING ` + strings.ReplaceAll(claimed, "m.", "")
	}
	t.claim = claim(`$7`, `$8`, `$9`, `SELECT m.seq`+of+`AND m.key = $3 AND (m.due, m.seq) > ($4, $5) ORDER BY m.due, m.seq `+limit(`$6`)+`)`)
	t.claimRows = claim(`$4`, `$5`, `$6`, `SELECT value FROM json_each($3)) AND `+strings.ReplaceAll(freeRow, "m.", "+m.")+once+` AND +m.level = $2`)
	levels := strconv.Itoa(maxLevels)
	free := strings.Replace(freeRow, "$1", "k.value / -"+levels, 1) + once
	t.peek = `SELECT k.key, coalesce(
			(SELECT 0 FROM ` + fairTable + ` AS m WHERE ` + free + ` AND m.level = k.value % ` + levels + ` ORDER BY m.key, m.due, m.seq LIMIT 1),
			(SELECT min(due) - ` + once + ` FROM ` + fairTable + ` WHERE queue = k.value / -` + levels + ` AND NOT ready))
		FROM json_each($1) AS k`
}
