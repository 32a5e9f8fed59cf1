package memjobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// tx is a transaction that changes jobs in place and undoes the changes if it fails. It holds the
// table locked, so locks of rows and names need no work. Each exported method first calls ready and
// returns its error.
type tx struct {
	finder

	core   *core
	undo   []change
	last   time.Time // the last result of Now
	failed error     // the error for which the transaction cannot commit
	over   bool

	// previous states of early answers and deferrals, in the order of the changes
	undoneAnswers []answerChange
	undoLeases    []*jobstore.QueueLease
	words         []string // notifications for saved deferrals and leases
}

// change is the previous state of a job. before is nil if the job is new.
type change struct {
	id     jobstore.ID
	before *jobstore.Row
}

var (
	_ jobstore.Taker   = (*tx)(nil)
	_ jobstore.Dropper = (*tx)(nil)
	_ jobstore.Weigher = (*tx)(nil)
	_ jobstore.Weigher = (*view)(nil)
)

// ready returns nil if the transaction can be used. Otherwise it returns errOver after its end, the
// earlier error if it has failed, or ErrUnavailable if ctx has ended. In the last case the
// transaction fails and cannot commit.
func (tx *tx) ready(ctx context.Context) error {
	if tx.over {
		return errOver
	}
	if tx.failed != nil {
		return tx.failed
	}
	if ctx.Err() != nil {
		return tx.fail(fmt.Errorf("memjobs: %w: %w", jobstore.ErrUnavailable, context.Cause(ctx)))
	}
	return nil
}

// errOver is the error of a transaction that is used after its end.
var errOver = fmt.Errorf("memjobs: the transaction has ended: %w", jobstore.ErrClosed)

// fail records err, so that the transaction cannot commit and later calls return err. It undoes
// nothing yet. It returns err.
func (tx *tx) fail(err error) error {
	tx.failed = err
	return err
}

// rollback undoes all changes of jobs, early answers, deferrals and leases, the last one first.
// Used ids are not used again. Call it with the table locked.
func (tx *tx) rollback() {
	t := tx.core.table
	for i := len(tx.undo) - 1; i >= 0; i-- {
		c := tx.undo[i]
		r := t.byID[c.id]
		switch {
		case c.before == nil:
			t.remove(r)
		case r == nil:
			t.insert(*c.before)
		default:
			t.replace(r, *c.before)
		}
	}
	tx.undo = nil
	tx.undoAnswers()
	tx.rollbackLeases()
}

// notifications returns the texts for watchers, each once: the texts of changed jobs (notification)
// and the recorded texts of deferrals and leases. Deleted jobs have no text. some reports whether
// watchers must be called. More than 100 texts become nil, which means any text.
func (tx *tx) notifications() (names []string, some bool) {
	slices.Sort(tx.words)
	names = slices.Compact(tx.words)
	seen := map[string]bool{}
	first := map[jobstore.ID]bool{}
	for _, c := range tx.undo {
		if first[c.id] {
			continue // only the state before the transaction counts
		}
		first[c.id] = true
		r := tx.core.table.byID[c.id]
		if r == nil {
			continue
		}
		if word := tx.notification(c.before, &r.job); word != "" && !seen[word] {
			seen[word] = true
			names = append(names, word)
		}
	}
	if len(names) > 100 {
		return nil, true
	}
	return names, len(names) > 0
}

// notification returns the text for watchers after the change of a job (Row.Word); before is nil
// for a new job. It is "", which means no text, if Due, Name and Queue are equal, and also State
// for a job of a queue.
func (tx *tx) notification(before, after *jobstore.Row) string {
	if before != nil && before.Due.Equal(after.Due) && before.Name == after.Name && before.Queue == after.Queue && (after.Queue == "" || before.State == after.State) {
		return ""
	}
	return after.Word(tx.now())
}

// Now returns the store's time in microseconds, which never goes backwards in a transaction.
// Returns the error of ready. It implements [jobstore.Tx].
func (tx *tx) Now(ctx context.Context) (time.Time, error) {
	if err := tx.ready(ctx); err != nil {
		return time.Time{}, err
	}
	return tx.now(), nil
}

// now returns the store's time, but never a time before the last result. It does not check that the
// transaction can be used.
func (tx *tx) now() time.Time {
	if t := tx.core.time(); t.After(tx.last) {
		tx.last = t
	}
	return tx.last
}

