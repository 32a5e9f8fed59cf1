package sqlbroker

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

// texts holds the SQL statements in the dialect of a database, for the queues with messages in one
// table. Statements without messages are the same for both tables.
//
// PostgreSQL runs a statement of a batch once, with an array for each column. It returns the
// numbers of the rows that had an effect, from 1 on. SQLite runs it once for each row. $1 to $4 of
// ack, release, renew, retry and dead are queue, id, generation and token.
type texts struct {
	table string // swarmiji_message, or fairTable for the messages of fair queues
	fair  bool

	addQueue string // $1 namespace, $2 name, $3 levels
	queue    string // $1 namespace, $2 name. It returns id and levels.

	// insert: queue, level, due, relative, id, generation, priority, expires, content type, meta,
	// body. due is a time, or with relative 1 a duration from now. Fair: key and weight follow.
	insert string
	// insertNew is insert for new ids. On PostgreSQL it fails if an id is stored.
	insertNew string
	// claim: $1 queue. PostgreSQL: $2 levels, $3 and $4 the cursor of each, $5 number, $6 lease, $7
	// token. It returns the time until the next is due, the time, and the columns of claimed.
	// SQLite: $2 level, $3 number, $4 lease, $5 token. It returns the columns of claimed.
	//
	// Fair: it claims from keys of one level, see ring. The messages become bound if the last
	// parameter says so. PostgreSQL: $2 keys, $3 and $4 the mark of each, $5 level, $6 lease, $7
	// token, $8 number of each, $9 rows, $10 their keys. SQLite: $2 level, $3 key, $4 and $5 its
	// mark, $6 number, $7 lease, $8 token.
	claim string
	// claimRows is claim for the rows that keys has returned. SQLite: $1 queue, $2 level, $3 the
	// rows as JSON, $4 lease, $5 token, $6 whether the messages become bound.
	claimRows string
	// keys returns the keys of the most urgent level that has free messages, see forFair. Fair
	// only.
	keys string
	boundTexts
	// promote: $1 queue, $2 number. It makes delayed messages ready that are due. Fair only.
	promote string
	// peek returns a row for each pair of a queue and a level that has a message: the number of the
	// pair, from 0 on, and the time until the first can be claimed. PostgreSQL: $1 queues, $2
	// levels, $3 the due time where each begins. SQLite: $1 the numbers queue * maxLevels + level,
	// as JSON, with the absolute value of the queue. It also returns null for a pair without a
	// message.
	peek string
	// clock returns the time.
	clock string
	// recover: $1 queue, $2 token, $3 largest number of messages to look at. Fair, on PostgreSQL:
	// $3 is the number for each key, $4 level, $5 keys. It returns the columns of claimed.
	recover string

	ack string
	// ackOne: $1 to $4 as of ack, not as arrays. It returns the id of the transaction, or no row.
	ackOne string
	// tokenOf: $1 queue, $2 id, $3 generation, $4 the id of a transaction, or "". It returns the
	// token or null, and 1 if the transaction is known to be rolled back, otherwise 0.
	tokenOf string
	release string // $5 delay, $6 what to subtract from the deliveries
	renew   string // $5 lease
	// retry: $5 and so on the columns of insert. retryOther inserts into the other table. On SQLite
	// they are the insert, which follows ack.
	retry, retryOther string
	// dead: $5 at, $6 reason, $7 stack, $8 attempts. SQLite runs it before ack.
	dead string

	// putDead: queue, at, reason, stack, attempts, id, generation, priority, expires, content type,
	// meta, body
	putDead   string
	lastDead  string // $1 queue. It returns the largest seq, or 0.
	readDead  string // $1 queue, $2 seq, $3 last seq, $4 number
	dropDead  string // $1 queue, $2 seq
	purgeDead string // $1 queue
	manyDead  string // $1 queue, $2 how many stay
	oldDead   string // $1 queue, $2 age
	countDead string // $1 queue, $2 number: adds to the dropped letters
	deadByID  string // $1 queue, $2 id

	// stats: $1 queue. It returns ready, held, delayed, dead, dropped, and the age of the oldest
	// letter. Last comes the time when the oldest ready message was due, 0 without one.
	stats string
	purge string // $1 queue, $2 number

	queues string // $1 namespace. It returns the names.
	// waiting and delayed: $1 queue, $2 level, $3 and $4 the order and seq of the message before,
	// $5 number. held: $1 queue, $2 and $3 id and generation of the message before, $4 number. They
	// return the columns of claimed, the end of the lease, and the order within the level.
	waiting, delayed, held string

	find   string // $1 queue, $2 id. It returns now, due and the columns of claimed.
	remove string // $1 queue, $2 id
	// update: $1 queue, $2 id, $3 level, $4 due, $5 relative, $6 generation, $7 priority, $8
	// expires, $9 content type, $10 meta, $11 body. Fair: $12 key, $13 weight.
	update string

	addNotes  string // $1 queue, $2 id, $3 generation
	notes     string // $1 queue, $2 id, $3 generation. It locks the row.
	saveNotes string // $1 queue, $2 id, $3 generation, $4 notes
	oldNotes  string // $1 age
	oldNodes  string // $1 age
	here      string // $1 namespace, $2 node
	beat      string // $1 namespace, $2 node
	leave     string // $1 namespace, $2 node
	look      string // $1 namespace, $2 node. It returns beat, gone and the time since the last beat.
}

