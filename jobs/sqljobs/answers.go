package sqljobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// answerTexts holds the statements about early answers and deferrals, in a database's dialect.
type answerTexts struct {
	early       string // $1: name, $2: key
	saveEarly   string // values
	deleteEarly string // $1: name, $2: key
	expireEarly string // $1: by, $2: limit, $3: bytes of results; returns the deleted rows

	openDeferral string // $1: name, $2: key
	lastDeferral string // $1: name, $2: key; only settled deferrals
	deferrals    string // $1: tasks; locks the rows
	freeOnes     string // the same, and skips locked rows
	dueDeferrals string // $1: queue, $2: by, $3: limit; locks the rows
	awaiting     string // $1: queue, $2: after, $3: limit
	saveDeferral string // values; on PostgreSQL arrays of values
	moveDeferral string // values of moved columns, task; on PostgreSQL arrays of these
	deleteMany   string // $1: tasks
	expireMany   string // $1: by, $2: limit
}

// deferralColumns lists the columns of a deferral in the order of deferralValues. The columns
// marked as moved change while the deferral waits and when it is settled.
var deferralColumns = [...]struct {
	name, kind string
	moved      bool
}{
	{"task", "text", false},
	{"queue", "text", false},
	{"name", "text", false},
	{"generation", "bigint", true},
	{"at_most_once", "smallint", true},
	{"key", "text", false},
	{"phase", "text", true},
	{"verdict", "text", true},
	{"answer", "text", false},
	{"refusal", "text", false},
	{"claimed", "smallint", true},
	{"fence", "bigint", true},
	{"deadline", "bigint", true},
	{"due", "bigint", true},
	{"expires", "bigint", true},
	{"state", "text", false},
}

// deferralValues returns the values of the columns of d, in the order of deferralColumns.
func deferralValues(d *jobstore.Deferral) []any {
	return []any{
		string(d.Task), d.Queue, d.Name, int64(d.Generation), bit(d.AtMostOnce), d.Key, string(d.Phase), string(d.Verdict), string(d.Answer), d.Refusal,
		bit(d.Claimed), d.Fence, micros(d.Deadline), micros(d.Due), micros(d.Expires), string(d.State),
	}
}

// deferralList returns the list of columns that scanDeferral reads, from the table alias d. Missing
// times become the constant none.
func deferralList() string {
	var cols []string
	for _, c := range deferralColumns {
		switch c.name {
		case "deadline", "due", "expires":
			cols = append(cols, "coalesce(d."+c.name+", -9223372036854775807)")
		default:
			cols = append(cols, "d."+c.name)
		}
	}
	return strings.Join(cols, ", ")
}

const earlyColumns = "name, key, result, refusal, expires"

