package sqllimit

import "github.com/swarmiji/swarmiji/internal/sqlconn"

// texts holds the SQL statements in a database's dialect. $1 is the namespace, unless the comment
// says otherwise. A list of permits is JSON: pairs of a quoted key and a number. Times are in
// microseconds.
type texts struct {
	// lock: $1 is a list of numbers, in order. It takes their advisory locks until the transaction
	// ends. "" on SQLite, which has one writer.
	lock string
	// state: $2 list, with the place of each permit as its number; $3 holder. The columns are the
	// place, the time, the time up to which the rate is used, and the held weight. The last one is 1
	// if the holder holds the permit.
	state string
	hold  string // $2 list of weights, $3 holder, $4 time, $5 end of the lease
	use   string // $2 list of the times up to which the rates are used
	// renew: $2 list, $3 holder, $4 lease. It changes the rows of living leases.
	renew   string
	release string // $2 list, $3 holder
	// usage: $2 key, $3 number of holders. The columns are the time for which the rate is used ahead,
	// and the held weight. Then come a holder, its weight, and the rest of its lease. Without a holder
	// there is one row with an empty holder.
	usage string

	// sweepHolds and sweepRates: $1 number of rows.
	sweepHolds, sweepRates string
}

// newTexts returns the SQL statements for a dialect.
func newTexts(d sqlconn.Dialect) *texts {
	now := d.Now()
	// As a subquery the clock is read once and an index is used.
	once := "(SELECT " + now + ")"
	list := `(SELECT json_extract(value, '$[0]') AS key, json_extract(value, '$[1]') AS n FROM json_each($2))`
	t, skip, lock := &texts{}, "", ""
	at := now + ` AS now`
	if d == sqlconn.Postgres {
		list = `(SELECT e->>0 AS key, CAST(e->>1 AS bigint) AS n FROM json_array_elements(CAST($2 AS json)) AS e)`
		t.lock = `SELECT pg_advisory_xact_lock(v.n) FROM unnest(CAST($1 AS bigint[])) AS v(n)`
		skip, lock = " FOR UPDATE SKIP LOCKED", " FOR UPDATE"
		at += `, set_config('synchronous_commit', 'off', true)`
	}
	t.state = `WITH t AS MATERIALIZED (SELECT ` + at + `)
		SELECT k.n, t.now, coalesce((SELECT used FROM swarmiji_limit_rate WHERE namespace = $1 AND key = k.key), 0),
			(SELECT CAST(coalesce(sum(weight), 0) AS bigint) FROM swarmiji_limit_hold WHERE namespace = $1 AND key = k.key AND until > t.now),
			(SELECT count(*) FROM swarmiji_limit_hold WHERE namespace = $1 AND key = k.key AND holder = $3 AND until > t.now)
		FROM ` + list + ` AS k CROSS JOIN t`
	t.hold = `INSERT INTO swarmiji_limit_hold AS h (namespace, key, holder, weight, until)
		SELECT $1, k.key, $3, k.n, $5 FROM ` + list + ` AS k WHERE true ON CONFLICT (namespace, key, holder) DO UPDATE SET
			until = excluded.until, weight = CASE WHEN h.until > $4 THEN h.weight ELSE excluded.weight END`
	t.use = `INSERT INTO swarmiji_limit_rate (namespace, key, used) SELECT $1, k.key, k.n FROM ` + list + ` AS k WHERE true
		ON CONFLICT (namespace, key) DO UPDATE SET used = excluded.used`
	t.renew = `UPDATE swarmiji_limit_hold SET until = ` + once + ` + $4
		WHERE namespace = $1 AND holder = $3 AND key IN (SELECT k.key FROM ` + list + ` AS k) AND until > ` + once
	// Concurrent calls lock rows in one order.
	t.release = `WITH mine AS MATERIALIZED (SELECT key FROM swarmiji_limit_hold
			WHERE namespace = $1 AND holder = $3 AND key IN (SELECT k.key FROM ` + list + ` AS k) ORDER BY key` + lock + `)
		DELETE FROM swarmiji_limit_hold WHERE namespace = $1 AND holder = $3 AND key IN (SELECT key FROM mine)`
	t.usage = `WITH t AS MATERIALIZED (SELECT ` + now + ` AS now),
			h AS MATERIALIZED (SELECT holder, weight, until - t.now AS lease FROM swarmiji_limit_hold CROSS JOIN t
				WHERE namespace = $1 AND key = $2 AND until > t.now)
		SELECT coalesce((SELECT used FROM swarmiji_limit_rate WHERE namespace = $1 AND key = $2), 0) - t.now,
			(SELECT CAST(coalesce(sum(weight), 0) AS bigint) FROM h), coalesce(h.holder, ''), coalesce(h.weight, 0), coalesce(h.lease, 0)
		FROM t LEFT JOIN h ON true ORDER BY h.lease, h.holder LIMIT $3`
	t.sweepHolds = `WITH old AS MATERIALIZED (SELECT namespace, key, holder FROM swarmiji_limit_hold
			WHERE until <= ` + once + ` ORDER BY until LIMIT $1` + skip + `)
		DELETE FROM swarmiji_limit_hold WHERE (namespace, key, holder) IN (SELECT namespace, key, holder FROM old)`
	t.sweepRates = `WITH old AS MATERIALIZED (SELECT namespace, key FROM swarmiji_limit_rate
			WHERE used <= ` + once + ` ORDER BY used LIMIT $1` + skip + `)
		DELETE FROM swarmiji_limit_rate WHERE (namespace, key) IN (SELECT namespace, key FROM old)`
	return t
}
