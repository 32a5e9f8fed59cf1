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

// tx is a transaction that changes jobs: at once, and back if it fails. It holds the table, so that everything is locked.
type tx struct {
	finder

	core   *core
	undo   []change
	last   time.Time // what Now answered last
	spoilt error     // why nothing of it may stay
	over   bool

	undoneAnswers []answerChange // what early answers and deferrals were, in the order of the changes
	undoLeases    []*jobstore.QueueLease
	words         []string // of deferrals and leases that were saved
}

// change is what a job was before it was changed. nil: there was none.
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

// ready returns why nothing can be done.
func (tx *tx) ready(ctx context.Context) error {
	if tx.over {
		return errOver
	}
	if tx.spoilt != nil {
		return tx.spoilt
	}
	if ctx.Err() != nil {
		return tx.spoil(fmt.Errorf("memjobs: %w: %w", jobstore.ErrUnavailable, context.Cause(ctx)))
	}
	return nil
}

// errOver is for who keeps a transaction for later.
var errOver = fmt.Errorf("memjobs: the transaction has ended: %w", jobstore.ErrClosed)

func (tx *tx) spoil(err error) error {
	tx.spoilt = err
	return err
}

// rollback undoes everything.
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

// woken returns the names of the jobs that have a Due which they had not before, and the words of queues that are to be looked at; nil if
// there are many of them.
func (tx *tx) woken() (names []string, some bool) {
	names = slices.Compact(slices.Sorted(slices.Values(tx.words)))
	seen := map[string]bool{}
	first := map[jobstore.ID]bool{}
	for _, c := range tx.undo {
		if first[c.id] {
			continue // what it was before the transaction counts
		}
		first[c.id] = true
		r := tx.core.table.byID[c.id]
		if r == nil {
			continue
		}
		if word := tx.word(c.before, &r.job); word != "" && !seen[word] {
			seen[word] = true
			names = append(names, word)
		}
	}
	if len(names) > 100 {
		return nil, true
	}
	return names, len(names) > 0
}

// word is what is told of a job that was changed; "": nothing.
func (tx *tx) word(before, after *jobstore.Row) string {
	if before != nil && before.Due.Equal(after.Due) && before.Name == after.Name && before.Queue == after.Queue && (after.Queue == "" || before.State == after.State) {
		return ""
	}
	return after.Word(tx.now())
}

// Now implements [jobstore.Tx].
func (tx *tx) Now(ctx context.Context) (time.Time, error) {
	if err := tx.ready(ctx); err != nil {
		return time.Time{}, err
	}
	return tx.now(), nil
}

func (tx *tx) now() time.Time {
	if t := tx.core.time(); t.After(tx.last) {
		tx.last = t
	}
	return tx.last
}

// Lock implements [jobstore.Tx]. There is one transaction at a time.
func (tx *tx) Lock(ctx context.Context, names ...string) error {
	if err := tx.ready(ctx); err != nil {
		return err
	}
	for _, name := range names {
		if name == "" || len(name) > maxLock {
			return tx.spoil(fmt.Errorf("memjobs: %w: the name of a lock has %d bytes, not 1 to %d", jobstore.ErrBadJob, len(name), maxLock))
		}
	}
	return nil
}

// maxLock is how many bytes the name of a lock has at most.
const maxLock = 300

// Get implements [jobstore.Tx].
func (tx *tx) Get(ctx context.Context, id jobstore.ID) (jobstore.Row, error) {
	if err := tx.ready(ctx); err != nil {
		return jobstore.Row{}, err
	}
	return tx.core.get(id)
}

func (c *core) get(id jobstore.ID) (jobstore.Row, error) {
	r := c.table.byID[id]
	if r == nil {
		return jobstore.Row{}, fmt.Errorf("memjobs: %w: %d", jobstore.ErrNotFound, id)
	}
	return clone(&r.job), nil
}

// clone is a job that shares nothing that can be written to.
func clone(j *jobstore.Row) jobstore.Row {
	c := *j
	c.Data = bytes.Clone(j.Data)
	c.Answer = bytes.Clone(j.Answer)
	c.Message = ""
	return c
}

// Messages implements [jobstore.Tx].
func (tx *tx) Messages(ctx context.Context, ids ...jobstore.ID) (map[jobstore.ID][]byte, error) {
	if err := tx.ready(ctx); err != nil {
		return nil, err
	}
	return tx.core.messages(ids), nil
}

func (c *core) messages(ids []jobstore.ID) map[jobstore.ID][]byte {
	found := map[jobstore.ID][]byte{}
	for _, id := range ids {
		if r := c.table.byID[id]; r != nil && r.job.Message != "" {
			found[id] = []byte(r.job.Message)
		}
	}
	return found
}

// until is the latest Due that is asked for.
func until(by time.Time, now func() time.Time) int64 {
	if by.IsZero() {
		return micros(now())
	}
	return micros(by)
}