// newAnswerTexts returns the statements about early answers and deferrals in the dialect d. It does
// no I/O.
func newAnswerTexts(d sqlconn.Dialect) answerTexts {
	lite := d == sqlconn.SQLite
	lock, skip, ids := " FOR UPDATE", " FOR UPDATE SKIP LOCKED", "= ANY(CAST($1 AS text[]))"
	if lite {
		lock, skip, ids = "", "", "IN (SELECT value FROM json_each($1))"
	}
	table := func(index string) string {
		if lite && index != "" {
			return "swarmiji_deferral AS d INDEXED BY swarmiji_deferral_" + index
		}
		return "swarmiji_deferral AS d"
	}
	from := "SELECT " + deferralList() + " FROM "
	of := " WHERE d.name = $1 AND d.key = $2 AND d.expires IS "
	first := func(columns, table, by string) string {
		return "SELECT " + columns + " FROM " + table + " WHERE expires <= " + cast(1, "bigint") + " ORDER BY expires LIMIT " + cast(2, "bigint") + by
	}
	t := answerTexts{
		early: "SELECT " + earlyColumns + " FROM swarmiji_early_answer WHERE name = $1 AND key = $2",
		saveEarly: "INSERT INTO swarmiji_early_answer (" + earlyColumns + `) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (name, key) DO UPDATE SET result = excluded.result, refusal = excluded.refusal, expires = excluded.expires`,
		deleteEarly: "DELETE FROM swarmiji_early_answer WHERE name = $1 AND key = $2",
		expireEarly: `DELETE FROM swarmiji_early_answer WHERE (name, key) IN (SELECT name, key FROM (
			SELECT name, key, sum(size) OVER (ROWS UNBOUNDED PRECEDING) - size AS before FROM (` +
			first("name, key, octet_length(result) AS size", "swarmiji_early_answer", skip) + `) AS e
			) AS f WHERE before < ` + cast(3, "bigint") + ") RETURNING " + earlyColumns,

		openDeferral: from + table("key") + of + "NULL LIMIT 1",
		lastDeferral: from + table("key") + of + "NOT NULL ORDER BY d.expires DESC LIMIT 1",
		deferrals:    from + table("") + " WHERE d.task " + ids + " ORDER BY d.task" + lock,
		freeOnes:     from + table("") + " WHERE d.task " + ids + " ORDER BY d.task" + skip,
		dueDeferrals: from + table("due") + " WHERE d.queue = $1 AND d.due <= " + cast(2, "bigint") + " ORDER BY d.due, d.task LIMIT " + cast(3, "bigint") + skip,
		awaiting: from + table("") + " WHERE d.task > " + cast(2, "text") + " AND d.queue = $1 AND d.phase = 'AWAITING' ORDER BY d.task LIMIT " +
			cast(3, "bigint"),
		deleteMany: "DELETE FROM swarmiji_deferral WHERE task " + ids,
		expireMany: "DELETE FROM swarmiji_deferral WHERE task IN (" + first("task", "swarmiji_deferral", skip) + ")",
	}
	t.moveDeferral = moveDeferralText(lite)
	names, values, sets := make([]string, len(deferralColumns)), make([]string, len(deferralColumns)), make([]string, 0, len(deferralColumns))
	for i, c := range deferralColumns {
		names[i] = c.name
		if values[i] = fmt.Sprintf("$%d", i+1); !lite {
			values[i] = cast(i+1, c.kind+"[]")
		}
		if c.name != "task" {
			sets = append(sets, c.name+" = excluded."+c.name)
		}
	}
	row := "VALUES (" + strings.Join(values, ", ") + ")"
	if !lite {
		row = "SELECT * FROM unnest(" + strings.Join(values, ", ") + ")"
	}
	t.saveDeferral = "INSERT INTO swarmiji_deferral (" + strings.Join(names, ", ") + ") " + row + " ON CONFLICT (task) DO UPDATE SET " + strings.Join(sets, ", ")
	return t
}

// moveDeferralText returns the statement that updates only the moved columns (see deferralColumns):
// of one deferral on SQLite, of many on PostgreSQL.
func moveDeferralText(lite bool) string {
	var names, arrays, one, many []string
	for _, c := range deferralColumns {
		if c.moved {
			names = append(names, c.name)
			one, many = append(one, fmt.Sprintf("%s = $%d", c.name, len(names))), append(many, c.name+" = v."+c.name)
			arrays = append(arrays, cast(len(names), c.kind+"[]"))
		}
	}
	if lite {
		return "UPDATE swarmiji_deferral SET " + strings.Join(one, ", ") + " WHERE task = " + cast(len(names)+1, "text")
	}
	tasks := cast(len(names)+1, "text[]")
	return "UPDATE swarmiji_deferral AS d SET " + strings.Join(many, ", ") + " FROM unnest(" + strings.Join(arrays, ", ") + ", " + tasks + ") AS v(" +
		// the second condition: see takeText
		strings.Join(names, ", ") + ", task) WHERE d.task = v.task AND d.task = ANY(" + tasks + ")"
}

// Early returns the early answer for a name and key, also an expired one. Returns nil if it does
// not exist. It locks nothing. An invalid name or key has no record. A database error fails the
// transaction, and later calls return it. It implements [jobstore.AnswerTx].
func (t *tx) Early(ctx context.Context, name, key string) (*jobstore.EarlyAnswer, error) {
	if t.err != nil || !possible(name) || !possibleKey(key) {
		return nil, t.err
	}
	found, err := t.earlyAnswers(ctx, t.s.text.answers.early, name, key)
	if err != nil || len(found) == 0 {
		return nil, t.fail("early answer", err)
	}
	return &found[0], nil
}

