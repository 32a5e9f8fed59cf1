package memjobs

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// answerTable contains early answers and deferrals. One goroutine at a time uses it.
type answerTable struct {
	early      map[[2]string]*jobstore.EarlyAnswer // by name and key
	deferrals  map[task.ID]*deferral
	byKey      map[[2]string]map[*deferral]struct{} // by name and key
	due        map[string]*orderOf[*deferral]       // those with a Due, by the broker's queue
	expires    orderOf[*deferral]
	lastNumber jobstore.ID
}

// deferral is a stored deferral. A change replaces it by a new one.
type deferral struct {
	jobstore.Deferral
	number jobstore.ID // numbers deferrals in the order of their creation
}

// newAnswerTable returns an empty table.
func newAnswerTable() answerTable {
	return answerTable{
		early: map[[2]string]*jobstore.EarlyAnswer{}, deferrals: map[task.ID]*deferral{}, byKey: map[[2]string]map[*deferral]struct{}{},
		due: map[string]*orderOf[*deferral]{},
	}
}

// at returns the entry of d in an order by the time t.
func (d *deferral) at(t time.Time) placeOf[*deferral] {
	return placeOf[*deferral]{major: micros(t), id: d.number, rec: d}
}

// put replaces the deferral of a task by now, or deletes it if now is nil. It updates all indexes
// and keeps the number of a replaced deferral; a new one gets the next number. The table keeps the
// memory of now. It returns the previous deferral, or nil. Call it with the table locked.
func (t *answerTable) put(id task.ID, now *jobstore.Deferral) (before *jobstore.Deferral) {
	old := t.deferrals[id]
	if old != nil {
		before = &old.Deferral
		t.unlink(old)
		delete(t.deferrals, id)
	}
	if now == nil {
		return before
	}
	d := &deferral{Deferral: *now}
	if old != nil {
		d.number = old.number
	} else {
		t.lastNumber++
		d.number = t.lastNumber
	}
	t.deferrals[id] = d
	t.link(d)
	return before
}

// link adds a deferral to the indexes by key, Due and Expires. A zero Due or Expires is not
// indexed. Call it with the table locked.
func (t *answerTable) link(d *deferral) {
	k := [2]string{d.Name, d.Key}
	if t.byKey[k] == nil {
		t.byKey[k] = map[*deferral]struct{}{}
	}
	t.byKey[k][d] = struct{}{}
	if !d.Due.IsZero() {
		if t.due[d.Queue] == nil {
			t.due[d.Queue] = &orderOf[*deferral]{}
		}
		t.due[d.Queue].add(d.at(d.Due))
	}
	if !d.Expires.IsZero() {
		t.expires.add(d.at(d.Expires))
	}
}

// unlink removes a deferral from the indexes by key, Due and Expires, and deletes indexes that
// become empty. Call it with the table locked.
func (t *answerTable) unlink(d *deferral) {
	k := [2]string{d.Name, d.Key}
	if delete(t.byKey[k], d); len(t.byKey[k]) == 0 {
		delete(t.byKey, k)
	}
	if o := t.due[d.Queue]; o != nil && !d.Due.IsZero() {
		if o.remove(d.at(d.Due)); o.n == 0 {
			delete(t.due, d.Queue)
		}
	}
	if !d.Expires.IsZero() {
		t.expires.remove(d.at(d.Expires))
	}
}

// of returns a copy of the open deferral with a name and a key. If no such deferral is open, it
// returns a copy of the one with the latest Expires, which was settled last. nil: no deferral has
// the key. Call it with the table locked.
func (t *answerTable) of(name, key string) *jobstore.Deferral {
	var last *deferral
	for d := range t.byKey[[2]string{name, key}] {
		if d.Open() {
			return copyDeferral(&d.Deferral)
		}
		if last == nil || d.Expires.After(last.Expires) {
			last = d
		}
	}
	if last == nil {
		return nil
	}
	return copyDeferral(&last.Deferral)
}