// claimed lists the columns of a message that a delivery needs.
const claimed = `m.level, m.due, m.seq, m.id, m.generation, m.deliveries, m.priority, m.expires, m.content_type, m.meta, m.body`

// The columns of a batch, with their types.
var (
	keyColumns   = []string{"queue bigint", "id text", "generation bigint", "token bigint"}
	plainColumns = []string{
		"to_queue bigint", "level bigint", "due bigint", "relative bigint", "to_id text", "to_generation bigint",
		"priority bigint", "expires bigint", "content_type text", "meta bytea", "body bytea",
	}
	deadColumns = []string{"at bigint", "reason bytea", "stack bytea", "attempts bigint"}
)

// The tables of messages.
const (
	plainTable = "swarmiji_message"
	fairTable  = "swarmiji_fair_message"
)

// insertColumns returns the columns of texts.insert.
func insertColumns(fair bool) []string {
	if fair {
		return append(slices.Clip(plainColumns), "key text", "weight bigint")
	}
	return plainColumns
}

// insertInto returns the beginning of an insertion of messages. The values have the order of
// insertColumns without relative, and on the fair table "ready" is the last one.
func insertInto(fair bool) string {
	if fair {
		return `INSERT INTO ` + fairTable + ` (queue, level, due, id, generation, priority, expires, content_type, meta, body, key, weight, ready) `
	}
	return `INSERT INTO ` + plainTable + ` (queue, level, due, id, generation, priority, expires, content_type, meta, body) `
}

// unnest returns a table expression k of these columns and the row's number n, for PostgreSQL. A
// column is a name, a space and a type; its values are the array in the parameter with its number.
func unnest(columns ...string) string {
	args, names := make([]string, len(columns)), make([]string, len(columns))
	for i, c := range columns {
		name, kind, _ := strings.Cut(c, " ")
		args[i], names[i] = fmt.Sprintf("$%d::%s[]", i+1, kind), name
	}
	return "unnest(" + strings.Join(args, ", ") + ") WITH ORDINALITY AS k(" + strings.Join(names, ", ") + ", n)"
}