// earlyAnswers runs a query with args and returns the early answers of its rows. The query must
// return earlyColumns. An error does not fail the transaction: the caller calls fail.
func (t *tx) earlyAnswers(ctx context.Context, query string, args ...any) (found []jobstore.EarlyAnswer, err error) {
	rows, err := t.c.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		var e jobstore.EarlyAnswer
		var expires int64
		if err := rows.Scan(&e.Name, &e.Key, &e.Result, &e.Refusal, &expires); err != nil {
			return nil, err
		}
		if e.Expires = moment(expires); len(e.Result) == 0 {
			e.Result = nil
		}
		found = append(found, e)
	}
	return found, errors.Join(rows.Err(), rows.Close())
}

// SaveEarly stores the answers and replaces earlier ones with the same name and key. Returns
// ErrUnsupported in a View. A database error fails the transaction, and later calls return it. It
// implements [jobstore.AnswerTx].
func (t *tx) SaveEarly(ctx context.Context, answers ...*jobstore.EarlyAnswer) error {
	if err := t.writes("save early answers"); err != nil {
		return err
	}
	for _, e := range answers {
		if _, err := t.c.Exec(ctx, t.s.text.answers.saveEarly, e.Name, e.Key, string(e.Result), e.Refusal, e.Expires.UnixMicro()); err != nil {
			return t.fail("save early answers", err)
		}
	}
	return nil
}

// DeleteEarly deletes the early answer for a name and key. A missing answer is not an error.
// Returns ErrUnsupported in a View. A database error fails the transaction, and later calls return
// it. It implements [jobstore.AnswerTx].
func (t *tx) DeleteEarly(ctx context.Context, name, key string) error {
	if err := t.writes("delete an early answer"); err != nil {
		return err
	}
	_, err := t.c.Exec(ctx, t.s.text.answers.deleteEarly, name, key)
	return t.fail("delete an early answer", err)
}

// ExpireEarly deletes at most limit answers that expire at or before by, the oldest first, and
// returns them. It stops after the answer with which their results reach size bytes. On PostgreSQL
// it skips locked answers. Returns ErrUnsupported in a View. A database error fails the
// transaction, and later calls return it. It implements [jobstore.AnswerTx].
func (t *tx) ExpireEarly(ctx context.Context, by time.Time, limit, size int) ([]jobstore.EarlyAnswer, error) {
	if err := t.writes("expire early answers"); err != nil {
		return nil, err
	}
	gone, err := t.earlyAnswers(ctx, t.s.text.answers.expireEarly, by.UnixMicro(), limit, size)
	return gone, t.fail("expire early answers", err)
}

// DeferralOf returns the open deferral for a name and key. If no such deferral is open, it returns
// the deferral that was settled last, or nil. It locks nothing. An invalid name or key has no
// record. A database error fails the transaction, and later calls return it. It implements
// [jobstore.AnswerTx].
func (t *tx) DeferralOf(ctx context.Context, name, key string) (*jobstore.Deferral, error) {
	if !possible(name) || !possibleKey(key) {
		return nil, t.err
	}
	for _, query := range []string{t.s.text.answers.openDeferral, t.s.text.answers.lastDeferral} {
		found, err := t.readDeferrals(ctx, query, name, key)
		if err != nil {
			return nil, err
		}
		if len(found) > 0 {
			return &found[0], nil
		}
	}
	return nil, nil
}

// Deferrals returns the existing deferrals of the tasks, in the order of task ids. Except in a
// View it locks them, and waits for other holders. A database error fails the transaction, and
// later calls return it. It implements [jobstore.AnswerTx].
func (t *tx) Deferrals(ctx context.Context, tasks ...task.ID) ([]jobstore.Deferral, error) {
	if len(tasks) == 0 {
		return nil, t.err
	}
	return t.lockDeferrals(ctx, t.s.text.answers.deferrals, t.taskList(tasks))
}

// FreeDeferrals returns and locks the deferrals of the tasks as Deferrals does, but leaves out
// those that other transactions have locked. It does not wait. On SQLite it is Deferrals. It
// implements [jobstore.HastyLocker].
func (t *tx) FreeDeferrals(ctx context.Context, tasks ...task.ID) ([]jobstore.Deferral, error) {
	if len(tasks) == 0 {
		return nil, t.err
	}
	return t.lockDeferrals(ctx, t.s.text.answers.freeOnes, t.taskList(tasks))
}