// open returns the tasks of the open deferrals of groups that are ByKey. Other groups, and groups
// without an open deferral, are left out. Call it with the table locked.
func (t *answerTable) open(groups []jobstore.Group) map[jobstore.Group]task.ID {
	found := map[jobstore.Group]task.ID{}
	for _, g := range groups {
		for d := range t.byKey[[2]string{g.Name, g.Key}] {
			if d.Open() && g.By == jobstore.ByKey {
				found[g] = d.Task
			}
		}
	}
	return found
}

// ofTasks returns copies of the deferrals of tasks in the order of their ids, each once. Missing
// ones are left out. Call it with the table locked.
func (t *answerTable) ofTasks(tasks []task.ID) (found []jobstore.Deferral) {
	for _, id := range slices.Compact(slices.Sorted(slices.Values(tasks))) {
		if d := t.deferrals[id]; d != nil {
			found = append(found, *copyDeferral(&d.Deferral))
		}
	}
	return found
}

// dueBy returns copies of up to limit deferrals of a broker's queue whose Due is set and not after
// by, in the order of Due. Call it with the table locked.
func (t *answerTable) dueBy(queue string, by time.Time, limit int) (found []jobstore.Deferral) {
	o := t.due[queue]
	if o == nil {
		return nil
	}
	for e := range o.from(placeOf[*deferral]{}) {
		if e.major > micros(by) || len(found) == limit {
			break
		}
		found = append(found, *copyDeferral(&e.rec.Deferral))
	}
	return found
}

// awaiting returns copies of up to limit deferrals of a broker's queue in phase DeferralAwaiting,
// in the order of task ids after the given one. Call it with the table locked.
func (t *answerTable) awaiting(queue string, after task.ID, limit int) (found []jobstore.Deferral) {
	for id, d := range t.deferrals {
		if d.Queue == queue && d.Phase == jobstore.DeferralAwaiting && id > after {
			found = append(found, *copyDeferral(&d.Deferral))
		}
	}
	slices.SortFunc(found, func(a, b jobstore.Deferral) int { return cmp.Compare(a.Task, b.Task) })
	return found[:min(len(found), limit)]
}

// copyDeferral returns a copy that shares no memory with d. Its times are in UTC, cut to
// microseconds.
func copyDeferral(d *jobstore.Deferral) *jobstore.Deferral {
	c := *d
	c.Answer, c.State = bytes.Clone(d.Answer), bytes.Clone(d.State)
	c.Deadline, c.Due, c.Expires = exact(d.Deadline), exact(d.Due), exact(d.Expires)
	return &c
}

// copyEarly returns a copy that shares no memory with e. Its time is in UTC, cut to microseconds.
func copyEarly(e *jobstore.EarlyAnswer) *jobstore.EarlyAnswer {
	c := *e
	c.Result, c.Expires = bytes.Clone(e.Result), exact(e.Expires)
	return &c
}

// answerChange is the previous state of an early answer or a deferral, for a rollback.
type answerChange struct {
	key      [2]string
	early    *jobstore.EarlyAnswer
	id       task.ID // "": it is an early answer
	deferral *jobstore.Deferral
}

// undoAnswers undoes all changes of early answers and deferrals in this transaction, the last one
// first, and clears the record of changes.
func (tx *tx) undoAnswers() {
	t := &tx.core.table.answerTable
	for _, c := range slices.Backward(tx.undoneAnswers) {
		switch {
		case c.id != "":
			t.put(c.id, c.deferral)
		case c.early == nil:
			delete(t.early, c.key)
		default:
			t.early[c.key] = c.early
		}
	}
	tx.undoneAnswers = nil
}

