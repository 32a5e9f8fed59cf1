package sqlevents

import "github.com/swarmiji/swarmiji/internal/sqlconn"

// texts holds the SQL statements in a database's dialect. $1 is the namespace, unless the comment
// says otherwise. Times are in microseconds.
type texts struct {
	// add: $2 live, $3 number of kept events, $4 time until it expires, $5 body, and on PostgreSQL
	// $6, the advisory lock of the namespace.
	add string

	here string // without parameters; the largest seq so far
	live string // $2 seq, $3 number of rows; seq and body of the live rows after it

	// begin: $2 time. It returns the seq after which a replay begins, the number of kept events up
	// to it, and the number of removed events.
	begin string
	// kept: $2 seq, $3 number of rows. It returns rows of the number of removed events and seq, at,
	// kept and body of a kept row after seq. Without such a row it returns one row with nulls.
	kept string

	// listen: $2 id, $3 types, $4 lease. It adds or renews the row of a bus and returns its begun.
	listen    string
	unlisten  string // $2 id
	listeners string // $2 time; types of each living row, and 1 if it is that old

	// sweepExpired: $1 number of rows. It returns the namespace and kept of each deleted row.
	sweepExpired string
	// sweepBeyond: $2 events that stay, $3 number of rows. It returns the same.
	sweepBeyond    string
	sweepListeners string // $1 number of rows
	removed        string // $2 number of events; adds it to the count of removed events
}

// newTexts returns the SQL statements for a dialect.
func newTexts(d sqlconn.Dialect) *texts {
	now := d.Now()
	// As a subquery the clock is read once and an index is used.
	once := "(SELECT " + now + ")"
	removed := `coalesce((SELECT events FROM swarmiji_event_removed WHERE namespace = $1), 0)`
	t := &texts{
		add: `INSERT INTO swarmiji_event (namespace, live, kept, at, expires, body) VALUES ($1, $2, $3, ` + now + `, ` + now + ` + $4, $5)`,

		here: `SELECT coalesce(max(seq), 0) FROM swarmiji_event`,
		live: `SELECT seq, body FROM swarmiji_event WHERE namespace = $1 AND live = 1 AND seq > $2 ORDER BY seq LIMIT $3`,

		begin: `SELECT s.seq, (SELECT CAST(coalesce(sum(kept), 0) AS bigint) FROM swarmiji_event
				WHERE namespace = $1 AND kept > 0 AND seq <= s.seq), ` + removed + ` FROM (SELECT coalesce(
			(SELECT seq - 1 FROM swarmiji_event WHERE namespace = $1 AND kept > 0 AND at >= $2 AND expires > ` + once + ` ORDER BY seq LIMIT 1),
			(SELECT max(seq) FROM swarmiji_event WHERE namespace = $1 AND kept > 0), 0) AS seq) AS s`,
		kept: `SELECT ` + removed + `, e.seq, e.at, e.kept, e.body FROM (SELECT 1) AS one LEFT JOIN (
				SELECT seq, at, kept, body FROM swarmiji_event
				WHERE namespace = $1 AND kept > 0 AND seq > $2 AND expires > ` + once + ` ORDER BY seq LIMIT $3
			) AS e ON true ORDER BY e.seq`,

		listen: `INSERT INTO swarmiji_event_listener AS l (namespace, id, types, begun, until)
			VALUES ($1, $2, $3, ` + now + `, ` + now + ` + $4) ON CONFLICT (namespace, id) DO UPDATE SET
				types = excluded.types, until = excluded.until,
				begun = CASE WHEN l.types = excluded.types AND l.until > excluded.begun THEN l.begun ELSE excluded.begun END
			RETURNING begun`,
		unlisten: `DELETE FROM swarmiji_event_listener WHERE namespace = $1 AND id = $2`,
		listeners: `SELECT types, CASE WHEN begun <= ` + now + ` - $2 THEN 1 ELSE 0 END FROM swarmiji_event_listener
			WHERE namespace = $1 AND until > ` + now,

		removed: `INSERT INTO swarmiji_event_removed AS r (namespace, events) VALUES ($1, $2)
			ON CONFLICT (namespace) DO UPDATE SET events = r.events + excluded.events`,
	}
	// Concurrent sweeps do not wait for each other.
	skip := ""
	if d == sqlconn.Postgres {
		skip = " FOR UPDATE SKIP LOCKED"
		// The lock is held before seq is taken, until the commit is visible. So a reader that has
		// seen a row has seen all rows with a smaller seq. Only kept events wait for the disk.
		t.add = `WITH l AS MATERIALIZED (SELECT pg_advisory_xact_lock(CAST($6 AS bigint)),
				set_config('synchronous_commit', CASE WHEN CAST($3 AS bigint) > 0 THEN current_setting('synchronous_commit') ELSE 'off' END, true))
			INSERT INTO swarmiji_event (namespace, live, kept, at, expires, body)
			SELECT $1, $2, CAST($3 AS bigint), ` + now + `, ` + now + ` + $4, $5 FROM l`
	}
	t.sweepExpired = `WITH old AS MATERIALIZED (SELECT seq FROM swarmiji_event WHERE expires <= ` + once + ` ORDER BY expires LIMIT $1` + skip + `)
		DELETE FROM swarmiji_event WHERE seq IN (SELECT seq FROM old) RETURNING namespace, kept`
	t.sweepBeyond = `WITH old AS MATERIALIZED (SELECT seq FROM swarmiji_event WHERE namespace = $1 AND kept > 0 AND seq <= (
			SELECT max(n.seq) FROM (SELECT seq, CAST(sum(kept) OVER (ORDER BY seq DESC) AS bigint) - kept AS newer FROM swarmiji_event
				WHERE namespace = $1 AND kept > 0) AS n WHERE n.newer >= $2) ORDER BY seq LIMIT $3` + skip + `)
		DELETE FROM swarmiji_event WHERE seq IN (SELECT seq FROM old) RETURNING namespace, kept`
	t.sweepListeners = `WITH old AS MATERIALIZED (SELECT namespace, id FROM swarmiji_event_listener WHERE until <= ` + once + ` LIMIT $1` + skip + `)
		DELETE FROM swarmiji_event_listener WHERE (namespace, id) IN (SELECT namespace, id FROM old)`
	return t
}