// newTexts returns the statements in the dialect d for the messages of plain or of fair queues, as
// the fields of texts describe them. It calls no database.
func newTexts(d sqlconn.Dialect, fair bool) *texts {
	t := &texts{table: plainTable}
	if fair {
		t.table, t.fair = fairTable, true
	}
	now := d.Now()
	once := "(SELECT " + now + ")" // read once, so that an index is used
	const waiting = `leased <= `
	newest := `SELECT max(generation) FROM ` + t.table + ` WHERE queue = $1 AND id = $2 AND ` + waiting + once
	later := "greatest"
	if d == sqlconn.SQLite {
		later = "max"
	}
	samePlace, changed := "", "" // of a message that is updated
	if fair {
		samePlace, changed = ` AND key = $12`, `, key = $12, weight = $13, bound = false, ready = $4 + $5 * `+once+` <= `+once
	}
	*t = texts{
		table: t.table, fair: fair,
		addQueue: `INSERT INTO swarmiji_queue (namespace, name, levels) VALUES ($1, $2, $3) ON CONFLICT (namespace, name) DO NOTHING`,
		queue:    `SELECT id, levels FROM swarmiji_queue WHERE namespace = $1 AND name = $2`,
		clock:    `SELECT ` + now,
		ackOne:   `DELETE FROM ` + t.table + ofRow + ` RETURNING ''`,
		tokenOf:  `SELECT (SELECT token FROM ` + t.table + ` WHERE queue = $1 AND id = $2 AND generation = $3), 0 WHERE $4 = ''`,
		recover: `SELECT ` + claimed + ` FROM ` + t.table + ` AS m WHERE (m.queue, m.id, m.generation) IN (
				SELECT r.queue, r.id, r.generation FROM (SELECT queue, id, generation, token FROM ` + t.table + `
					WHERE queue = $1 AND due <= ` + once + ` ORDER BY level, due, seq LIMIT $3) AS r WHERE r.token = $2)
			AND m.leased > ` + once,
		lastDead:  `SELECT coalesce(max(seq), 0) FROM swarmiji_dead WHERE queue = $1`,
		readDead:  letters + ` AND m.seq > $2 AND m.seq <= $3 ORDER BY m.seq LIMIT $4`,
		deadByID:  letters + ` AND m.id = $2 ORDER BY m.seq`,
		dropDead:  `DELETE FROM swarmiji_dead WHERE queue = $1 AND seq = $2`,
		purgeDead: `DELETE FROM swarmiji_dead WHERE queue = $1`,
		manyDead: `DELETE FROM swarmiji_dead WHERE queue = $1 AND seq <= (
			SELECT seq FROM swarmiji_dead WHERE queue = $1 ORDER BY seq DESC LIMIT 1 OFFSET $2)`,
		oldDead:   `DELETE FROM swarmiji_dead WHERE queue = $1 AND at <= ` + once + ` - $2`,
		countDead: `UPDATE swarmiji_queue SET dropped = dropped + $2 WHERE id = $1`,
		stats: `SELECT coalesce(sum(CASE WHEN m.leased <= c.t AND m.due <= c.t THEN 1 ELSE 0 END), 0),
				coalesce(sum(CASE WHEN m.leased > c.t THEN 1 ELSE 0 END), 0),
				coalesce(sum(CASE WHEN m.leased <= c.t AND m.due > c.t THEN 1 ELSE 0 END), 0),
				(SELECT count(*) FROM swarmiji_dead WHERE queue = $1), (SELECT dropped FROM swarmiji_queue WHERE id = $1),
				` + once + ` - coalesce((SELECT min(at) FROM swarmiji_dead WHERE queue = $1), ` + once + `),
				coalesce(min(CASE WHEN m.leased <= c.t AND m.due <= c.t THEN m.due END), 0)
			FROM (SELECT ` + now + ` AS t) AS c JOIN ` + t.table + ` AS m ON m.queue = $1`,
		queues: `SELECT name FROM swarmiji_queue WHERE namespace = $1 ORDER BY name`,
		find: `SELECT ` + once + `, ` + claimed + ` FROM ` + t.table + ` AS m WHERE m.queue = $1 AND m.id = $2 AND m.` + waiting + once + `
			ORDER BY m.generation DESC LIMIT 1`,
		remove: `DELETE FROM ` + t.table + ` WHERE queue = $1 AND id = $2 AND generation = (` + newest + `) AND ` + waiting + once,
		update: `UPDATE ` + t.table + ` SET level = $3, due = CASE
				WHEN due <= ` + once + ` AND level = $3 AND $4 + $5 * ` + once + ` <= ` + once + ` AND generation = $6` + samePlace + ` THEN due
				ELSE ` + later + `($4 + $5 * ` + once + `, ` + once + `) END,
			generation = $6, priority = $7, expires = $8, content_type = $9, meta = $10, body = $11, leased = 0, token = 0, deliveries = 0` + changed + `
			WHERE queue = $1 AND id = $2 AND generation = (` + newest + `) AND ` + waiting + once,

		addNotes: `INSERT INTO swarmiji_start (queue, id, generation, notes, noted) VALUES ($1, $2, $3, '[]', ` + now + `)
			ON CONFLICT (queue, id, generation) DO NOTHING`,
		notes:     `SELECT notes FROM swarmiji_start WHERE queue = $1 AND id = $2 AND generation = $3`,
		saveNotes: `UPDATE swarmiji_start SET notes = $4, noted = ` + now + ` WHERE queue = $1 AND id = $2 AND generation = $3`,
		oldNotes:  `DELETE FROM swarmiji_start WHERE noted < ` + once + ` - $1`,
		oldNodes:  `DELETE FROM swarmiji_node WHERE seen < ` + once + ` - $1`,
		here: `INSERT INTO swarmiji_node AS n (namespace, node, beat, gone, seen) VALUES ($1, $2, 1, 0, ` + now + `)
			ON CONFLICT (namespace, node) DO UPDATE SET beat = n.beat + 1, seen = ` + now + ` WHERE n.gone = 0`,
		beat:  `UPDATE swarmiji_node SET beat = beat + 1, seen = ` + now + ` WHERE namespace = $1 AND node = $2 AND gone = 0`,
		leave: `UPDATE swarmiji_node SET gone = 1, seen = ` + now + ` WHERE namespace = $1 AND node = $2`,
		look:  `SELECT beat, gone, ` + now + ` - seen FROM swarmiji_node WHERE namespace = $1 AND node = $2`,
	}
	order := "m.due" // of the messages of a level, as its index has it
	if d == sqlconn.Postgres {
		t.forPostgres(now, once)
	} else {
		order = "max(m.due, m.leased)"
		t.forSQLite(now, once)
	}
	if fair {
		t.forFair(d, now, once)
	}
	listed := `SELECT ` + claimed + `, m.leased, ` + order + ` FROM ` + t.table + ` AS m WHERE m.queue = $1 AND `
	inLevel := ` AND m.level = $2 AND m.leased <= ` + once + ` AND (` + order + `, m.seq) > ($3, $4) ORDER BY ` + order + `, m.seq LIMIT $5`
	t.waiting = listed + order + ` <= ` + once + inLevel
	t.delayed = listed + order + ` > ` + once + inLevel
	t.held = listed + `m.leased > ` + once + ` AND (m.id, m.generation) > ($2, $3) ORDER BY m.id, m.generation LIMIT $4`
	return t
}