// Early returns a copy of the early answer to a name and a key, expired or not. Returns nil if no
// such answer exists. Returns the error of ready if the transaction cannot be used. It implements
// [jobstore.AnswerTx].
func (tx *tx) Early(ctx context.Context, name, key string) (*jobstore.EarlyAnswer, error) {
	if err := tx.ready(ctx); err != nil {
		return nil, err
	}
	return tx.core.earlyOf(name, key), nil
}

// earlyOf returns a copy of the early answer to a name and a key, expired or not, or nil. Call it
// with the table locked.
func (c *core) earlyOf(name, key string) *jobstore.EarlyAnswer {
	if e := c.table.answerTable.early[[2]string{name, key}]; e != nil {
		return copyEarly(e)
	}
	return nil
}

// SaveEarly stores copies of early answers. Each replaces the early answer to its name and key. It
// records the previous state for a rollback. Returns the error of ready if the transaction cannot
// be used. It implements [jobstore.AnswerTx].
func (tx *tx) SaveEarly(ctx context.Context, answers ...*jobstore.EarlyAnswer) error {
	if err := tx.ready(ctx); err != nil {
		return err
	}
	for _, e := range answers {
		tx.setEarly([2]string{e.Name, e.Key}, copyEarly(e))
	}
	return nil
}

// setEarly stores an early answer under a name and a key, or deletes it if e is nil. It records the
// previous one for a rollback.
func (tx *tx) setEarly(key [2]string, e *jobstore.EarlyAnswer) {
	t := &tx.core.table.answerTable
	tx.undoneAnswers = append(tx.undoneAnswers, answerChange{key: key, early: t.early[key]})
	if e == nil {
		delete(t.early, key)
		return
	}
	t.early[key] = e
}

// DeleteEarly deletes the early answer to a name and a key, if it exists. It records the previous
// state for a rollback. Returns the error of ready if the transaction cannot be used. It
// implements [jobstore.AnswerTx].
func (tx *tx) DeleteEarly(ctx context.Context, name, key string) error {
	if err := tx.ready(ctx); err != nil {
		return err
	}
	tx.setEarly([2]string{name, key}, nil)
	return nil
}

// ExpireEarly deletes early answers whose Expires is not after by, the earliest first, and returns
// them. It deletes at most limit answers and stops once their Results have size bytes in total. It
// records the previous state for a rollback. Returns the error of ready if the transaction cannot
// be used. It implements [jobstore.AnswerTx].
func (tx *tx) ExpireEarly(ctx context.Context, by time.Time, limit, size int) (gone []jobstore.EarlyAnswer, err error) {
	if err := tx.ready(ctx); err != nil {
		return nil, err
	}
	var all []*jobstore.EarlyAnswer
	for _, e := range tx.core.table.answerTable.early {
		if !e.Expires.After(by) {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b *jobstore.EarlyAnswer) int { return a.Expires.Compare(b.Expires) })
	for _, e := range all[:min(len(all), limit)] {
		if size <= 0 {
			break
		}
		size -= len(e.Result)
		gone = append(gone, *copyEarly(e))
	}
	for i := range gone {
		tx.setEarly([2]string{gone[i].Name, gone[i].Key}, nil)
	}
	return gone, nil
}

// DeferralOf returns a copy of the open deferral with a name and a key. If no such deferral is
// open, it returns the one that was settled last, or nil. Returns the error of ready if the
// transaction cannot be used. It implements [jobstore.AnswerTx].
func (tx *tx) DeferralOf(ctx context.Context, name, key string) (*jobstore.Deferral, error) {
	if err := tx.ready(ctx); err != nil {
		return nil, err
	}
	return tx.core.table.answerTable.of(name, key), nil
}

// OpenDeferrals returns the tasks of the open deferrals of groups. Groups without an open deferral
// are left out. Returns the error of ready if the transaction cannot be used. It implements
// [jobstore.AnswerTx].
func (tx *tx) OpenDeferrals(ctx context.Context, groups ...jobstore.Group) (map[jobstore.Group]task.ID, error) {
	if err := tx.ready(ctx); err != nil {
		return nil, err
	}
	return tx.core.table.answerTable.open(groups), nil
}