// Lock only checks the names, since one transaction runs at a time. A name that is empty or above
// maxLock bytes is an ErrBadJob, and the transaction cannot commit. Returns the error of ready if
// the transaction cannot be used. It implements [jobstore.Tx].
func (tx *tx) Lock(ctx context.Context, names ...string) error {
	if err := tx.ready(ctx); err != nil {
		return err
	}
	for _, name := range names {
		if name == "" || len(name) > maxLock {
			return tx.fail(fmt.Errorf("memjobs: %w: the name of a lock has %d bytes, not 1 to %d", jobstore.ErrBadJob, len(name), maxLock))
		}
	}
	return nil
}

// maxLock limits the bytes of the name of a lock.
const maxLock = 300

// Get returns a copy of a job without its Message. Returns ErrNotFound if the job does not exist;
// the transaction can still commit. Returns the error of ready if the transaction cannot be used.
// It implements [jobstore.Tx].
func (tx *tx) Get(ctx context.Context, id jobstore.ID) (jobstore.Row, error) {
	if err := tx.ready(ctx); err != nil {
		return jobstore.Row{}, err
	}
	return tx.core.get(id)
}

// get returns a copy of a job without its Message, or ErrNotFound. Call it with the table locked.
func (c *core) get(id jobstore.ID) (jobstore.Row, error) {
	r := c.table.byID[id]
	if r == nil {
		return jobstore.Row{}, fmt.Errorf("memjobs: %w: %d", jobstore.ErrNotFound, id)
	}
	return clone(&r.job), nil
}

// clone returns a copy of j without Message that shares no memory with j.
func clone(j *jobstore.Row) jobstore.Row {
	c := *j
	c.Data = bytes.Clone(j.Data)
	c.Answer = bytes.Clone(j.Answer)
	c.Message = ""
	return c
}

// Messages returns copies of the messages of these jobs, by id. Missing jobs and jobs without a
// message are left out. Returns the error of ready if the transaction cannot be used. It
// implements [jobstore.Tx].
func (tx *tx) Messages(ctx context.Context, ids ...jobstore.ID) (map[jobstore.ID][]byte, error) {
	if err := tx.ready(ctx); err != nil {
		return nil, err
	}
	return tx.core.messages(ids), nil
}

// messages returns copies of the messages of these jobs, by id. Missing jobs and jobs without a
// message are left out. Call it with the table locked.
func (c *core) messages(ids []jobstore.ID) map[jobstore.ID][]byte {
	found := map[jobstore.ID][]byte{}
	for _, id := range ids {
		if r := c.table.byID[id]; r != nil && r.job.Message != "" {
			found[id] = []byte(r.job.Message)
		}
	}
	return found
}

// until returns the latest wanted Due in microseconds: by, or the result of now for a zero by.
func until(by time.Time, now func() time.Time) int64 {
	if by.IsZero() {
		return micros(now())
	}
	return micros(by)
}

// Save checks all jobs, then stores copies of them. It sets the ID of each new job to the next
// number. An existing job keeps its Message. It records the previous jobs for a rollback.
//
// Returns the joined errors of Row.Check, which prevent the commit. Returns ErrNotFound if a job
// with an ID does not exist; nothing is then stored, and the transaction can still commit. Returns
// the error of ready if the transaction cannot be used. It implements [jobstore.Tx].
func (tx *tx) Save(ctx context.Context, list ...*jobstore.Row) error {
	if err := tx.ready(ctx); err != nil {
		return err
	}
	t := tx.core.table
	var errs []error
	missing := jobstore.ID(0)
	for _, j := range list {
		errs = append(errs, j.Check())
		if j.ID != 0 && t.byID[j.ID] == nil {
			missing = j.ID
		}
	}
	if err := errors.Join(errs...); err != nil {
		return tx.fail(fmt.Errorf("memjobs: %w", err))
	}
	if missing != 0 {
		return fmt.Errorf("memjobs: %w: %d", jobstore.ErrNotFound, missing)
	}
	for _, j := range list {
		if j.ID == 0 {
			t.last++
			j.ID = t.last
		}
		tx.put(stored(j))
	}
	return nil
}

