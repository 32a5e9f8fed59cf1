package sqloutbox

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/outbox"
)

// texts holds the SQL statements in the dialect of a database. $1 is always the namespace.
type texts struct {
	dialect sqlconn.Dialect

	now   string // the time
	bytes string // the type of bytes

	addBuckets  string // adds all buckets
	buckets     string // returns bucket, owner and until of all buckets, and locks them
	here        string // $2 relay, $3 lease
	oldRelays   string // removes relays whose time has passed
	relays      string // returns the names of the relays in order
	own         string // $2 buckets, $3 owner, $4 end of the lease
	leave       string // $2 relay
	removeRelay string // $2 relay

	// read and readMany: $2 buckets. They return the columns of message, for rows of one page. The
	// second one has more rows that failed before.
	read, readMany string

	// The parameters of these three are arrays on PostgreSQL. There dead also deletes the rows.
	sent   string // $2 seq, $3 id; deletes rows
	failed string // $2 seq, $3 id, $4 wait, $5 reason
	dead   string // $2 seq, $3 id, $4 reason

	stats   string // returns waiting, age of the oldest, failing, dead, relays
	reason  string // returns the reason of the oldest failing message
	letters string // $2 number
	drop    string // $2 id

	deadRows string // $2 id; returns the seq of its dead messages, and locks them
	back     string // $2 seq
	revived  string // $2 seq
}

const (
	// bucketRows limits the messages of one bucket in a page, those that have failed and the others.
	// pageRows limits those of a page that have not failed, and pageFailed those that have. If the
	// latter can be sent, their limit is pageRows too.
	bucketRows = "16"
	pageRows   = "256"
	pageFailed = "32"
	// pageBytes limits the bodies of a page, unless the first one is larger.
	pageBytes = "4194304"

	// message lists the columns that a relay needs.
	message = `o.seq, o.order_key, o.queue, CASE WHEN o.from_now = 1 THEN 0 ELSE o.at END,
		CASE WHEN o.from_now = 1 THEN o.at - p.clock ELSE 0 END, o.id, o.generation, o.priority, o.expires, o.content_type, o.meta, o.body, o.failures`
	// ready is the condition of a message that has not failed and that no failed message stops. SQLite
	// would read all failed messages of the bucket for each message.
	ready = `r.namespace = $1 AND r.retry = 0 AND (r.order_key = '' OR NOT EXISTS (SELECT 1 FROM swarmiji_outbox AS s` + byKey + `
		WHERE s.namespace = $1 AND s.bucket = r.bucket AND s.order_key = r.order_key AND s.retry > 0 AND s.order_key <> ''))`
	byKey = ` INDEXED BY swarmiji_outbox_stopped`
	// content lists the columns that a message keeps when it becomes dead and comes back.
	content = `namespace, bucket, order_key, queue, at, from_now, id, generation, priority, expires, content_type, meta, body`
)