// Deferrals returns copies of the deferrals of tasks in the order of their ids. Missing ones are
// left out. Returns the error of ready if the transaction cannot be used. It implements
// [jobstore.AnswerTx].
func (tx *tx) Deferrals(ctx context.Context, tasks ...task.ID) ([]jobstore.Deferral, error) {
	if err := tx.ready(ctx); err != nil {
		return nil, err
	}
	return tx.core.table.answerTable.ofTasks(tasks), nil
}

// DueDeferrals returns copies of up to limit deferrals of a broker's queue whose Due is set and
// not after by, in the order of Due. Returns the error of ready if the transaction cannot be used.
// It implements [jobstore.AnswerTx].
func (tx *tx) DueDeferrals(ctx context.Context, queue string, by time.Time, limit int) ([]jobstore.Deferral, error) {
	if err := tx.ready(ctx); err != nil {
		return nil, err
	}
	return tx.core.table.answerTable.dueBy(queue, by, limit), nil
}

// AwaitingDeferrals returns copies of up to limit deferrals of a broker's queue in phase
// DeferralAwaiting, in the order of task ids after the given one. Returns the error of ready if
// the transaction cannot be used. It implements [jobstore.AnswerTx].
func (tx *tx) AwaitingDeferrals(ctx context.Context, queue string, after task.ID, limit int) ([]jobstore.Deferral, error) {
	if err := tx.ready(ctx); err != nil {
		return nil, err
	}
	return tx.core.table.answerTable.awaiting(queue, after, limit), nil
}

// SaveDeferrals stores copies of deferrals, each in place of the deferral of its task, which it
// records for a rollback. If one is due now, watchers are called with the text of its queue after
// the commit. Returns the error of ready if the transaction cannot be used. It implements
// [jobstore.AnswerTx].
func (tx *tx) SaveDeferrals(ctx context.Context, deferrals ...*jobstore.Deferral) error {
	if err := tx.ready(ctx); err != nil {
		return err
	}
	for _, d := range deferrals {
		tx.setDeferral(d.Task, copyDeferral(d))
		if word := d.Word(tx.now()); word != "" {
			tx.words = append(tx.words, word)
		}
	}
	return nil
}

// setDeferral stores the deferral of a task, or deletes it if d is nil. It records the previous one
// for a rollback.
func (tx *tx) setDeferral(id task.ID, d *jobstore.Deferral) {
	before := tx.core.table.answerTable.put(id, d)
	tx.undoneAnswers = append(tx.undoneAnswers, answerChange{id: id, deferral: before})
}

// DeleteDeferrals deletes the deferrals of tasks. Missing ones are ignored. It records the
// previous state for a rollback. Returns the error of ready if the transaction cannot be used. It
// implements [jobstore.AnswerTx].
func (tx *tx) DeleteDeferrals(ctx context.Context, tasks ...task.ID) error {
	if err := tx.ready(ctx); err != nil {
		return err
	}
	for _, id := range tasks {
		tx.setDeferral(id, nil)
	}
	return nil
}

// ExpireDeferrals deletes up to limit deferrals whose Expires is set and not after by, the
// earliest first. It returns their number. It records the previous state for a rollback. Returns
// the error of ready if the transaction cannot be used. It implements [jobstore.AnswerTx].
func (tx *tx) ExpireDeferrals(ctx context.Context, by time.Time, limit int) (int, error) {
	if err := tx.ready(ctx); err != nil {
		return 0, err
	}
	var gone []task.ID
	for e := range tx.core.table.answerTable.expires.from(placeOf[*deferral]{}) {
		if e.major > micros(by) || len(gone) == limit {
			break
		}
		gone = append(gone, e.rec.Task)
	}
	return len(gone), tx.DeleteDeferrals(ctx, gone...)
}