// stored returns a copy of a job as the table stores it, its Message included. It shares no memory
// with j. Times are in UTC; they and Timeout are cut to microseconds.
func stored(j *jobstore.Row) jobstore.Row {
	c := clone(j)
	c.Message = j.Message
	for _, at := range []*time.Time{&c.Created, &c.Changed, &c.NextRun, &c.LastRun, &c.Scheduled, &c.Due, &c.Deadline, &c.Expires} {
		*at = exact(*at)
	}
	c.Timeout = c.Timeout.Truncate(time.Microsecond)
	return c
}

// put stores j, whose memory must not be shared, as a new job or in place of the job with its ID.
// An existing job keeps its Message. It records the previous state for a rollback. The indexes are
// updated.
func (tx *tx) put(j jobstore.Row) {
	t := tx.core.table
	r := t.byID[j.ID]
	if r == nil {
		tx.undo = append(tx.undo, change{id: j.ID})
		t.insert(j)
		return
	}
	before := r.job
	j.Message = before.Message
	tx.undo = append(tx.undo, change{id: j.ID, before: &before})
	t.replace(r, j)
}

// remove deletes a job and records the previous state for a rollback. It does nothing if the job
// does not exist.
func (tx *tx) remove(id jobstore.ID) {
	if r := tx.core.table.byID[id]; r != nil {
		tx.undo = append(tx.undo, change{id: id, before: &r.job})
		tx.core.table.remove(r)
	}
}

// Delete deletes jobs with their Messages, and records them for a rollback. Missing ids are
// ignored. Returns the error of ready if the transaction cannot be used. It implements
// [jobstore.Tx].
func (tx *tx) Delete(ctx context.Context, ids ...jobstore.ID) error {
	if err := tx.ready(ctx); err != nil {
		return err
	}
	for _, id := range ids {
		tx.remove(id)
	}
	return nil
}

// ExpireJobs deletes up to limit jobs whose Expires is set and not after by, the earliest first,
// and returns their number. A limit below 1 is an ErrBadJob, and the transaction cannot commit.
// Returns the error of ready if the transaction cannot be used. It implements [jobstore.Tx].
func (tx *tx) ExpireJobs(ctx context.Context, by time.Time, limit int) (int, error) {
	if err := tx.ready(ctx); err != nil {
		return 0, err
	}
	if err := checkLimit(limit, 1); err != nil {
		return 0, tx.fail(err)
	}
	gone := tx.core.table.expired(by, limit)
	for _, r := range gone {
		tx.remove(r.job.ID)
	}
	return len(gone), nil
}

// Take claims up to limit due jobs that are simple, and returns copies of them after the claim.
// Simple means here: without RetryAfter, Parent and children. It stops before the first other job;
// rest is then true. Without a lease (0) a job gets no Due. [jobstore.Taker] lists the fields that
// a claim changes.
//
// A limit below 1 or a negative lease is an ErrBadJob, and the transaction cannot commit. Returns
// the error of ready if the transaction cannot be used. It implements [jobstore.Taker].
func (tx *tx) Take(ctx context.Context, d jobstore.Due, limit int, lease time.Duration) (taken []jobstore.Row, rest bool, err error) {
	if err := tx.ready(ctx); err != nil {
		return nil, false, err
	}
	if limit < 1 || lease < 0 {
		return nil, false, tx.fail(fmt.Errorf("memjobs: %w: a limit of %d jobs, or a lease of %v, is too small", jobstore.ErrBadJob, limit, lease))
	}
	now := tx.now()
	for _, r := range tx.core.table.findDue(&d.Selector, until(d.By, tx.now), limit) {
		j := r.job
		if j.RetryAfter != "" || j.Parent != 0 || j.HasChildren {
			return taken, true, nil
		}
		if j.State == jobstore.Queued {
			j.Run++
			j.Scheduled = j.NextRun
		}
		if j.State != jobstore.Running {
			j.Attempt++
		}
		j.State, j.LastRun, j.Changed, j.Due = jobstore.Running, now, now, time.Time{}
		j.Token++
		if lease > 0 {
			j.Due = exact(now.Add(lease))
		}
		tx.put(j)
		taken = append(taken, clone(&j))
	}
	return taken, false, nil
}