// Save implements [jobstore.Tx].
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
		return tx.spoil(fmt.Errorf("memjobs: %w", err))
	}
	if missing != 0 {
		return fmt.Errorf("memjobs: %w: %d", jobstore.ErrNotFound, missing)
	}
	for _, j := range list {
		if j.ID == 0 {
			t.last++
			j.ID = t.last
		}
		tx.put(kept(j))
	}
	return nil
}

// kept is a job as the table keeps it.
func kept(j *jobstore.Row) jobstore.Row {
	c := clone(j)
	c.Message = j.Message
	for _, at := range []*time.Time{&c.Created, &c.Changed, &c.NextRun, &c.LastRun, &c.Scheduled, &c.Due, &c.Deadline, &c.Expires} {
		*at = exact(*at)
	}
	c.Timeout = c.Timeout.Truncate(time.Microsecond)
	return c
}

// put writes a job, whose bytes are the table's own, and notes what was there.
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

// remove takes a job away, if it is there, and notes it.
func (tx *tx) remove(id jobstore.ID) {
	if r := tx.core.table.byID[id]; r != nil {
		tx.undo = append(tx.undo, change{id: id, before: &r.job})
		tx.core.table.remove(r)
	}
}

// Delete implements [jobstore.Tx].
func (tx *tx) Delete(ctx context.Context, ids ...jobstore.ID) error {
	if err := tx.ready(ctx); err != nil {
		return err
	}
	for _, id := range ids {
		tx.remove(id)
	}
	return nil
}

// ExpireJobs implements [jobstore.Tx].
func (tx *tx) ExpireJobs(ctx context.Context, by time.Time, limit int) (int, error) {
	if err := tx.ready(ctx); err != nil {
		return 0, err
	}
	if err := limited(limit, 1); err != nil {
		return 0, tx.spoil(err)
	}
	gone := tx.core.table.expired(by, limit)
	for _, r := range gone {
		tx.remove(r.job.ID)
	}
	return len(gone), nil
}

// Take implements [jobstore.Taker].
func (tx *tx) Take(ctx context.Context, d jobstore.Due, limit int, lease time.Duration) (taken []jobstore.Row, rest bool, err error) {
	if err := tx.ready(ctx); err != nil {
		return nil, false, err
	}
	if limit < 1 || lease < 0 {
		return nil, false, tx.spoil(fmt.Errorf("memjobs: %w: %d jobs for %v", jobstore.ErrBadJob, limit, lease))
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

// Drop implements [jobstore.Dropper].
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

// Weigh implements [jobstore.Weigher].
func (tx *tx) Weigh(ctx context.Context, queue string) (n, weight int64, err error) {
	if err := tx.ready(ctx); err != nil {
		return 0, 0, err
	}
	n, weight = tx.core.table.weigh(queue)
	return n, weight, nil
}

// view is a transaction that only reads. It holds the table for each call alone.
type view struct {
	finder

	core *core

	mu   sync.Mutex
	last time.Time
	over bool
}

func (v *view) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.over = true
}

// read runs fn with the table.
func (v *view) read(ctx context.Context, fn func()) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.over {
		return errOver
	}
	if err := v.core.enter(ctx); err != nil {
		return err
	}
	defer v.core.leave()
	fn()
	return nil
}

func (v *view) now() time.Time {
	if t := v.core.time(); t.After(v.last) {
		v.last = t
	}
	return v.last
}

// Now implements [jobstore.Tx].
func (v *view) Now(ctx context.Context) (now time.Time, err error) {
	err = v.read(ctx, func() { now = v.now() })
	return now, err
}

// Get implements [jobstore.Tx].
func (v *view) Get(ctx context.Context, id jobstore.ID) (j jobstore.Row, err error) {
	var missing error
	err = v.read(ctx, func() { j, missing = v.core.get(id) })
	return j, errors.Join(err, missing)
}

// Messages implements [jobstore.Tx].
func (v *view) Messages(ctx context.Context, ids ...jobstore.ID) (found map[jobstore.ID][]byte, err error) {
	err = v.read(ctx, func() { found = v.core.messages(ids) })
	return found, err
}

// Weigh implements [jobstore.Weigher].
func (v *view) Weigh(ctx context.Context, queue string) (n, weight int64, err error) {
	err = v.read(ctx, func() { n, weight = v.core.table.weigh(queue) })
	return n, weight, err
}

// Lock implements [jobstore.Tx]: who reads locks nothing.
func (v *view) Lock(context.Context, ...string) error { return errReads }

// Save implements [jobstore.Tx].
func (v *view) Save(context.Context, ...*jobstore.Row) error { return errReads }

// Delete implements [jobstore.Tx].
func (v *view) Delete(context.Context, ...jobstore.ID) error { return errReads }

// ExpireJobs implements [jobstore.Tx].
func (v *view) ExpireJobs(context.Context, time.Time, int) (int, error) { return 0, errReads }

// errReads is for who writes in a View.
var errReads = fmt.Errorf("memjobs: %w: View only reads, Update writes", jobstore.ErrUnsupported)
