package sqljobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

const (
	// chunk is the maximum number of jobs that one statement writes on PostgreSQL.
	chunk = 500
	// chunkBytes is the size of data at which a chunk ends. The last job may exceed it.
	chunkBytes = 4 << 20
)

// Save inserts jobs with id 0 and their messages, and sets their ids. It updates the other jobs,
// whose messages stay. After the commit the watchers are called for jobs that have a Due or belong
// to a queue, see [jobstore.Row.Word]. It implements [jobstore.Tx].
//
// Returns ErrBadJob, joined, for invalid jobs; nothing is then written. Returns ErrNotFound if a
// job to update does not exist; others may then be written. Returns ErrUnsupported in a View. Each
// error except ErrNotFound, also one of the database, fails the transaction.
func (t *tx) Save(ctx context.Context, all ...*jobstore.Row) error {
	if err := t.writes("save"); err != nil {
		return err
	}
	var errs []error
	var made []*jobstore.Row // new jobs with a message
	for _, j := range all {
		if j.ID == 0 && j.Message != "" {
			made = append(made, j)
		}
		if j.ID < 0 {
			errs = append(errs, fmt.Errorf("%w: the id %d", jobstore.ErrBadJob, j.ID))
		}
		errs = append(errs, j.Check())
	}
	if err := errors.Join(errs...); err != nil {
		return t.fail("save", err)
	}
	var err error
	switch {
	case len(all) == 1:
		err = t.saveOne(ctx, all[0])
	case t.s.lite:
		err = t.saveEach(ctx, all)
	default:
		err = t.saveAll(ctx, all)
	}
	if err == nil {
		err = t.saveMessages(ctx, made)
	}
	if err != nil {
		if errors.Is(err, jobstore.ErrNotFound) {
			return err
		}
		return t.fail("save", err)
	}
	if t.s.lite && !t.s.watch.any() {
		return nil // nothing to notify without watchers
	}
	for _, j := range all {
		t.noteWake(j)
	}
	return nil
}