// Drop deletes a job if it is simple (Row.Simple), runs, and has this token; a token of 0 matches
// any. It reports whether it did. A missing job is not an error. Returns the error of ready if the
// transaction cannot be used. It implements [jobstore.Dropper].
func (tx *tx) Drop(ctx context.Context, id jobstore.ID, token int64) (bool, error) {
	if err := tx.ready(ctx); err != nil {
		return false, err
	}
	r := tx.core.table.byID[id]
	if r == nil || !r.job.Simple() || !r.job.State.Runs() || token != 0 && token != r.job.Token {
		return false, nil
	}
	tx.remove(id)
	return true, nil
}

// Weigh implements [jobstore.Weigher]. It returns the number of running jobs of a queue (RUNNING
// and RUNQUEUED) and the sum of their weights; both are 0 for an unknown queue. The transaction
// already holds the lock of the table. Returns the error of ready if the transaction cannot be
// used. If ctx has ended, the transaction fails and cannot commit.
func (tx *tx) Weigh(ctx context.Context, queue string) (n, weight int64, err error) {
	if err := tx.ready(ctx); err != nil {
		return 0, 0, err
	}
	n, weight = tx.core.table.weigh(queue)
	return n, weight, nil
}

// view is a transaction that only reads. It locks the table during each call only. Each exported
// method that reads returns ErrClosed after the end of the view, and ErrUnavailable if ctx ends
// first.
type view struct {
	finder

	core *core

	mu   sync.Mutex
	last time.Time
	over bool
}

// end makes later calls of the view return errOver. It takes v.mu.
func (v *view) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.over = true
}

// read calls fn with v.mu and the table locked, and waits for both, so concurrent calls of a view
// run one after the other. The wait for v.mu does not end with ctx. Returns errOver (an ErrClosed)
// after the end of the view, and ErrUnavailable if ctx ends first; fn is then not called.
func (v *view) read(ctx context.Context, fn func()) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.over {
		return errOver
	}
	if err := v.core.lock(ctx); err != nil {
		return err
	}
	defer v.core.unlock()
	fn()
	return nil
}

// now returns the store's time, but never a time before the last result. Call it with the table
// locked.
func (v *view) now() time.Time {
	if t := v.core.time(); t.After(v.last) {
		v.last = t
	}
	return v.last
}

// Now returns the store's time, which never goes backwards in a transaction. It waits for the lock
// of the table. Returns the error of read if the view cannot be used. It implements [jobstore.Tx].
func (v *view) Now(ctx context.Context) (now time.Time, err error) {
	err = v.read(ctx, func() { now = v.now() })
	return now, err
}

// Get returns a copy of a job without its Message, or ErrNotFound. It waits for the lock of the
// table. Returns the error of read if the view cannot be used. It implements [jobstore.Tx].
func (v *view) Get(ctx context.Context, id jobstore.ID) (j jobstore.Row, err error) {
	var missing error
	err = v.read(ctx, func() { j, missing = v.core.get(id) })
	return j, errors.Join(err, missing)
}

// Messages returns copies of the messages of these jobs, by id. Missing jobs and jobs without a
// message are left out. It waits for the lock of the table. Returns the error of read if the view
// cannot be used. It implements [jobstore.Tx].
func (v *view) Messages(ctx context.Context, ids ...jobstore.ID) (found map[jobstore.ID][]byte, err error) {
	err = v.read(ctx, func() { found = v.core.messages(ids) })
	return found, err
}

// Weigh returns the number of running jobs of a queue (RUNNING and RUNQUEUED) and the sum of their
// weights. It waits for the lock of the table. Returns the error of read if the view cannot be
// used. It implements [jobstore.Weigher].
func (v *view) Weigh(ctx context.Context, queue string) (n, weight int64, err error) {
	err = v.read(ctx, func() { n, weight = v.core.table.weigh(queue) })
	return n, weight, err
}

// Lock returns errReads, since a View locks nothing.
func (v *view) Lock(context.Context, ...string) error { return errReads }

// Save returns errReads, since a View cannot write.
func (v *view) Save(context.Context, ...*jobstore.Row) error { return errReads }

// Delete returns errReads, since a View cannot write.
func (v *view) Delete(context.Context, ...jobstore.ID) error { return errReads }

// ExpireJobs returns errReads, since a View cannot write.
func (v *view) ExpireJobs(context.Context, time.Time, int) (int, error) { return 0, errReads }

// errReads is the error of a write in a View.
var errReads = fmt.Errorf("memjobs: %w: View only reads, Update writes", jobstore.ErrUnsupported)