// DueDeferrals returns at most limit deferrals of the queue that are due at or before by, the
// first due first. Except in a View it locks them, and skips those that others have locked. A
// database error fails the transaction, and later calls return it. It implements
// [jobstore.AnswerTx].
func (t *tx) DueDeferrals(ctx context.Context, queue string, by time.Time, limit int) ([]jobstore.Deferral, error) {
	return t.lockDeferrals(ctx, t.s.text.answers.dueDeferrals, queue, by.UnixMicro(), limit)
}

// AwaitingDeferrals returns at most limit deferrals of the queue in the phase AWAITING with a task
// id above after, in the order of task ids. It locks nothing. A database error fails the
// transaction, and later calls return it. It implements [jobstore.AnswerTx].
func (t *tx) AwaitingDeferrals(ctx context.Context, queue string, after task.ID, limit int) ([]jobstore.Deferral, error) {
	return t.readDeferrals(ctx, t.s.text.answers.awaiting, queue, string(after), limit)
}

// lockDeferrals runs a query that locks deferrals, stores copies of them in t.waits, and returns
// them. In a View it removes the lock clause from the query and stores nothing. An error fails the
// transaction.
func (t *tx) lockDeferrals(ctx context.Context, query string, args ...any) (found []jobstore.Deferral, err error) {
	if t.view {
		query, _, _ = strings.Cut(query, " FOR UPDATE")
		return t.readDeferrals(ctx, query, args...)
	}
	found, err = t.readDeferrals(ctx, query, args...)
	for i := range found {
		t.noteDeferral(&found[i])
	}
	return found, err
}

// noteDeferral stores a copy of d in t.waits, with which SaveDeferrals later compares. Call it for
// a deferral that this transaction has locked, with its stored values.
func (t *tx) noteDeferral(d *jobstore.Deferral) {
	if t.waits == nil {
		t.waits = make(map[task.ID]*jobstore.Deferral)
	}
	t.waits[d.Task] = new(*d)
}

// taskList returns the ids as one argument of a statement: an array for PostgreSQL, JSON for
// SQLite.
func (t *tx) taskList(tasks []task.ID) any {
	ids := make([]string, len(tasks))
	for i, id := range tasks {
		ids[i] = string(id)
	}
	if t.s.lite {
		return asJSON(ids)
	}
	return ids
}

// readDeferrals runs a query with args and returns the deferrals of its rows. The query must return
// deferralList. Returns the earlier error of a failed transaction. An error fails the transaction.
func (t *tx) readDeferrals(ctx context.Context, query string, args ...any) (found []jobstore.Deferral, err error) {
	if t.err != nil {
		return nil, t.err
	}
	rows, err := t.c.Query(ctx, query, args...)
	if err != nil {
		return nil, t.fail("deferrals", err)
	}
	for rows.Next() {
		found = append(found, jobstore.Deferral{})
		if err := scanDeferral(rows, &found[len(found)-1]); err != nil {
			return nil, t.fail("deferrals", err)
		}
	}
	return found, t.fail("deferrals", errors.Join(rows.Err(), rows.Close()))
}

// scanDeferral reads the columns of deferralList of the present row into d. An empty answer and an
// empty state become nil. Missing times become zero. Returns the error of the row, which does not
// fail the transaction.
func scanDeferral(rows sqlconn.Rows, d *jobstore.Deferral) error {
	var id, phase, verdict string
	var generation, atMostOnce, claimed, deadline, due, expires int64
	if err := rows.Scan(
		&id, &d.Queue, &d.Name, &generation, &atMostOnce, &d.Key, &phase, &verdict, &d.Answer, &d.Refusal, &claimed, &d.Fence, &deadline, &due, &expires, &d.State,
	); err != nil {
		return err
	}
	d.Task, d.Phase, d.Verdict = task.ID(id), jobstore.DeferralPhase(phase), jobstore.Verdict(verdict)
	d.Generation, d.AtMostOnce, d.Claimed = int(generation), atMostOnce != 0, claimed != 0
	d.Deadline, d.Due, d.Expires = moment(deadline), moment(due), moment(expires)
	if len(d.Answer) == 0 {
		d.Answer = nil
	}
	if len(d.State) == 0 {
		d.State = nil
	}
	return nil
}

