package sqlbroker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/wake"
)

const (
	// maxBatch and maxBatchBytes limit one transaction of a batcher.
	maxBatch      = 1000
	maxBatchBytes = 4 << 20
)

// batcher sends entries to the database, many in one transaction. While one transaction is in
// progress, further entries are collected for the next. No timer is involved.
type batcher[T any] struct {
	b *Broker
	// send runs the statements for the entries and sets their errors. It may run more than once.
	send func(ctx context.Context, tx *sqlconn.Tx, es []*entry[T]) error
	// kind returns the kind of transaction that send needs for the entries.
	kind func(es []*entry[T]) transaction
	// size returns the approximate size of an entry, in bytes. nil: entries are small.
	size func(e *entry[T]) int
	// resend reports whether an entry is sent again after its transaction failed with err. nil: never.
	resend func(e *entry[T], err error) bool

	added wake.Signal // notified when entries are added

	mu      sync.Mutex
	pending []*entry[T]
	running bool          // the goroutine of run exists
	busy    bool          // entries are pending or in progress
	idle    chan struct{} // closed when no entry is pending; nil: no goroutine waits for that
}

// transaction is a method of sqlconn.Conn: Update, Single or View.
type transaction func(ctx context.Context, fn sqlconn.Func) error

// always returns a kind of transaction for all entries.
func always[T any](kind transaction) func([]*entry[T]) transaction {
	return func([]*entry[T]) transaction { return kind }
}

// entry is one of the requests that share a transaction.
type entry[T any] struct {
	v         T
	err       error // set by send, or before the call is done
	call      *call // nil: no caller waits
	maybeSent bool  // it was in a transaction of unknown outcome
	alone     bool  // it needs a transaction of its own
	// The following fields are guarded by the batcher's mu.
	inFlight  bool // it may be in a transaction
	finished  bool // err is final
	abandoned bool // its caller no longer waits
}

// call counts the unfinished entries for which one caller waits.
type call struct {
	left atomic.Int64
	done chan struct{}
}

// newCall returns a call for n entries.
func newCall(n int) *call {
	c := &call{done: make(chan struct{})}
	c.left.Store(int64(n))
	return c
}

// add appends entries to the pending ones, which are sent in this order. It does not block. It
// starts the sending goroutine if none runs. After Close the entries fail with errClosed. It takes
// t.mu.
func (t *batcher[T]) add(es ...*entry[T]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending = append(t.pending, es...)
	if t.busy || len(t.pending) == 0 {
		return
	}
	t.busy = true
	if t.running {
		t.added.Notify()
		return
	}
	if t.running = t.b.start(t.run); !t.running {
		t.failPending()
	}
}

// finish sets e.err to err and wakes the caller if e is the call's last unfinished entry. If e was
// in a transaction of unknown outcome, an error of the connection becomes ErrIndeterminate and
// wraps err. Call it once for each entry, with the batcher's mu held.
func (e *entry[T]) finish(err error) {
	if e.maybeSent && (errors.Is(err, sqlconn.ErrUnavailable) || errors.Is(err, errClosed)) {
		err = fmt.Errorf("%w: %w", sqlconn.ErrIndeterminate, err)
	}
	e.err, e.finished = err, true
	if e.call != nil && e.call.left.Add(-1) == 0 {
		close(e.call.done)
	}
}

// idleTimeout limits the time that the sending goroutine waits for further entries before it ends.
const idleTimeout = time.Second

// run sends the pending entries in transactions, until no entry was added for idleTimeout. It makes
// the tables first. It leaves out entries whose callers have gone.
//
// After a transaction of unknown outcome whose entries are sent again, it waits for the backoff
// time. If the Broker ends during that wait, run finishes all pending entries with errClosed and
// returns. It takes t.mu, but does not hold it while it waits.
func (t *batcher[T]) run() {
	timer := time.NewTimer(idleTimeout)
	defer timer.Stop()
	attempt := 0
	for {
		es := t.takePending()
		if es == nil {
			if !t.waitForMore(timer) {
				return
			}
			continue
		}
		var live []*entry[T]
		err := t.b.ready(t.b.calls)
		if err == nil {
			err = t.kind(es)(t.b.calls, func(ctx context.Context, tx *sqlconn.Tx) error {
				if live = t.begin(es); len(live) == 0 {
					return nil
				}
				return t.send(ctx, tx, live)
			})
		}
		if len(live) > 1 && sqlconn.IsLocked(err) {
			t.separate(es)
			continue
		}
		if !t.complete(es, t.b.asClosed(err)) {
			attempt = 0
			continue
		}
		if !t.b.pause(t.b.life, attempt) {
			t.mu.Lock()
			t.running = false
			t.failPending()
			t.mu.Unlock()
			return
		}
		attempt++
	}
}

