package sqlconn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/internal/wake"
)

const (
	// maxBatch and maxBatchBytes limit one transaction of a batcher.
	maxBatch      = 1000
	maxBatchBytes = 4 << 20
)

// Batcher sends entries to the database, many in one transaction. While one transaction is in
// progress, further entries are collected for the next. No timer is involved. Set the exported
// fields before the first call. Safe for concurrent use.
type Batcher[T any] struct {
	Owner BatchOwner
	// Send runs the statements for the entries and sets their errors. It may run more than once.
	Send func(ctx context.Context, tx *Tx, es []*Entry[T]) error
	// Kind returns the kind of transaction that Send needs for the entries.
	Kind func(es []*Entry[T]) Transaction
	// Size returns the approximate size of an entry, in bytes. nil: entries are small.
	Size func(e *Entry[T]) int
	// Resend reports whether an entry is sent again after its transaction failed with err. nil: never.
	Resend func(e *Entry[T], err error) bool

	mu      sync.Mutex
	added   wake.Signal // notified when entries are added
	pending []*Entry[T]
	running bool          // the goroutine of run exists
	busy    bool          // entries are pending or in progress
	idle    chan struct{} // closed when no entry is pending; nil: no goroutine waits for that
}

// BatchOwner is the adapter of a [Batcher].
type BatchOwner struct {
	// Start runs the goroutine of the Batcher, and returns false if the adapter is closed.
	Start func(fn func()) bool
	// Ready makes the tables.
	Ready func(ctx context.Context) error
	// Pause blocks for the backoff time of an attempt. It returns false if the adapter is closed.
	Pause func(attempt int) bool
	Life  context.Context //nolint:containedctx // the goroutine waits for no entries after its end
	Calls context.Context //nolint:containedctx // of the statements; it ends after Life
	// Closed is the error of entries that the end of the adapter prevents.
	Closed error
}

// Transaction is a method of [Conn]: Update, Single or View.
type Transaction func(ctx context.Context, fn Func) error

// Always returns a function for Batcher.Kind that returns kind for all entries.
func Always[T any](kind Transaction) func([]*Entry[T]) Transaction {
	return func([]*Entry[T]) Transaction { return kind }
}

// Entry is one of the requests that share a transaction.
type Entry[T any] struct {
	V         T
	Err       error      // set by Send, or before the call is done
	Call      *BatchCall // nil: no caller waits
	MaybeSent bool       // it was in a transaction of unknown outcome
	alone     bool       // it needs a transaction of its own
	// The following fields are guarded by the batcher's mu.
	inFlight  bool // it may be in a transaction
	finished  bool // Err is final
	abandoned bool // its caller no longer waits
}

// BatchCall counts the unfinished entries for which one caller waits.
type BatchCall struct {
	left atomic.Int64
	done chan struct{}
}

// NewBatchCall returns a BatchCall for n entries.
func NewBatchCall(n int) *BatchCall {
	c := &BatchCall{done: make(chan struct{})}
	c.left.Store(int64(n))
	return c
}

// Add appends entries to the pending ones, which are sent in this order. It does not block. It
// starts the sending goroutine if none runs. After the end of the owner the entries fail with its
// Closed. It takes t.mu.
func (t *Batcher[T]) Add(es ...*Entry[T]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending = append(t.pending, es...)
	if t.busy || len(t.pending) == 0 {
		return
	}
	t.busy = true
	if t.added == nil {
		t.added = wake.New()
	}
	if t.running {
		t.added.Notify()
		return
	}
	if t.running = t.Owner.Start(t.run); !t.running {
		t.failPending()
	}
}

// finish sets e.Err to err and wakes the caller if e is the call's last unfinished entry. If e was
// in a transaction of unknown outcome, an error of the connection becomes ErrIndeterminate and
// wraps err. Call it once for each entry, with t.mu held.
func (t *Batcher[T]) finish(e *Entry[T], err error) {
	if e.MaybeSent && (errors.Is(err, ErrUnavailable) || errors.Is(err, t.Owner.Closed)) {
		err = fmt.Errorf("%w: %w", ErrIndeterminate, err)
	}
	e.Err, e.finished = err, true
	if e.Call != nil && e.Call.left.Add(-1) == 0 {
		close(e.Call.done)
	}
}

// idleTimeout limits the time that the sending goroutine waits for further entries before it ends.
const idleTimeout = time.Second

