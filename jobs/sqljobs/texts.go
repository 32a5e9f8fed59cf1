package sqljobs

import (
	"fmt"
	"strings"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

// simple is the SQL form of [jobstore.Row.Simple]. plain is the condition of jobs that can be
// claimed without reading other jobs.
const (
	simple = "repeat IS NULL AND retry_after IS NULL AND parent IS NULL AND has_children = 0 AND sequence_key IS NULL AND queue IS NULL AND answer_key IS NULL"
	plain  = "j.retry_after IS NULL AND j.parent IS NULL AND j.has_children = 0"
)

// texts holds the statements in a database's dialect.
type texts struct {
	get  string // $1: id
	lock string // $1: id; the same as get, and locks the row
	// values, on PostgreSQL with the name's lock key; returns the id and whether the name was known
	insert      string
	insertBasic string                 // the same for basic jobs
	update      [everyGroup + 1]string // values of groups, id
	drop        string                 // $1: id, $2: token
	expireJobs  string                 // $1: by, $2: limit
	delete      string                 // $1: id, on PostgreSQL ids

	due      map[dueKey]string
	many     string // PostgreSQL: $1 limit, $2 by, $3 names; returns candidates
	manyOf   string // PostgreSQL: the same for the priority $4
	weigh    string // $1: queue; returns the number and weight of running jobs
	times    string // returns the present time and the next due times
	became   string // $1: since, $2: by, $3: limit; returns names
	mark     string // SQLite: $1 id, $2 now, $3 due
	markMany string // SQLite: $1 ids as JSON, $2 now, $3 due
	lockIDs  string // PostgreSQL: $1 limit, $2 by, $3 ids
	takeIDs  string // PostgreSQL: the same, and $4 lease

	answers answerTexts
	groups  groupTexts

	messages    string // $1: ids; returns ids and messages
	addMessage  string // $1: id, $2: message; on PostgreSQL arrays
	dropMessage string // SQLite: $1 id

	expireMessages string // SQLite: $1 by, $2 limit; runs before expireJobs

	insertMany string                 // PostgreSQL: arrays of values
	addNames   string                 // PostgreSQL: $1 names, $2 their lock keys
	updateMany [everyGroup + 1]string // PostgreSQL: arrays of values of groups, ids

	// PostgreSQL: $1 names, $2 their lock keys; returns the isolation level, the time and the number
	// of known names
	join string

	names   string // $1: number, on PostgreSQL $2: snapshot, of a mark; returns the new mark and names
	addName string // SQLite: $1 name
	known   string // SQLite: $1 name
	page    string // $1: after; returns the next names and whether they have jobs
	forget  string // SQLite: $1 name; PostgreSQL: names
}

// dueKey identifies a statement about due jobs. $1 is the limit and $2 the latest due time. The
// priority and the name follow, if the statement has them. On PostgreSQL a null $2 means the
// server's time.
type dueKey struct {
	kind     kind
	by       scope
	priority bool
	mock     bool
}

// kind is the purpose of a statement about due jobs.
type kind int

const (
	seek  kind = iota // returns id, name, priority and due; locks nothing
	read              // returns jobs
	claim             // returns jobs and locks them; only on PostgreSQL
	// sets jobs to RUNNING and returns them; only on PostgreSQL; the last argument is the lease
	take
)

// scope selects the names of due jobs.
type scope int

const (
	ofAll  scope = iota // any name
	ofName              // one name
)

const candidate = "j.id, j.name, j.priority, j.due"

// newTexts returns all statements in the dialect d. It does no I/O.
func newTexts(d sqlconn.Dialect) *texts {
	t := &texts{
		get: "SELECT " + columns("j") + " FROM swarmiji_jobs AS j WHERE j.id = " + cast(1, "bigint"),
		drop: "DELETE FROM swarmiji_jobs WHERE id = CAST($1 AS bigint) AND state IN ('RUNNING', 'RUNQUEUED') AND (CAST($2 AS bigint) = 0 OR token = CAST($2 AS bigint)) AND " +
			simple,
		due:        make(map[dueKey]string),
		weigh:      weighText(d),
		addName:    "INSERT INTO swarmiji_job_name (name) VALUES ($1) ON CONFLICT DO NOTHING",
		messages:   "SELECT job, message FROM swarmiji_job_message WHERE job " + idList(d),
		addMessage: "INSERT INTO swarmiji_job_message (job, message) VALUES ($1, $2)",
		known:      "SELECT count(*) FROM swarmiji_job_name WHERE name = $1",
		page: `SELECT n.name, CASE WHEN EXISTS (SELECT 1 FROM swarmiji_jobs AS j WHERE j.name = n.name AND j.id > -1) THEN 1 ELSE 0 END
			FROM swarmiji_job_name AS n WHERE n.name > $1 ORDER BY n.name LIMIT ` + fmt.Sprint(sweepPage),
	}
	t.lock, t.answers, t.groups = t.get, newAnswerTexts(d), newGroupTexts(d)
	for g := lease; g <= everyGroup; g++ {
		var sets []string
		for _, c := range stored {
			if g&c.group != 0 {
				sets = append(sets, fmt.Sprintf("%s = $%d", c.name, len(sets)+1))
			}
		}
		t.update[g] = "UPDATE swarmiji_jobs SET " + strings.Join(sets, ", ") + " WHERE id = " + cast(len(sets)+1, "bigint")
	}
	t.insert, t.insertBasic = insertText(d, len(stored)), insertText(d, basic)
	kinds := []kind{seek, read}
	if d == sqlconn.Postgres {
		kinds = append(kinds, claim, take)
		t.postgres()
	} else {
		t.sqlite()
	}
	for _, k := range kinds {
		for _, by := range []scope{ofAll, ofName} {
			for _, priority := range []bool{false, true} {
				key := dueKey{k, by, priority, false}
				t.due[key] = dueText(d, key)
			}
		}
	}
	for _, priority := range []bool{false, true} {
		key := dueKey{seek, ofAll, priority, true}
		t.due[key] = dueText(d, key)
	}
	t.coming(d)
	return t
}

// idList returns the condition that an id is in the list $1.
func idList(d sqlconn.Dialect) string {
	if d == sqlconn.SQLite {
		return "IN (SELECT value FROM json_each(CAST($1 AS text)))"
	}
	return "= ANY(CAST($1 AS bigint[]))"
}

// insertInto returns "INSERT INTO swarmiji_jobs (names)" without VALUES, where names lists the
// first n columns of stored, separated by commas.
func insertInto(n int) (text, names string) {
	list := make([]string, n)
	for i, c := range stored[:n] {
		list[i] = c.name
	}
	names = strings.Join(list, ", ")
	return "INSERT INTO swarmiji_jobs (" + names + ")", names
}

// insertText returns the statement that inserts one job with its first n columns. The statement
// returns the id and whether the name was known. On PostgreSQL it also adds and locks the name,
// whose lock key is one more argument.
func insertText(d sqlconn.Dialect, n int) string {
	into, _ := insertInto(n)
	marks := make([]string, n)
	for i, c := range stored[:n] {
		if marks[i] = fmt.Sprintf("$%d", i+1); d == sqlconn.Postgres {
			marks[i] = cast(i+1, c.kind)
		}
	}
	into += " VALUES (" + strings.Join(marks, ", ") + ") RETURNING id, "
	if d == sqlconn.SQLite {
		return into + "EXISTS (SELECT 1 FROM swarmiji_job_name AS n WHERE n.name = swarmiji_jobs.name)"
	}
	return "WITH " + fmt.Sprintf(addNames, fmt.Sprintf("(VALUES ($1, CAST($%d AS bigint)))", n+1)) + " " + into + "(SELECT 1 - count(*) FROM m)"
}

// sqlite sets the statements of t that only SQLite uses, or that differ there. It calls no
// database.
func (t *texts) sqlite() {
	t.delete = "DELETE FROM swarmiji_jobs WHERE id = " + cast(1, "bigint")
	t.dropMessage = "DELETE FROM swarmiji_job_message WHERE job = " + cast(1, "bigint")
	t.mark = `UPDATE swarmiji_jobs SET state = 'RUNNING', changed = $2, last_run = $2, token = token + 1, due = $3,
		run = run + (state = 'QUEUED'), attempts = attempts + (state <> 'RUNNING'),
		scheduled = CASE WHEN state = 'QUEUED' THEN next_run ELSE scheduled END WHERE id `
	t.mark, t.markMany = t.mark+"= "+cast(1, "bigint"), t.mark+idList(sqlconn.SQLite)
	first := "(SELECT j.id FROM swarmiji_jobs AS j INDEXED BY swarmiji_job_expires WHERE j.expires <= " + cast(1, "bigint") + " ORDER BY j.expires LIMIT " + cast(2, "bigint") + ")"
	t.expireMessages = "DELETE FROM swarmiji_job_message WHERE job IN " + first
	t.expireJobs = "DELETE FROM swarmiji_jobs WHERE id IN " + first
	t.names = "SELECT seq, '', name FROM swarmiji_job_name WHERE seq > $1 ORDER BY seq"
	t.forget = "DELETE FROM swarmiji_job_name WHERE name = $1"
}

// source describes the part of a statement that finds due rows.
type source struct {
	d     sqlconn.Dialect
	where string // the condition of an index
	index string
	first string // the priorities to search; "" means all
	least string // a condition for the lowest priority, on the alias "f"
	by    string
	also  string // another condition for rows, on the alias "j"
	due   string // the name of the due column
	most  string // the limit
}

// newSource returns a source of due rows that are not mock jobs, at most $1. The caller sets index
// and by.
func newSource(d sqlconn.Dialect) source {
	return source{d: d, where: "due IS NOT NULL AND mock = 0", due: "due", most: limitMark(d)}
}

// limitMark returns the argument $1 in the form that a LIMIT needs in the dialect.
func limitMark(d sqlconn.Dialect) string {
	if d == sqlconn.SQLite {
		return cast(1, "bigint")
	}
	return "$1"
}

// priorities returns a table "p" of the priorities that have rows in the index, lowest first, or of
// s.first alone. It finds each priority by a seek, so the rows between are not scanned. It belongs
// behind WITH RECURSIVE.
func (s *source) priorities() string {
	if s.first != "" {
		return "p(priority) AS (SELECT " + s.first + ")"
	}
	step := func(more string) string {
		return "SELECT f.priority FROM " + s.table("f") + " WHERE " + s.where + more + " ORDER BY f.priority LIMIT 1"
	}
	return "p(priority) AS (SELECT (" + step(s.least) + ") UNION ALL SELECT (" + step(" AND f.priority > p.priority") +
		") FROM p WHERE p.priority IS NOT NULL)"
}

// table returns the text "swarmiji_jobs AS <as>" for the FROM clause of a query. On SQLite the text
// also makes the query use the index s.index (INDEXED BY).
func (s *source) table(as string) string {
	if s.d == sqlconn.SQLite {
		return "swarmiji_jobs AS " + as + " INDEXED BY " + s.index
	}
	return "swarmiji_jobs AS " + as
}

// rows returns a SELECT of cols of the first due rows, by priority, due time and id. It needs the
// table "p". lock is a clause for PostgreSQL, or "". SQLite keeps the order of a CROSS JOIN: first
// the rows of "p", then the index.
func (s *source) rows(cols, lock string) string {
	where := s.where + " AND j.priority = p.priority AND j." + s.due + " <= " + s.by + s.also
	if s.d == sqlconn.SQLite {
		return "SELECT " + cols + " FROM p CROSS JOIN " + s.table("j") + " ON " + where + " LIMIT " + s.most
	}
	return "SELECT k.* FROM p CROSS JOIN LATERAL (SELECT " + cols + " FROM swarmiji_jobs AS j WHERE " + where +
		" ORDER BY j." + s.due + ", j.id LIMIT " + s.most + lock + ") AS k LIMIT " + s.most
}

// ofPatterns returns the source of due rows with any name, of mock jobs if mock is set, else of
// others.
func ofPatterns(d sqlconn.Dialect, mock bool) source {
	s := newSource(d)
	s.index = "swarmiji_job_due"
	if mock {
		s.where, s.index = "due IS NOT NULL AND mock = 1", "swarmiji_job_due_mock"
	}
	if d == sqlconn.Postgres {
		s.where += " AND id > 0" // selects the index, see the migration
	}
	return s
}

const serverBy = "coalesce(CAST($2 AS bigint), (SELECT t FROM n))"

// dueText returns the statement about due jobs that key identifies; the type dueKey lists its
// arguments. It calls no database.
func dueText(d sqlconn.Dialect, key dueKey) string {
	s := newSource(d)
	next := 3
	if key.by == ofAll {
		s = ofPatterns(d, key.mock)
	}
	s.by = cast(2, "bigint")
	if key.priority {
		s.first = cast(next, "integer")
		next++
	}
	if key.by == ofName {
		s.where, s.index = "name = "+cast(next, "text")+" AND "+s.where, "swarmiji_job_due_name"
		next++
	}
	with := "WITH RECURSIVE "
	if d == sqlconn.Postgres {
		s.by = serverBy
		with += now(d)
	}
	with += s.priorities()
	switch key.kind {
	case read:
		return with + " " + s.rows(columns("j"), "")
	case claim:
		return with + " " + s.rows(columns("j"), " FOR UPDATE SKIP LOCKED")
	case take:
		return with + ", " + takeText(s.rows("j.id, j.priority, j.due, ("+plain+") AS plain", " FOR UPDATE SKIP LOCKED"), next)
	default:
		return with + " " + s.rows(candidate, "")
	}
}

// cast returns the argument n with a CAST. SQLite would prepare a statement again for each value of
// a plain argument in a LIMIT or in the condition of a partial index.
func cast(n int, kind string) string { return fmt.Sprintf("CAST($%d AS %s)", n, kind) }

// now returns the server's time as a table "n". The statement reads the time once and can compare
// an index with it.
func now(d sqlconn.Dialect) string { return "n AS MATERIALIZED (SELECT " + d.Now() + " AS t), " }

// takeText returns the part of a statement that sets the locked rows to RUNNING, up to the first
// row that is not plain. rows selects and locks the rows; lease is the number of the argument with
// the lease. It returns jobs, without an id where they are not set to RUNNING.
//
// The ids are not joined as a table. A server that believes that the jobs table is empty would scan
// it for each id. It believes so for up to a minute after the table was empty.
func takeText(rows string, lease int) string {
	return fmt.Sprintf(`c AS MATERIALIZED (%s), g AS (SELECT c.id, bool_and(c.plain) OVER (ORDER BY c.priority, c.due, c.id) AS go FROM c),
		u AS (UPDATE swarmiji_jobs AS j SET state = 'RUNNING', changed = (SELECT t FROM n), last_run = (SELECT t FROM n), token = j.token + 1,
			run = j.run + CASE WHEN j.state = 'QUEUED' THEN 1 ELSE 0 END,
			attempts = j.attempts + CASE WHEN j.state = 'RUNNING' THEN 0 ELSE 1 END,
			scheduled = CASE WHEN j.state = 'QUEUED' THEN j.next_run ELSE j.scheduled END,
			due = (SELECT t FROM n) + CAST($%d AS bigint)
			WHERE j.id = ANY(ARRAY(SELECT g.id FROM g WHERE g.go)) RETURNING j.*)
		SELECT %s FROM c LEFT JOIN u ON u.id = c.id ORDER BY c.priority, c.due, c.id`, rows, lease, columns("u"))
}

// coming sets the statements t.times and t.became, for Store.Coming. They find the next due times,
// and the names of jobs that became due, by a seek in each priority.
func (t *texts) coming(d sqlconn.Dialect) {
	plain, mock := ofPatterns(d, false), ofPatterns(d, true)
	with := "WITH RECURSIVE n AS MATERIALIZED (SELECT " + d.Now() + " AS t), "
	if d == sqlconn.SQLite {
		with = "WITH RECURSIVE n(t) AS (SELECT $1), "
	}
	first := func(s source) string {
		return "SELECT min((SELECT j.due FROM " + s.table("j") + " WHERE " + s.where + " AND j.priority = p.priority AND j.due > (SELECT t FROM n) ORDER BY j.due LIMIT 1)) AS due FROM p"
	}
	t.times = with + "a AS (WITH RECURSIVE " + plain.priorities() + " " + first(plain) + "), b AS (WITH RECURSIVE " + mock.priorities() + " " + first(mock) + `)
		SELECT n.t, coalesce(a.due, -9223372036854775807), coalesce(b.due, -9223372036854775807) FROM n, a, b`
	names := func(s source) string {
		where := s.where + " AND j.priority = p.priority AND j.due > " + cast(1, "bigint") + " AND j.due <= " + cast(2, "bigint")
		if d == sqlconn.SQLite {
			return "SELECT * FROM (WITH RECURSIVE " + s.priorities() + " SELECT j.name AS name FROM p CROSS JOIN " + s.table("j") + " ON " + where + ")"
		}
		return "(WITH RECURSIVE " + s.priorities() + " SELECT k.name FROM p CROSS JOIN LATERAL (SELECT j.name FROM swarmiji_jobs AS j WHERE " + where + " ORDER BY j.due, j.id) AS k)"
	}
	t.became = "SELECT DISTINCT name FROM (" + names(plain) + " UNION ALL " + names(mock) + ") AS r LIMIT " + cast(3, "bigint")
}