// waitForMore blocks until an entry is added, and returns true then. It also returns after
// idleTimeout or when the Broker ends: true if entries are pending by then, false otherwise. Before
// it returns false it records that no goroutine runs: run must return. It takes t.mu.
func (t *batcher[T]) waitForMore(timer *time.Timer) bool {
	timer.Reset(idleTimeout)
	select {
	case <-t.added:
		return true
	case <-timer.C:
	case <-t.b.life.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running = t.busy
	return t.busy
}

// takePending removes the entries of the next transaction from the pending ones and returns them.
// If none is pending it records that the batcher is idle, wakes the callers of flush, and returns
// nil. It takes t.mu.
func (t *batcher[T]) takePending() []*entry[T] {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.pending) == 0 {
		t.setIdle()
		return nil
	}
	n := min(len(t.pending), maxBatch)
	if i := slices.IndexFunc(t.pending[:n], func(e *entry[T]) bool { return e.alone }); i >= 0 {
		n = max(i, 1)
	}
	if t.size != nil {
		bytes := t.size(t.pending[0])
		for i := 1; i < n; i++ {
			if bytes += t.size(t.pending[i]); bytes > maxBatchBytes {
				n = i
			}
		}
	}
	es := t.pending[:n:n]
	t.pending = t.pending[n:]
	return es
}

// begin returns the entries whose callers still wait and marks them as in flight. From then on they
// may be in the database. It takes t.mu.
func (t *batcher[T]) begin(es []*entry[T]) []*entry[T] {
	t.mu.Lock()
	defer t.mu.Unlock()
	live := make([]*entry[T], 0, len(es))
	for _, e := range es {
		if !e.abandoned {
			e.inFlight = true
			live = append(live, e)
		}
	}
	return live
}

// separate makes es pending again, in front, each for a transaction of its own: one of them waits
// for a lock that another transaction holds. It takes t.mu.
func (t *batcher[T]) separate(es []*entry[T]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range es {
		e.inFlight, e.alone = false, true
	}
	t.pending = append(es, t.pending...)
}

// setIdle records that no entry is pending or in progress, and wakes the callers of flush. Call it
// with t.mu held.
func (t *batcher[T]) setIdle() {
	t.pending, t.busy = nil, false
	if t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

// complete sets the results of es, the entries of the transaction that has just ended with err. It
// takes t.mu.
//
//   - Without err the entries are finished with their own errors.
//   - After err, each entry for which resend is true becomes pending again, in front.
//   - All others are finished with err.
//
// It returns true if entries must be sent again. The caller pauses before that.
func (t *batcher[T]) complete(es []*entry[T], err error) (again bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var back []*entry[T]
	for _, e := range es {
		e.inFlight = false
		switch {
		case err == nil:
			e.finish(e.err)
		case !e.abandoned && t.resend != nil && t.resend(e, err):
			e.maybeSent = e.maybeSent || errors.Is(err, sqlconn.ErrIndeterminate)
			back = append(back, e)
		default:
			e.finish(err)
		}
	}
	if len(back) > 0 {
		t.pending = append(back, t.pending...)
	}
	return len(back) > 0
}

// failPending finishes all pending entries with errClosed and wakes the callers of flush. Call it
// with t.mu held.
func (t *batcher[T]) failPending() {
	for _, e := range t.pending {
		e.finish(errClosed)
	}
	t.setIdle()
}

// wait blocks until all entries es of the call c are finished, and returns their errors, in the
// order of es. It takes t.mu.
//
// If ctx ends first it returns at once, and the entries are not sent again:
//
//   - A finished entry has its own error, nil for success.
//   - An entry that was never sent is withdrawn. Its error is sqlconn.ErrUnavailable.
//   - An entry that may be in the database has the error sqlconn.ErrIndeterminate.
func (t *batcher[T]) wait(ctx context.Context, c *call, es []*entry[T]) []error {
	errs := make([]error, len(es))
	select {
	case <-c.done:
		for i, e := range es {
			errs[i] = e.err
		}
		return errs
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending = slices.DeleteFunc(t.pending, func(e *entry[T]) bool { return e.call == c })
	for i, e := range es {
		e.abandoned = true
		switch {
		case e.finished:
			errs[i] = e.err
		case e.inFlight, e.maybeSent:
			errs[i] = errUnknown(ctx)
		default:
			errs[i] = errNotSent(ctx)
		}
	}
	return errs
}

// flush blocks until no entry is pending or in progress. Entries that are added meanwhile prolong
// it. Returns ctx's error if ctx ends first. It takes t.mu.
func (t *batcher[T]) flush(ctx context.Context) error {
	t.mu.Lock()
	if !t.busy {
		t.mu.Unlock()
		return nil
	}
	if t.idle == nil {
		t.idle = make(chan struct{})
	}
	idle := t.idle
	t.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