// run sends the pending entries in transactions, until no entry was added for idleTimeout. It makes
// the tables first. It leaves out entries whose callers have gone.
//
// Before it sends the entries of a failed transaction again, it waits for the backoff time. It does
// not wait if the first failure was a repeated key. If the owner ends during the wait, run finishes
// all pending entries with its Closed and returns. It takes t.mu, but does not hold it while it
// waits.
func (t *Batcher[T]) run() {
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
		var live []*Entry[T]
		err := t.Owner.Ready(t.Owner.Calls)
		if err == nil {
			err = t.Kind(es)(t.Owner.Calls, func(ctx context.Context, tx *Tx) error {
				if live = t.begin(es); len(live) == 0 {
					return nil
				}
				return t.Send(ctx, tx, live)
			})
		}
		if len(live) > 1 && IsLocked(err) {
			t.separate(es)
			continue
		}
		if !t.complete(es, t.asClosed(err)) {
			attempt = 0
			continue
		}
		if attempt == 0 && IsUnique(err) { // the next transaction has another statement
			attempt++
			continue
		}
		if !t.Owner.Pause(attempt) {
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
// idleTimeout or when the owner ends: true if entries are pending by then, false otherwise. Before
// it returns false it records that no goroutine runs: run must return. It takes t.mu.
func (t *Batcher[T]) waitForMore(timer *time.Timer) bool {
	timer.Reset(idleTimeout)
	select {
	case <-t.added:
		return true
	case <-timer.C:
	case <-t.Owner.Life.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running = t.busy
	return t.busy
}

// takePending removes the entries of the next transaction from the pending ones and returns them.
// If none is pending it records that the batcher is idle, wakes the callers of Flush, and returns
// nil. It takes t.mu.
func (t *Batcher[T]) takePending() []*Entry[T] {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.pending) == 0 {
		t.setIdle()
		return nil
	}
	n := min(len(t.pending), maxBatch)
	if i := slices.IndexFunc(t.pending[:n], func(e *Entry[T]) bool { return e.alone }); i >= 0 {
		n = max(i, 1)
	}
	if t.Size != nil {
		bytes := t.Size(t.pending[0])
		for i := 1; i < n; i++ {
			if bytes += t.Size(t.pending[i]); bytes > maxBatchBytes {
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
func (t *Batcher[T]) begin(es []*Entry[T]) []*Entry[T] {
	t.mu.Lock()
	defer t.mu.Unlock()
	live := make([]*Entry[T], 0, len(es))
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
func (t *Batcher[T]) separate(es []*Entry[T]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range es {
		e.inFlight, e.alone = false, true
	}
	t.pending = append(es, t.pending...)
}

// asClosed returns Closed of the owner if the owner has ended and err says that the database was
// not available. Otherwise it returns err.
func (t *Batcher[T]) asClosed(err error) error {
	if err != nil && t.Owner.Calls.Err() != nil && errors.Is(err, ErrUnavailable) {
		return t.Owner.Closed
	}
	return err
}

// setIdle records that no entry is pending or in progress, and wakes the callers of Flush. Call it
// with t.mu held.
func (t *Batcher[T]) setIdle() {
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
//   - After err, each entry for which Resend is true becomes pending again, in front.
//   - All others are finished with err.
//
// It returns true if entries must be sent again.
func (t *Batcher[T]) complete(es []*Entry[T], err error) (again bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var back []*Entry[T]
	for _, e := range es {
		e.inFlight = false
		switch {
		case err == nil:
			t.finish(e, e.Err)
		case !e.abandoned && t.Resend != nil && t.Resend(e, err):
			e.MaybeSent = e.MaybeSent || errors.Is(err, ErrIndeterminate)
			back = append(back, e)
		default:
			t.finish(e, err)
		}
	}
	if len(back) > 0 {
		t.pending = append(back, t.pending...)
	}
	return len(back) > 0
}

// failPending finishes all pending entries with Closed of the owner and wakes the callers of Flush.
// Call it with t.mu held.
func (t *Batcher[T]) failPending() {
	for _, e := range t.pending {
		t.finish(e, t.Owner.Closed)
	}
	t.setIdle()
}

// Wait blocks until all entries es of the call c are finished, and returns their errors, in the
// order of es. It takes t.mu.
//
// If ctx ends first it returns at once, and the entries are not sent again:
//
//   - A finished entry has its own error, nil for success.
//   - An entry that was never sent is withdrawn. Its error is ErrUnavailable.
//   - An entry that may be in the database has the error ErrIndeterminate.
func (t *Batcher[T]) Wait(ctx context.Context, c *BatchCall, es []*Entry[T]) []error {
	errs := make([]error, len(es))
	select {
	case <-c.done:
		for i, e := range es {
			errs[i] = e.Err
		}
		return errs
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending = slices.DeleteFunc(t.pending, func(e *Entry[T]) bool { return e.Call == c })
	for i, e := range es {
		e.abandoned = true
		switch {
		case e.finished:
			errs[i] = e.Err
		case e.inFlight, e.MaybeSent:
			errs[i] = &failure{ErrIndeterminate, ctx.Err()}
		default:
			errs[i] = Ended(ctx, nil)
		}
	}
	return errs
}

// Flush blocks until no entry is pending or in progress. Entries that are added meanwhile prolong
// it. Returns ctx's error if ctx ends first. It takes t.mu.
func (t *Batcher[T]) Flush(ctx context.Context) error {
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