// Early returns a copy of the early answer to a name and a key, expired or not. Returns nil if no
// such answer exists. It waits for the lock of the table. Returns the error of read if the view
// cannot be used. It implements [jobstore.AnswerTx].
func (v *view) Early(ctx context.Context, name, key string) (e *jobstore.EarlyAnswer, err error) {
	err = v.read(ctx, func() { e = v.core.earlyOf(name, key) })
	return e, err
}

// DeferralOf returns a copy of the open deferral with a name and a key. If no such deferral is
// open, it returns the one that was settled last, or nil. It waits for the lock of the table.
// Returns the error of read if the view cannot be used. It implements [jobstore.AnswerTx].
func (v *view) DeferralOf(ctx context.Context, name, key string) (d *jobstore.Deferral, err error) {
	err = v.read(ctx, func() { d = v.core.table.answerTable.of(name, key) })
	return d, err
}

// OpenDeferrals returns the tasks of the open deferrals of groups. Groups without an open deferral
// are left out. It waits for the lock of the table. Returns the error of read if the view cannot
// be used. It implements [jobstore.AnswerTx].
func (v *view) OpenDeferrals(ctx context.Context, groups ...jobstore.Group) (found map[jobstore.Group]task.ID, err error) {
	err = v.read(ctx, func() { found = v.core.table.answerTable.open(groups) })
	return found, err
}

// Deferrals returns copies of the deferrals of tasks in the order of their ids. Missing ones are
// left out. It waits for the lock of the table. Returns the error of read if the view cannot be
// used. It implements [jobstore.AnswerTx].
func (v *view) Deferrals(ctx context.Context, tasks ...task.ID) (found []jobstore.Deferral, err error) {
	err = v.read(ctx, func() { found = v.core.table.answerTable.ofTasks(tasks) })
	return found, err
}

// DueDeferrals returns up to limit deferrals of a broker's queue that are due at by, in the order
// of Due. It waits for the lock of the table. Returns the error of read if the view cannot be
// used. It implements [jobstore.AnswerTx].
func (v *view) DueDeferrals(ctx context.Context, queue string, by time.Time, limit int) (found []jobstore.Deferral, err error) {
	err = v.read(ctx, func() { found = v.core.table.answerTable.dueBy(queue, by, limit) })
	return found, err
}

// AwaitingDeferrals returns up to limit deferrals of a broker's queue in phase DeferralAwaiting,
// in the order of task ids after the given one. It waits for the lock of the table. Returns the
// error of read if the view cannot be used. It implements [jobstore.AnswerTx].
func (v *view) AwaitingDeferrals(ctx context.Context, queue string, after task.ID, limit int) (found []jobstore.Deferral, err error) {
	err = v.read(ctx, func() { found = v.core.table.answerTable.awaiting(queue, after, limit) })
	return found, err
}

// SaveEarly returns errReads, since a View cannot write.
func (v *view) SaveEarly(context.Context, ...*jobstore.EarlyAnswer) error { return errReads }

// DeleteEarly returns errReads, since a View cannot write.
func (v *view) DeleteEarly(context.Context, string, string) error { return errReads }

// ExpireEarly returns errReads, since a View cannot write.
func (v *view) ExpireEarly(context.Context, time.Time, int, int) ([]jobstore.EarlyAnswer, error) {
	return nil, errReads
}

// SaveDeferrals returns errReads, since a View cannot write.
func (v *view) SaveDeferrals(context.Context, ...*jobstore.Deferral) error { return errReads }

// DeleteDeferrals returns errReads, since a View cannot write.
func (v *view) DeleteDeferrals(context.Context, ...task.ID) error { return errReads }

// ExpireDeferrals returns errReads, since a View cannot write.
func (v *view) ExpireDeferrals(context.Context, time.Time, int) (int, error) { return 0, errReads }