// SaveDeferrals inserts or updates the deferrals. If only moved columns (see deferralColumns)
// differ from the stored row, it writes these columns alone. It also stores copies in t.waits.
// After the commit the watchers are called for deferrals that are due. Returns ErrUnsupported in a
// View. A database error fails the transaction, and later calls return it. It implements
// [jobstore.AnswerTx].
func (t *tx) SaveDeferrals(ctx context.Context, deferrals ...*jobstore.Deferral) error {
	if err := t.writes("save deferrals"); err != nil || len(deferrals) == 0 {
		return err
	}
	var whole, moved [][]any
	for _, d := range deferrals {
		now := deferralValues(d)
		if t.onlyMoved(d, now) {
			moved = append(moved, movedValues(now))
		} else {
			whole = append(whole, now)
		}
		t.noteDeferral(d)
	}
	err := t.writeDeferrals(ctx, t.s.text.answers.saveDeferral, whole, deferralKinds(false))
	if err == nil {
		err = t.writeDeferrals(ctx, t.s.text.answers.moveDeferral, moved, deferralKinds(true))
	}
	if err != nil {
		return t.fail("save deferrals", err)
	}
	now := moment(t.clock())
	for _, d := range deferrals {
		t.noteWord(d.Word(now))
	}
	return nil
}

// onlyMoved reports whether d differs from the stored deferral in moved columns alone, or not at
// all. now holds the values of d. Returns false if this transaction has not locked the deferral.
func (t *tx) onlyMoved(d *jobstore.Deferral, now []any) bool {
	was := t.waits[d.Task]
	if was == nil {
		return false
	}
	for i, v := range deferralValues(was) {
		if v != now[i] && !deferralColumns[i].moved {
			return false
		}
	}
	return true
}

// movedValues returns those of the values of a deferral that are in moved columns, followed by the
// task: the arguments of moveDeferral.
func movedValues(values []any) (some []any) {
	for i, v := range values {
		if deferralColumns[i].moved {
			some = append(some, v)
		}
	}
	return append(some, values[0])
}

// deferralKinds returns the column types of a deferral. If moved is set, it returns the types of
// the moved columns, followed by the task's type.
func deferralKinds(moved bool) (kinds []string) {
	for _, c := range deferralColumns {
		if !moved || c.moved {
			kinds = append(kinds, c.kind)
		}
	}
	if moved {
		kinds = append(kinds, deferralColumns[0].kind)
	}
	return kinds
}

// writeDeferrals runs query for the rows of values: once for all rows on PostgreSQL, once per row
// on SQLite. kinds holds the column types. Without rows it does nothing. An error does not fail the
// transaction.
func (t *tx) writeDeferrals(ctx context.Context, query string, rows [][]any, kinds []string) error {
	if len(rows) == 0 {
		return nil
	}
	if !t.s.lite {
		_, err := t.c.Exec(ctx, query, arrays(rows, kinds)...)
		return err
	}
	for _, values := range rows {
		if _, err := t.c.Exec(ctx, query, values...); err != nil {
			return err
		}
	}
	return nil
}

// DeleteDeferrals deletes the deferrals of the tasks, and their copies in t.waits. Missing
// deferrals are ignored. Returns ErrUnsupported in a View. A database error fails the transaction,
// and later calls return it. It implements [jobstore.AnswerTx].
func (t *tx) DeleteDeferrals(ctx context.Context, tasks ...task.ID) error {
	if err := t.writes("delete deferrals"); err != nil || len(tasks) == 0 {
		return err
	}
	tasks = slices.Sorted(slices.Values(tasks))
	for _, id := range tasks {
		delete(t.waits, id)
	}
	_, err := t.c.Exec(ctx, t.s.text.answers.deleteMany, t.taskList(tasks))
	return t.fail("delete deferrals", err)
}

// ExpireDeferrals deletes at most limit deferrals that expire at or before by, the oldest first,
// and returns their number. On PostgreSQL it skips locked ones. Returns ErrUnsupported in a View.
// A database error fails the transaction, and later calls return it. It implements
// [jobstore.AnswerTx].
func (t *tx) ExpireDeferrals(ctx context.Context, by time.Time, limit int) (int, error) {
	if err := t.writes("expire deferrals"); err != nil {
		return 0, err
	}
	n, err := t.c.Exec(ctx, t.s.text.answers.expireMany, by.UnixMicro(), limit)
	return int(n), t.fail("expire deferrals", err)
}