// letters selects the dead letters of a queue, with the columns that readLetters scans.
const letters = `SELECT m.seq, m.at, m.reason, m.stack, m.attempts, m.id, m.generation, m.priority, m.expires, m.content_type, m.meta, m.body
	FROM swarmiji_dead AS m WHERE m.queue = $1`

const (
	ofRow      = ` WHERE queue = $1 AND id = $2 AND generation = $3 AND token = $4`
	insertDead = `INSERT INTO swarmiji_dead (queue, at, reason, stack, attempts, id, generation, priority, expires, content_type, meta, body) `
	unlessSame = ` ON CONFLICT (queue, id, generation) DO NOTHING`
	ofKey      = `m.queue = k.queue AND m.id = k.id AND m.generation = k.generation AND m.token = k.token`
)

// forPostgres sets the statements of t that are particular to PostgreSQL. now and once are
// expressions for the time: the current one, and one that is read once.
func (t *texts) forPostgres(now, once string) {
	key := unnest(keyColumns...)
	// The rows of a batch get their seq in the order of the batch.
	clock := ` CROSS JOIN (SELECT ` + now + ` AS t) AS c ORDER BY k.n`
	selected := func(fair bool) string {
		text := insertInto(fair) + `SELECT k.to_queue, k.level, greatest(k.due + k.relative * c.t, c.t), k.to_id, k.to_generation,
			k.priority, k.expires, k.content_type, k.meta, k.body`
		if fair {
			text += `, k.key, k.weight, k.due + k.relative * c.t <= c.t`
		}
		return text + ` FROM `
	}
	t.insertNew = selected(t.fair) + unnest(insertColumns(t.fair)...) + clock
	t.insert = t.insertNew + unlessSame
	// The update compares the queue with that of f. With $1 the server may choose to read the whole
	// queue for each row.
	t.claim = t.claimText(now, `SELECT x.queue, x.id, x.generation FROM unnest($2::bigint[], $3::bigint[], $4::bigint[]) AS l(level, due, seq)
			CROSS JOIN LATERAL (SELECT m.queue, m.id, m.generation FROM `+t.table+` AS m
				WHERE m.queue = $1 AND m.level = l.level AND m.due <= (SELECT t FROM c) AND (m.due, m.seq) > (l.due, l.seq)
					AND m.leased <= (SELECT t FROM c)
				ORDER BY m.due, m.seq LIMIT $5 FOR UPDATE SKIP LOCKED) AS x
			LIMIT $5`,
		`m.queue = f.queue AND m.id = f.id AND m.generation = f.generation`,
		`(SELECT min(d.due) FROM unnest($2::bigint[]) AS l(level) CROSS JOIN LATERAL (SELECT m.due FROM `+t.table+` AS m
			WHERE m.queue = $1 AND m.level = l.level AND m.due > (SELECT t FROM c) ORDER BY m.due LIMIT 1) AS d) - c.t`)
	of := `FROM ` + t.table + ` AS m WHERE m.queue = k.queue AND m.level = k.level AND `
	t.peek = `SELECT k.n - 1, x.next FROM ` + unnest("queue bigint", "level bigint", "due bigint") + ` CROSS JOIN (SELECT ` + now + ` AS t) AS c
		CROSS JOIN LATERAL (SELECT coalesce(
			(SELECT 0 ` + of + `m.due >= k.due AND m.due <= c.t AND m.leased <= c.t ORDER BY m.due, m.seq LIMIT 1),
			(SELECT m.due - c.t ` + of + `m.due > c.t ORDER BY m.due LIMIT 1)) AS next) AS x
		WHERE x.next IS NOT NULL`
	t.ackOne = `DELETE FROM ` + t.table + ofRow + ` RETURNING CAST(pg_current_xact_id() AS text)`
	// A transaction from the xmax on is open, or one of the future after a failover, which
	// pg_xact_status refuses. It cannot be open if the row is gone.
	t.tokenOf = `SELECT m.token, CASE WHEN x.id IS NULL THEN 0 WHEN x.id >= pg_snapshot_xmax(pg_current_snapshot()) THEN CAST(m.token IS NULL AS integer)
			WHEN pg_xact_status(x.id) = 'aborted' THEN 1 ELSE 0 END
		FROM (SELECT CAST(nullif(CAST($4 AS text), '') AS xid8) AS id) AS x
		LEFT JOIN ` + t.table + ` AS m ON m.queue = $1 AND m.id = $2 AND m.generation = $3`
	t.ack = `DELETE FROM ` + t.table + ` AS m USING ` + key + ` WHERE ` + ofKey + ` RETURNING k.n`
	t.release = `UPDATE ` + t.table + ` AS m SET leased = 0, token = 0, deliveries = m.deliveries - k.back,
			due = CASE WHEN k.after > 0 THEN ` + now + ` + k.after ELSE m.due END` + t.setReady("k.after <= 0") + `
		FROM ` + unnest(releaseColumns()...) + ` WHERE ` + ofKey + ` RETURNING k.n`
	// A row that a transaction of AckTx has locked is left out. The others would wait for its end.
	t.renew = `WITH k AS MATERIALIZED (SELECT m.queue, m.id, m.generation, k.lease, k.n FROM ` + unnest(renewColumns()...) + `
			JOIN ` + t.table + ` AS m ON ` + ofKey + ` FOR UPDATE OF m SKIP LOCKED)
		UPDATE ` + t.table + ` AS m SET leased = ` + now + ` + k.lease` + strings.NewReplacer("bound OR", "m.bound OR", "$1", "m.queue").Replace(t.setBound()) + ` FROM k
		WHERE m.queue = k.queue AND m.id = k.id AND m.generation = k.generation RETURNING k.n`
	retry := func(into bool) string {
		return `WITH gone AS (DELETE FROM ` + t.table + ` AS m USING ` + unnest(retryColumns(into)...) + ` WHERE ` + ofKey + ` RETURNING k.*),
		next AS (` + selected(into) + `gone AS k` + clock + unlessSame + `)
		SELECT n FROM gone`
	}
	t.retry, t.retryOther = retry(t.fair), retry(!t.fair)
	t.dead = `WITH gone AS (DELETE FROM ` + t.table + ` AS m USING ` + unnest(deadLetterColumns()...) + ` WHERE ` + ofKey + `
			RETURNING k.n, k.at, k.reason, k.stack, k.attempts, m.*),
		letter AS (` + insertDead + `SELECT g.queue, g.at, g.reason, g.stack, g.attempts, g.id, g.generation, g.priority, g.expires,
			g.content_type, g.meta, g.body FROM gone AS g ORDER BY g.n)
		SELECT n FROM gone`
	t.putDead = insertDead + `VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`
	t.purge = `WITH f AS MATERIALIZED (SELECT queue, id, generation FROM ` + t.table + `
			WHERE queue = $1 AND due <= ` + once + ` AND leased <= ` + once + ` LIMIT $2 FOR UPDATE SKIP LOCKED)
		DELETE FROM ` + t.table + ` AS m USING f WHERE m.queue = f.queue AND m.id = f.id AND m.generation = f.generation`
	t.notes += " FOR UPDATE"
}

