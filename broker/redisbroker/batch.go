package redisbroker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/internal/redisconn"
	"github.com/swarmiji/swarmiji/internal/wake"
)

// batcher sends entries to the server, many in one round trip. While one round trip is in progress,
// further entries are collected for the next. No timer is involved. Entries that were certainly not
// executed are sent again while a caller waits for them.
type batcher[T any] struct {
	b          *Broker
	ctx        context.Context // ends the batcher
	maxEntries int             // limit of entries in a round trip
	// send makes one round trip with some of the entries, from the first on. It sets their errors and
	// returns how many it sent. If the round trip failed it returns an error that applies to all
	// entries.
	send func(ctx context.Context, es []*entry[T]) (taken int, err error)
	// resend reports whether an entry is sent again after a round trip of unknown outcome. nil: never.
	resend func(e *entry[T]) bool

	added wake.Signal // notified when entries are added

	mu      sync.Mutex
	pending []*entry[T]
	running bool          // the goroutine of run exists
	busy    bool          // entries are pending or in progress
	lastErr error         // error of the last round trip, while it is repeated
	idle    chan struct{} // closed when no entry is pending; nil: no goroutine waits for that
}

// entry is one of the requests that share a round trip.
type entry[T any] struct {
	v         T
	err       error // set by send, or before the call is done
	call      *call // nil: no caller waits
	maybeSent bool  // it was in a round trip of unknown outcome
	inFlight  bool  // it is in a round trip; guarded by the batcher's mu
	abandoned bool  // its caller no longer waits; guarded by the batcher's mu
}

// call counts the unfinished entries for which one caller waits.
type call struct {
	left atomic.Int64
	done chan struct{}
}

// newCall returns a call that is done when n entries are finished.
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
// in a round trip of unknown outcome, an error becomes ErrIndeterminate and wraps err. Call it once
// for each entry, with the batcher's mu held.
func (e *entry[T]) finish(err error) {
	if err != nil && e.maybeSent && !errors.Is(err, redisconn.ErrIndeterminate) {
		err = fmt.Errorf("%w: %w", redisconn.ErrIndeterminate, err)
	}
	e.err = err
	if e.call != nil && e.call.left.Add(-1) == 0 {
		close(e.call.done)
	}
}

// idleTimeout limits the time that the sending goroutine waits for further entries before it ends.
// A new goroutine would have to grow its stack again.
const idleTimeout = time.Second

// run sends the pending entries in round trips, until no entry was added for idleTimeout or the
// batcher's ctx ends.
//
// After a round trip whose entries are sent again it first waits for the connection's backoff time.
// If the batcher's ctx ends during that wait, run finishes all pending entries with errClosed and
// returns. It takes t.mu.
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
		// The call has no deadline: a ctx that may end costs an additional goroutine. Close ends the call
		// by closing the connection.
		taken, err := t.send(context.WithoutCancel(t.ctx), es)
		if !t.complete(es, taken, err) {
			attempt = 0
			continue
		}
		if !t.b.pause(t.ctx, attempt) {
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
// idleTimeout or when the batcher's ctx ends: true if entries are pending by then, false
// otherwise. Before it returns false it records that no goroutine runs: run must return. It takes
// t.mu.
func (t *batcher[T]) waitForMore(timer *time.Timer) bool {
	timer.Reset(idleTimeout)
	select {
	case <-t.added:
		return true
	case <-timer.C:
	case <-t.ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running = t.busy
	return t.busy
}

// takePending removes the entries of the next round trip from the pending ones, marks them as in
// flight and returns them. They are the first ones, at most maxEntries. If none is pending it
// records that the batcher is idle, wakes the callers of flush, and returns nil. It takes t.mu.
func (t *batcher[T]) takePending() []*entry[T] {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.pending) == 0 {
		t.setIdle()
		return nil
	}
	n := min(len(t.pending), t.maxEntries)
	es := t.pending[:n:n]
	t.pending = t.pending[n:]
	for _, e := range es {
		e.inFlight = true
	}
	return es
}

// setIdle records that no entry is pending or in progress, and wakes the callers of flush. It drops
// t.pending: the caller must have finished those entries. Call it with t.mu held.
func (t *batcher[T]) setIdle() {
	t.pending, t.busy = nil, false
	if t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

// complete sets the results of es, the entries of the round trip that has just ended with err.
// taken is the number of entries, from the first on, that were sent. It takes t.mu.
//
//   - Without err the first taken entries are finished with their own errors. The others become
//     pending again, in front of all pending ones, except those whose caller has gone.
//   - With err each entry for which shouldResend is true becomes pending again, in front. The
//     others are finished with err.
//
// It returns true if entries must be sent again because of err, and sets t.lastErr to err, the
// cause that wait reports. The caller, run, then pauses before the next round trip. Otherwise it
// clears t.lastErr.
func (t *batcher[T]) complete(es []*entry[T], taken int, err error) (again bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var back []*entry[T]
	for i, e := range es {
		e.inFlight = false
		switch {
		case err == nil && i < taken:
			e.finish(e.err)
		case err == nil: // the round trip had no space for it
			if !e.abandoned {
				back = append(back, e)
			}
		case t.shouldResend(e, err):
			again = true
			back = append(back, e)
		default:
			e.finish(err)
		}
	}
	t.lastErr = nil
	if again {
		t.lastErr = err
	}
	if len(back) > 0 {
		t.pending = append(back, t.pending...)
	}
	return again
}

// shouldResend reports whether entry e is sent again after a round trip that failed with err.
// Call it with t.mu held.
//
//   - The caller of e has gone: no.
//   - The round trip was certainly not executed: yes, unless t.resend refuses.
//   - Its outcome is unknown: only if t.resend exists and agrees. If t.resend exists, shouldResend
//     also sets e.maybeSent, even if t.resend refuses.
//   - Any other error: no.
func (t *batcher[T]) shouldResend(e *entry[T], err error) bool {
	switch {
	case e.abandoned:
		return false
	case redisconn.Repeatable(err):
		return t.resend == nil || t.resend(e)
	case errors.Is(err, redisconn.ErrIndeterminate) && t.resend != nil:
		e.maybeSent = true
		return t.resend(e)
	}
	return false
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
// If ctx ends first it removes c's entries from t.pending, marks all of es as abandoned, and
// returns at once. The entries are not sent again:
//
//   - A finished entry has its own error, nil for success.
//   - An entry that was never sent is withdrawn. Its error is redisconn.ErrUnavailable, or the
//     cause why it could not be sent.
//   - An entry that may have been executed has the error redisconn.ErrIndeterminate.
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
	waiting := make(map[*entry[T]]bool)
	rest := t.pending[:0:0]
	for _, e := range t.pending {
		if e.call == c {
			waiting[e] = true
		} else {
			rest = append(rest, e)
		}
	}
	t.pending = rest
	for i, e := range es {
		e.abandoned = true
		switch {
		case e.inFlight, waiting[e] && e.maybeSent:
			errs[i] = errUnknown(ctx)
		case waiting[e]:
			errs[i] = errNotSent(ctx, t.lastErr)
		default:
			errs[i] = e.err
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