// saveMessages inserts the messages of new jobs into their own table. Their ids must be set.
// Returns the first error of the database.
func (t *tx) saveMessages(ctx context.Context, made []*jobstore.Row) error {
	return inChunks(made, func(part []*jobstore.Row) error {
		ids, messages := make([]int64, len(part)), make([]string, len(part))
		for i, j := range part {
			ids[i], messages[i] = int64(j.ID), j.Message
		}
		if !t.s.lite {
			_, err := t.c.Exec(ctx, t.s.text.addMessage, ids, messages)
			return err
		}
		for i := range ids {
			if _, err := t.c.Exec(ctx, t.s.text.addMessage, ids[i], messages[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// noteWake notes the wake-up word of j (jobstore.Row.Word), with which the watchers are called
// after the commit (noteWord). A job without such a word is ignored.
func (t *tx) noteWake(j *jobstore.Row) {
	var now time.Time
	if j.Queue != "" {
		now = moment(t.clock())
	}
	t.noteWord(j.Word(now))
}

// noteWord notes a wake-up word, a text that says which watchers must wake, once per transaction.
// The watchers of this process get it after the commit. On PostgreSQL it also queues a notification
// for other processes. An empty word is ignored.
func (t *tx) noteWord(word string) {
	if word == "" || slices.Contains(t.given, word) {
		return
	}
	t.given = append(t.given, word)
	if !t.s.lite {
		t.c.Notify(topic + word)
	}
}

// notFound returns the error for a job to update that does not exist. It wraps ErrNotFound and
// names the id.
func notFound(id jobstore.ID) error { return fmt.Errorf("save %d: %w", id, jobstore.ErrNotFound) }

// renamed reports whether the name of j may differ from the stored name and must be added to the
// names. It returns true for jobs that this transaction has not locked.
func (t *tx) renamed(j *jobstore.Row) bool {
	was := t.had[j.ID]
	return was == nil || was.Name != j.Name
}

// saveEach saves jobs one after the other, and stops at the first error. SQLite uses it.
func (t *tx) saveEach(ctx context.Context, all []*jobstore.Row) error {
	for _, j := range all {
		if err := t.saveOne(ctx, j); err != nil {
			return err
		}
	}
	return nil
}

// saveOne inserts j if its id is 0, else updates it, and notes the stored values for later saves
// (note). An update adds a new name to the table of names and writes only changed groups of
// columns. It does not write j.Message. Returns ErrNotFound if the job to update does not exist,
// and errors of the database.
func (t *tx) saveOne(ctx context.Context, j *jobstore.Row) error {
	if j.ID == 0 {
		return t.insert(ctx, j)
	}
	if t.renamed(j) {
		if err := t.addNames(ctx, []string{j.Name}); err != nil {
			return err
		}
	}
	now := values(j)
	g := t.changed(j, now)
	n, err := t.c.Exec(ctx, t.s.text.update[g], append(g.of(now), int64(j.ID))...)
	switch {
	case err != nil:
		return err
	case n == 0:
		return notFound(j.ID)
	}
	t.note(j)
	return nil
}

// insert inserts one job and its name, and sets its id. It counts a new name in t.fresh and notes
// the stored values for later saves (note). It does not insert the message. Returns errors of the
// database.
func (t *tx) insert(ctx context.Context, j *jobstore.Row) error {
	query, args := t.s.text.insert, values(j)
	if isBasic(j) {
		query, args = t.s.text.insertBasic, args[:basic]
	}
	if !t.s.lite {
		args = append(args, t.nameKey(j.Name))
	}
	var id, known int64
	if err := t.c.Row(ctx, query, args...).Scan(&id, &known); err != nil {
		return err
	}
	if known == 0 {
		t.fresh++
		if t.s.lite { // on PostgreSQL the INSERT statement adds the name
			if _, err := t.c.Exec(ctx, t.s.text.addName, j.Name); err != nil {
				return err
			}
		}
	}
	j.ID = jobstore.ID(id)
	t.note(j)
	return nil
}

// addNames adds those of the names that are missing to the table of names, and counts them in
// t.fresh. On PostgreSQL it locks the names against a sweep. It writes in sorted order to avoid
// deadlocks, and sorts the slice. Returns errors of the database.
func (t *tx) addNames(ctx context.Context, names []string) error {
	slices.Sort(names)
	names = slices.Compact(names)
	if t.s.lite {
		for _, name := range names {
			n, err := t.c.Exec(ctx, t.s.text.addName, name)
			if err != nil {
				return err
			}
			t.fresh += int(n)
		}
		return nil
	}
	keys := make([]int64, len(names))
	for i, name := range names {
		keys[i] = t.nameKey(name)
	}
	var fresh int
	err := t.c.Row(ctx, t.s.text.addNames, names, keys).Scan(&fresh)
	t.fresh += fresh
	return err
}

// saveAll writes jobs to PostgreSQL, at most chunk jobs per statement: it adds their names,
// inserts new jobs and updates the others. If an id occurs twice, only the last job with it is
// written. Returns ErrNotFound if a job to update does not exist, and errors of the database.
// Without jobs it does nothing.
func (t *tx) saveAll(ctx context.Context, all []*jobstore.Row) error {
	if len(all) == 0 {
		return nil
	}
	var fresh, old []*jobstore.Row
	var names []string
	for _, j := range all {
		if j.ID == 0 {
			fresh, names = append(fresh, j), append(names, j.Name)
			continue
		}
		old = append(old, j)
		if t.renamed(j) {
			names = append(names, j.Name)
		}
	}
	if len(names) > 0 {
		if err := t.addNames(ctx, names); err != nil {
			return err
		}
	}
	if err := inChunks(fresh, func(part []*jobstore.Row) error { return t.insertMany(ctx, part) }); err != nil {
		return err
	}
	return inChunks(lastOfEach(old), func(part []*jobstore.Row) error { return t.updateMany(ctx, part) })
}

// lastOfEach returns, for each id that occurs in all, the last job with this id. The result is
// sorted by id. It leaves all unchanged.
func lastOfEach(all []*jobstore.Row) []*jobstore.Row {
	seen := make(map[jobstore.ID]struct{}, len(all))
	var last []*jobstore.Row
	for _, j := range slices.Backward(all) {
		if _, ok := seen[j.ID]; !ok {
			seen[j.ID] = struct{}{}
			last = append(last, j)
		}
	}
	slices.SortFunc(last, func(a, b *jobstore.Row) int { return cmp.Compare(a.ID, b.ID) })
	return last
}

// inChunks calls do with consecutive parts of all, and stops at the first error. A part has at most
// chunk jobs, and ends at chunkBytes of data and messages. It does not call do without jobs.
func inChunks(all []*jobstore.Row, do func([]*jobstore.Row) error) error {
	for len(all) > 0 {
		n, size := 0, 0
		for n < len(all) && n < chunk && size < chunkBytes {
			size += len(all[n].Data) + len(all[n].Message)
			n++
		}
		if err := do(all[:n]); err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

// arrays converts rows to one array per column, in which nil stands for NULL. kinds holds the types
// of the columns. Types other than text become int64.
func arrays(rows [][]any, kinds []string) []any {
	cols := make([]any, len(kinds))
	for c, kind := range kinds {
		if kind == "text" {
			cols[c] = column[string](rows, c)
		} else {
			cols[c] = column[int64](rows, c)
		}
	}
	return cols
}

// column returns column c of the rows as an array. An entry that is not a T, such as NULL, becomes
// nil.
func column[T any](rows [][]any, c int) []*T {
	col := make([]*T, len(rows))
	for i := range rows {
		if v, ok := rows[i][c].(T); ok {
			col[i] = &v
		}
	}
	return col
}

// insertMany inserts jobs with one statement, sets their ids, ascending in the order of all, and
// notes the stored values for later saves (note). The names must be stored already. PostgreSQL
// alone uses it. Returns errors of the database.
func (t *tx) insertMany(ctx context.Context, all []*jobstore.Row) error {
	given := make([][]any, len(all))
	for i, j := range all {
		given[i] = values(j)
	}
	rows, err := t.c.Query(ctx, t.s.text.insertMany, arrays(given, everyGroup.kinds())...)
	if err != nil {
		return err
	}
	ids := make([]int64, 0, len(all))
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return err
		}
		ids = append(ids, id)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	slices.Sort(ids)
	for i, j := range all {
		j.ID = jobstore.ID(ids[i])
		t.note(j)
	}
	return nil
}

// updateMany updates jobs, each id once, and notes the stored values for later saves (note). It
// runs a second statement for the jobs whose long texts are unchanged, so these texts are not
// written again. Returns ErrNotFound, which names the first id of the statement, if any of its jobs
// does not exist; others may be written then. Returns errors of the database. PostgreSQL alone uses
// it.
func (t *tx) updateMany(ctx context.Context, all []*jobstore.Row) error {
	var parts [2]struct {
		changed groups
		ids     []int64
		rows    [][]any
	}
	for _, j := range all {
		now := values(j)
		g := t.changed(j, now)
		p := &parts[0]
		if g&content == 0 && len(j.Data)+len(j.Answer) > longText {
			p = &parts[1]
		}
		p.changed |= g
		p.ids, p.rows = append(p.ids, int64(j.ID)), append(p.rows, now)
	}
	for _, p := range parts {
		if len(p.ids) == 0 {
			continue
		}
		for i := range p.rows {
			p.rows[i] = p.changed.of(p.rows[i])
		}
		n, err := t.c.Exec(ctx, t.s.text.updateMany[p.changed], append(arrays(p.rows, p.changed.kinds()), p.ids)...)
		if err == nil && int(n) != len(p.ids) {
			err = notFound(jobstore.ID(p.ids[0]))
		}
		if err != nil {
			return err
		}
	}
	for _, j := range all {
		t.note(j)
	}
	return nil
}

// longText is the size in bytes from which on unchanged texts justify a second statement.
// PostgreSQL stores such texts outside the row.
const longText = 2000

// changed returns the groups of columns in which j differs from the stored job; lease is always
// among them. now holds the values of j. For a job that this transaction has not locked it returns
// all groups.
func (t *tx) changed(j *jobstore.Row, now []any) groups {
	was := t.had[j.ID]
	if was == nil {
		return everyGroup
	}
	g := lease
	for i, v := range values(was) {
		if v != now[i] {
			g |= stored[i].group
		}
	}
	return g
}