// limit returns a LIMIT for a frequent statement of SQLite. Without the CAST SQLite would plan the
// statement again whenever the number is another one.
func limit(number string) string { return `LIMIT CAST(` + number + ` AS integer)` }

// forSQLite sets the statements of t that are particular to SQLite. now and once are expressions
// for the time, as with forPostgres. A message can be claimed from max(due, leased) on, which has
// an index.
func (t *texts) forSQLite(now, once string) {
	const free = `max(due, leased)`
	insert := func(fair bool) string {
		values := `VALUES ($1, $2, max($3 + $4 * ` + now + `, ` + now + `), $5, $6, $7, $8, $9, $10, $11`
		if fair {
			values += `, $12, $13, $3 + $4 * ` + now + ` <= ` + now
		}
		return insertInto(fair) + values + `)` + unlessSame
	}
	t.insert = insert(t.fair)
	t.insertNew = t.insert
	t.retry, t.retryOther = insert(t.fair), insert(!t.fair)
	t.claim = `UPDATE ` + t.table + ` AS m SET leased = ` + now + ` + $4, token = $5, deliveries = deliveries + 1
		WHERE seq IN (SELECT seq FROM ` + t.table + ` WHERE queue = $1 AND level = $2 AND ` + free + ` <= ` + once + `
			ORDER BY ` + free + `, seq ` + limit(`$3`) + `)
		RETURNING ` + strings.ReplaceAll(claimed, "m.", "")
	levels := strconv.Itoa(maxLevels)
	t.peek = `SELECT k.key, (SELECT ` + free + ` - ` + once + ` FROM ` + t.table + `
			WHERE queue = k.value / ` + levels + ` AND level = k.value % ` + levels + ` ORDER BY ` + free + `, seq LIMIT 1)
		FROM json_each($1) AS k`
	t.ack = `DELETE FROM ` + t.table + ofRow
	t.release = `UPDATE ` + t.table + ` SET leased = 0, token = 0, deliveries = deliveries - $6,
		due = CASE WHEN $5 > 0 THEN ` + now + ` + $5 ELSE due END` + t.setReady("$5 <= 0") + ofRow
	t.renew = `UPDATE ` + t.table + ` SET leased = ` + now + ` + $5` + t.setBound() + ofRow
	t.dead = insertDead + `SELECT queue, $5, $6, $7, $8, id, generation, priority, expires, content_type, meta, body
		FROM ` + t.table + ofRow
	t.putDead = insertDead + `VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`
	t.purge = `DELETE FROM ` + t.table + ` WHERE seq IN (SELECT seq FROM ` + t.table + `
		WHERE queue = $1 AND due <= ` + once + ` AND leased <= ` + once + ` LIMIT $2)`
}

