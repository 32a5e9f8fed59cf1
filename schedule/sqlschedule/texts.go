package sqlschedule

import (
	"fmt"
	"strings"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

// columns are the columns of an entry that scan reads.
const columns = "e.id, e.payload, e.next, e.paused, e.last, e.state, e.runs, e.grp"

// texts holds the statements in the dialect of the database. $1 is the schedule's name in all of
// them.
type texts struct {
	// add: $2 is a list of (id, payload in hex, next). It returns the ids that were added.
	add string
	// queue: $2 is a list of (id, payload in hex, next, place). place numbers the entries of the call
	// that are AtOnce from 1; it is 0 for the others. It returns the ids that were added.
	queue string
	// repair: $2 is a list of (id, next). It sets next of those that are unscheduled.
	repair string
	// astray returns the unscheduled entries: without a due time, a claim or a pause.
	astray string
	// times returns now, the first next and the first end of a lease after now, and whether a tick is
	// due.
	times string
	// due: $2 is now, $3 the maximum. It returns entries with the tick's instant, its owner, the time
	// at which it became due, and the version.
	due string
	// lock: $2 is a list of (id). It returns id, next, paused, version and runs, and locks the rows
	// for the transaction.
	lock string
	// claims: $2 is a list of (id). It returns now, id, due, owner and until. Without a claim it
	// returns one row with now only.
	claims string

	saveTimes  string // $2: (id, next, last, runs); null in last or runs keeps the old value
	saveClaims string // $2: (id, due, owner, until)
	saveStates string // $2: (id, state in hex or null)
	dropClaims string // $2: (id, due)
	drop       string // $2: (id)

	revise  string // $2: group, $3: revision. It returns the higher one of it and the stored one.
	members string // $2: group. It returns the ids of the group.
	whole   string // $2: (id). It returns the columns of the entries.
	put     string // $2: (id, payload in hex, next, group, version). It returns the added ids.
	alter   string // $2: (id, payload in hex, next)

	get    string // $2: id
	list   string // $2: the last id of the page before, $3: limit
	remove string // $2: id
	forget string // $2: id
	pause  string // $2: id
	resume string // $2: id, $3: next
	exists string // $2: id
}

// column is a column of a list that is passed to a statement as a JSON array of arrays.
type column struct {
	name string
	kind string // text, bigint or hex
}

// rowsOf returns the beginning of a statement, a WITH clause, that makes the list in $2 a table v
// with these columns. The table is materialized so that the list is decoded only once.
func rowsOf(d sqlconn.Dialect, cols ...column) string {
	parts := make([]string, len(cols))
	for i, c := range cols {
		value := fmt.Sprintf("value->>%d", i)
		switch {
		case c.kind == "hex" && d == sqlconn.Postgres:
			value = "decode(" + value + ", 'hex')"
		case c.kind == "hex":
			value = "unhex(" + value + ")"
		case d == sqlconn.Postgres:
			value = "(" + value + ")::" + c.kind
		}
		parts[i] = value + " AS " + c.name
	}
	from := "json_each($2)"
	if d == sqlconn.Postgres {
		from = "jsonb_array_elements($2::jsonb)"
	}
	return "WITH v AS MATERIALIZED (SELECT " + strings.Join(parts, ", ") + " FROM " + from + ") "
}

// newTexts returns the statements in the dialect d, as the fields of texts describe them. It calls
// no database.
func newTexts(d sqlconn.Dialect) *texts {
	now := "(" + d.Now() + " / 1000)"
	ids := rowsOf(d, column{"id", "text"})
	lock, least := "", "min"
	if d == sqlconn.Postgres {
		lock, least = " FOR UPDATE OF e", "least"
	}
	const astray = `e.next IS NULL AND e.paused = 0 AND NOT EXISTS (
		SELECT 1 FROM swarmiji_schedule_claim AS k WHERE k.schedule = e.schedule AND k.id = e.id)`
	return &texts{
		add: rowsOf(d, column{"id", "text"}, column{"payload", "hex"}, column{"next", "bigint"}) +
			`INSERT INTO swarmiji_schedule_entry (schedule, id, payload, next) SELECT $1, v.id, v.payload, v.next FROM v
			WHERE true ORDER BY v.id ON CONFLICT (schedule, id) DO NOTHING RETURNING id`,
		// Entries that are due at once take the next free milliseconds of their second, one by one,
		// behind the last waiting entry. Entries beyond its last millisecond share that one.
		queue: rowsOf(d, column{"id", "text"}, column{"payload", "hex"}, column{"next", "bigint"}, column{"place", "bigint"}) +
			`INSERT INTO swarmiji_schedule_entry (schedule, id, payload, next) SELECT $1, v.id, v.payload, CASE WHEN v.place = 0 THEN v.next ELSE ` + least + `(
				v.next - v.next % 1000 + 999, v.place + coalesce((SELECT max(e.next) FROM swarmiji_schedule_entry AS e
					WHERE e.schedule = $1 AND e.next >= v.next AND e.next < v.next - v.next % 1000 + 1000), v.next - 1)) END FROM v
			WHERE true ORDER BY v.id ON CONFLICT (schedule, id) DO NOTHING RETURNING id`,
		repair: rowsOf(d, column{"id", "text"}, column{"next", "bigint"}) +
			`UPDATE swarmiji_schedule_entry AS e SET next = v.next FROM v WHERE e.schedule = $1 AND e.id = v.id AND ` + astray,
		astray: `SELECT ` + columns + ` FROM swarmiji_schedule_entry AS e WHERE e.schedule = $1 AND ` + astray,
		times: `WITH c AS (SELECT ` + now + ` AS t)
			SELECT c.t,
				(SELECT min(next) FROM swarmiji_schedule_entry WHERE schedule = $1 AND next > c.t),
				(SELECT min(until) FROM swarmiji_schedule_claim WHERE schedule = $1 AND until > c.t),
				CASE WHEN EXISTS (SELECT 1 FROM swarmiji_schedule_entry WHERE schedule = $1 AND next <= c.t)
					OR EXISTS (SELECT 1 FROM swarmiji_schedule_claim WHERE schedule = $1 AND until <= c.t) THEN 1 ELSE 0 END
			FROM c`,
		due: `SELECT * FROM (SELECT ` + columns + `, e.next AS due, CAST('' AS text) AS owner, e.next AS since, e.version AS version
				FROM swarmiji_schedule_entry AS e WHERE e.schedule = $1 AND e.next <= $2 ORDER BY e.next LIMIT $3) AS a
			UNION ALL
			SELECT * FROM (SELECT ` + columns + `, k.due AS due, k.owner AS owner, k.until AS since, e.version AS version
				FROM swarmiji_schedule_claim AS k JOIN swarmiji_schedule_entry AS e ON e.schedule = k.schedule AND e.id = k.id
				WHERE k.schedule = $1 AND k.until <= $2 ORDER BY k.until LIMIT $3) AS b
			ORDER BY since LIMIT $3`,
		lock: ids + `SELECT e.id, e.next, e.paused, e.version, e.runs FROM swarmiji_schedule_entry AS e
			WHERE e.schedule = $1 AND e.id IN (SELECT v.id FROM v) ORDER BY e.id` + lock,
		claims: ids + `SELECT ` + now + `, k.id, k.due, k.owner, k.until FROM (SELECT 1) AS one LEFT JOIN (
				SELECT * FROM swarmiji_schedule_claim AS c WHERE c.schedule = $1 AND c.id IN (SELECT v.id FROM v)
			) AS k ON true`,
		saveTimes: rowsOf(d, column{"id", "text"}, column{"next", "bigint"}, column{"last", "bigint"}, column{"runs", "text"}) +
			`UPDATE swarmiji_schedule_entry AS e SET next = v.next, last = coalesce(v.last, e.last), runs = coalesce(v.runs, e.runs) FROM v
			WHERE e.schedule = $1 AND e.id = v.id`,
		saveClaims: rowsOf(d, column{"id", "text"}, column{"due", "bigint"}, column{"owner", "text"}, column{"until", "bigint"}) +
			`INSERT INTO swarmiji_schedule_claim (schedule, id, due, owner, until) SELECT $1, v.id, v.due, v.owner, v.until FROM v
			WHERE true ON CONFLICT (schedule, id, due) DO UPDATE SET owner = excluded.owner, until = excluded.until`,
		saveStates: rowsOf(d, column{"id", "text"}, column{"state", "hex"}) +
			`UPDATE swarmiji_schedule_entry AS e SET state = v.state FROM v WHERE e.schedule = $1 AND e.id = v.id`,
		dropClaims: rowsOf(d, column{"id", "text"}, column{"due", "bigint"}) +
			`DELETE FROM swarmiji_schedule_claim WHERE schedule = $1 AND (id, due) IN (SELECT v.id, v.due FROM v)`,
		drop: ids + `DELETE FROM swarmiji_schedule_entry WHERE schedule = $1 AND id IN (SELECT v.id FROM v)`,

		revise: `INSERT INTO swarmiji_schedule_group AS g (schedule, name, revision) VALUES ($1, $2, $3)
			ON CONFLICT (schedule, name) DO UPDATE SET
				revision = CASE WHEN g.revision > excluded.revision THEN g.revision ELSE excluded.revision END
			RETURNING revision`,
		members: `SELECT id FROM swarmiji_schedule_entry WHERE schedule = $1 AND grp = $2 AND grp <> ''`,
		whole:   ids + `SELECT ` + columns + ` FROM swarmiji_schedule_entry AS e WHERE e.schedule = $1 AND e.id IN (SELECT v.id FROM v)`,
		put: rowsOf(d, column{"id", "text"}, column{"payload", "hex"}, column{"next", "bigint"}, column{"grp", "text"}, column{"version", "bigint"}) +
			`INSERT INTO swarmiji_schedule_entry (schedule, id, payload, next, grp, version) SELECT $1, v.id, v.payload, v.next, v.grp, v.version FROM v
			WHERE true ORDER BY v.id ON CONFLICT (schedule, id) DO NOTHING RETURNING id`,
		alter: rowsOf(d, column{"id", "text"}, column{"payload", "hex"}, column{"next", "bigint"}) +
			`UPDATE swarmiji_schedule_entry AS e SET payload = v.payload, next = v.next, version = e.version + 1 FROM v
			WHERE e.schedule = $1 AND e.id = v.id`,

		get:    `SELECT ` + columns + ` FROM swarmiji_schedule_entry AS e WHERE e.schedule = $1 AND e.id = $2`,
		list:   `SELECT ` + columns + ` FROM swarmiji_schedule_entry AS e WHERE e.schedule = $1 AND e.id > $2 ORDER BY e.id LIMIT $3`,
		remove: `DELETE FROM swarmiji_schedule_entry WHERE schedule = $1 AND id = $2`,
		forget: `DELETE FROM swarmiji_schedule_claim WHERE schedule = $1 AND id = $2`,
		pause:  `UPDATE swarmiji_schedule_entry SET paused = 1, next = NULL WHERE schedule = $1 AND id = $2`,
		resume: `UPDATE swarmiji_schedule_entry SET paused = 0, next = $3 WHERE schedule = $1 AND id = $2 AND paused = 1`,
		exists: `SELECT count(*) FROM swarmiji_schedule_entry WHERE schedule = $1 AND id = $2`,
	}
}