// newTexts returns the statements for a dialect.
func newTexts(d sqlconn.Dialect) *texts {
	now := d.Now()
	once := "(SELECT " + now + ")"
	in := "IN (SELECT value FROM json_each($2))"
	if d == sqlconn.Postgres {
		in = "= ANY($2::bigint[])"
	}
	t := &texts{
		dialect: d, now: now, bytes: "blob",
		addBuckets: `WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ` + strconv.Itoa(outbox.Buckets-1) + `)
			INSERT INTO swarmiji_outbox_bucket (namespace, bucket, owner, until) SELECT CAST($1 AS text), i, '', 0 FROM n WHERE true
			ON CONFLICT DO NOTHING`,
		buckets: `SELECT bucket, owner, until FROM swarmiji_outbox_bucket WHERE namespace = $1 ORDER BY bucket`,
		here: `INSERT INTO swarmiji_outbox_relay (namespace, relay, until) VALUES ($1, $2, ` + now + ` + $3)
			ON CONFLICT (namespace, relay) DO UPDATE SET until = excluded.until`,
		oldRelays:   `DELETE FROM swarmiji_outbox_relay WHERE namespace = $1 AND until <= ` + once,
		relays:      `SELECT relay FROM swarmiji_outbox_relay WHERE namespace = $1 ORDER BY relay`,
		own:         `UPDATE swarmiji_outbox_bucket SET owner = $3, until = $4 WHERE namespace = $1 AND bucket ` + in,
		leave:       `UPDATE swarmiji_outbox_bucket SET owner = '', until = 0 WHERE namespace = $1 AND owner = $2`,
		removeRelay: `DELETE FROM swarmiji_outbox_relay WHERE namespace = $1 AND relay = $2`,
		failed: `UPDATE swarmiji_outbox SET failures = failures + 1, retry = ` + now + ` + $4, reason = $5
			WHERE namespace = $1 AND seq = $2 AND id = $3`,
		dead: `INSERT INTO swarmiji_outbox_dead (seq, died, reason, stored, ` + content + `)
			SELECT seq, ` + now + `, $4, stored, ` + content + ` FROM swarmiji_outbox WHERE namespace = $1 AND seq = $2 AND id = $3`,
		sent: `DELETE FROM swarmiji_outbox WHERE namespace = $1 AND seq = $2 AND id = $3`,
		stats: `SELECT count(*), coalesce(` + now + ` - min(stored), 0), count(CASE WHEN retry > 0 THEN 1 END),
			(SELECT count(*) FROM swarmiji_outbox_dead WHERE namespace = $1),
			(SELECT count(*) FROM swarmiji_outbox_relay WHERE namespace = $1 AND until > ` + once + `)
			FROM swarmiji_outbox WHERE namespace = $1`,
		reason: `SELECT reason FROM swarmiji_outbox WHERE namespace = $1 AND retry > 0 ORDER BY seq LIMIT 1`,
		letters: `SELECT id, generation, queue, order_key, length(body), died, reason FROM swarmiji_outbox_dead
			WHERE namespace = $1 ORDER BY seq LIMIT $2`,
		back: `INSERT INTO swarmiji_outbox (stored, ` + content + `)
			SELECT ` + now + `, ` + content + ` FROM swarmiji_outbox_dead WHERE namespace = $1 AND seq = $2
			ON CONFLICT DO NOTHING`,
		revived:  `DELETE FROM swarmiji_outbox_dead WHERE namespace = $1 AND seq = $2`,
		deadRows: `SELECT seq FROM swarmiji_outbox_dead WHERE namespace = $1 AND id = $2 ORDER BY seq`,
		drop:     `DELETE FROM swarmiji_outbox_dead WHERE namespace = $1 AND id = $2`,
	}
	page := func(fresh, failed, limit string) string {
		return `WITH page AS (SELECT x.seq, sum(x.size) OVER (ORDER BY x.seq) - x.size AS before, ` + once + ` AS clock FROM (
				SELECT * FROM (` + fresh + ` ORDER BY i.seq LIMIT ` + pageRows + `) AS f
				UNION ALL
				SELECT * FROM (` + failed + ` ORDER BY i.retry LIMIT ` + limit + `) AS e
			) AS x)
			SELECT ` + message + ` FROM page AS p JOIN swarmiji_outbox AS o ON o.seq = p.seq
			WHERE p.before < ` + pageBytes + ` ORDER BY o.seq`
	}
	due := `r.namespace = $1 AND r.retry > 0 AND r.retry <= ` + once
	if d == sqlconn.Postgres {
		t.bytes = "bytea"
		t.buckets += " FOR UPDATE"
		t.deadRows += " FOR UPDATE"
		t.sent = `DELETE FROM swarmiji_outbox AS o USING unnest(CAST($2 AS bigint[]), CAST($3 AS text[])) AS v(seq, id)
			WHERE o.namespace = $1 AND o.seq = v.seq AND o.id = v.id`
		t.failed = `UPDATE swarmiji_outbox AS o SET failures = o.failures + 1, retry = ` + now + ` + v.wait, reason = v.reason
			FROM unnest(CAST($2 AS bigint[]), CAST($3 AS text[]), CAST($4 AS bigint[]), CAST($5 AS text[])) AS v(seq, id, wait, reason)
			WHERE o.namespace = $1 AND o.seq = v.seq AND o.id = v.id`
		t.dead = `WITH gone AS (DELETE FROM swarmiji_outbox USING unnest(CAST($2 AS bigint[]), CAST($3 AS text[]), CAST($4 AS text[])) AS v(number, name, why)
			WHERE namespace = $1 AND seq = v.number AND id = v.name RETURNING seq, v.why, stored, ` + content + `)
			INSERT INTO swarmiji_outbox_dead (seq, died, reason, stored, ` + content + `)
			SELECT seq, ` + now + `, why, stored, ` + content + ` FROM gone`
		// Without LATERAL each page would sort all failed messages.
		each := func(what, order string) string {
			return `SELECT i.seq, i.size FROM unnest($2::bigint[]) AS b(bucket) CROSS JOIN LATERAL (
				SELECT r.seq, r.retry, length(r.body) AS size FROM swarmiji_outbox AS r WHERE r.bucket = b.bucket AND ` + what + `
				ORDER BY r.` + order + ` LIMIT ` + bucketRows + `) AS i`
		}
		fresh, failed := each(strings.Replace(ready, byKey, "", 1), "seq"), each(due, "retry")
		t.read, t.readMany = page(fresh, failed, pageFailed), page(fresh, failed, pageRows)
		return t
	}
	each := func(what, order string) string {
		return `SELECT i.seq, length(i.body) AS size FROM json_each($2) AS b CROSS JOIN swarmiji_outbox AS i
			WHERE i.seq IN (SELECT r.seq FROM swarmiji_outbox AS r WHERE r.bucket = b.value AND ` + what + `
				ORDER BY r.` + order + ` LIMIT ` + bucketRows + `)`
	}
	fresh, failed := each(ready, "seq"), each(due, "retry")
	t.read, t.readMany = page(fresh, failed, pageFailed), page(fresh, failed, pageRows)
	return t
}

// list returns numbers as the argument for one parameter of a statement: a slice on PostgreSQL,
// JSON text on SQLite.
func (t *texts) list(numbers []int64) any {
	if t.dialect == sqlconn.Postgres {
		return numbers
	}
	text, _ := json.Marshal(numbers) // numbers can always be encoded
	return string(text)
}