// claimText returns PostgreSQL's texts.claim. found is a query that locks free rows f. The message
// m of such a row is the one for which same holds. next is the time until the next message is due.
func (t *texts) claimText(now, found, same, next string) string {
	return `WITH c AS MATERIALIZED (SELECT ` + now + ` AS t, set_config('synchronous_commit', 'off', true)), f AS MATERIALIZED (
			` + found + `
		), m AS (
			UPDATE ` + t.table + ` AS m SET leased = (SELECT t FROM c) + $6, token = $7, deliveries = m.deliveries + 1
			FROM f WHERE ` + same + ` RETURNING ` + claimed + `
		)
		SELECT ` + next + `, c.t, ` + claimed + `
		FROM c LEFT JOIN m ON true`
}

// setReady returns assignments for a released message in the fair table, and "" for the other one.
func (t *texts) setReady(to string) string {
	if !t.fair {
		return ""
	}
	return `, bound = false, ready = ` + to
}

// setBound returns an assignment for a held message in the fair table, and "" for the other one. It
// makes the message bound if consumers have used bounds since the claim.
func (t *texts) setBound() string {
	if !t.fair {
		return ""
	}
	return `, bound = bound OR EXISTS (SELECT 1 FROM ` + boundTable + ` WHERE queue = $1 AND whole = true)`
}
