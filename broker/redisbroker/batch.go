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

// batcher sends what has gathered in one trip: while a trip is under way, others gather for the next. Nothing waits for a
// timer. What was surely not executed goes again, for as long as somebody waits for it.
type batcher[T any] struct {
	b    *Broker
	ctx  context.Context // of the batcher's life
	most int             // entries in a trip
	// send makes one trip with some of the entries, from the first, sets their errors, and says how many it took; or it
	// returns the error of the trip, which concerns all.
	send func(ctx context.Context, es []*entry[T]) (taken int, err error)
	// again says, if it is not nil, whether an entry is sent again after a trip of unknown outcome.
	again func(e *entry[T]) bool

	more wake.Signal // something was added

	mu      sync.Mutex
	pending []*entry[T]
	running bool          // there is a goroutine for it
	busy    bool          // something is pending or under way
	last    error         // of the last trip, while it is repeated
	idle    chan struct{} // closed when nothing is pending, if somebody waits for that
}

// entry is one of those that share a trip.
type entry[T any] struct {
	v     T
	err   error // set by send, or before the call is done
	call  *call // nil: nobody waits
	tried bool  // a trip of unknown outcome had it
	away  bool  // it is on a trip; guarded by the batcher's mu
	gone  bool  // nobody waits any more; guarded by the batcher's mu
}

// call is what waits for some entries.
type call struct {
	left atomic.Int64
	done chan struct{}
}

func newCall(n int) *call {
	c := &call{done: make(chan struct{})}
	c.left.Store(int64(n))
	return c
}

// add hands over entries, which are sent in their order.
func (t *batcher[T]) add(es ...*entry[T]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending = append(t.pending, es...)
	if t.busy || len(t.pending) == 0 {
		return
	}
	t.busy = true
	if t.running {
		t.more.Notify()
		return
	}
	if t.running = t.b.start(t.run); !t.running {
		t.fail()
	}
}

// finish tells whoever waits for an entry. An error after a trip of unknown outcome leaves that outcome unknown.
func (e *entry[T]) finish(err error) {
	if err != nil && e.tried && !errors.Is(err, redisconn.ErrIndeterminate) {
		err = fmt.Errorf("%w: %w", redisconn.ErrIndeterminate, err)
	}
	e.err = err
	if e.call != nil && e.call.left.Add(-1) == 0 {
		close(e.call.done)
	}
}

// linger is how long a goroutine without work stays: a new one would have to grow its stack anew.
const linger = time.Second

// run makes trips until nothing was added for some time.
func (t *batcher[T]) run() {
	timer := time.NewTimer(linger)
	defer timer.Stop()
	attempt := 0
	for {
		es := t.next()
		if es == nil {
			if !t.rests(timer) {
				return
			}
			continue
		}
		// Without an end: a call whose ctx may end any time takes a goroutine more. Close ends it by closing the connection.
		taken, err := t.send(context.WithoutCancel(t.ctx), es)
		if !t.land(es, taken, err) {
			attempt = 0
			continue
		}
		if !t.b.pause(t.ctx, attempt) {
			t.mu.Lock()
			t.running = false
			t.fail()
			t.mu.Unlock()
			return
		}
		attempt++
	}
}

// rests waits for something to be added; false: the goroutine is to end.
func (t *batcher[T]) rests(timer *time.Timer) bool {
	timer.Reset(linger)
	select {
	case <-t.more:
		return true
	case <-timer.C:
	case <-t.ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running = t.busy
	return t.busy
}

// next takes entries for a trip; nil: there are none.
func (t *batcher[T]) next() []*entry[T] {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.pending) == 0 {
		t.rest()
		return nil
	}
	n := min(len(t.pending), t.most)
	es := t.pending[:n:n]
	t.pending = t.pending[n:]
	for _, e := range es {
		e.away = true
	}
	return es
}

// rest notes that nothing is pending; t.mu is held.
func (t *batcher[T]) rest() {
	t.pending, t.busy = nil, false
	if t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

// land ends a trip, and reports whether some of it is to be sent again, after a pause.
func (t *batcher[T]) land(es []*entry[T], taken int, err error) (again bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var back []*entry[T]
	for i, e := range es {
		e.away = false
		switch {
		case err == nil && i < taken:
			e.finish(e.err)
		case err == nil: // there was no room for it
			if !e.gone {
				back = append(back, e)
			}
		case t.keep(e, err):
			again = true
			back = append(back, e)
		default:
			e.finish(err)
		}
	}
	t.last = nil
	if again {
		t.last = err
	}
	if len(back) > 0 {
		t.pending = append(back, t.pending...)
	}
	return again
}

// keep reports whether an entry is to be sent again after a trip that failed; t.mu is held.
func (t *batcher[T]) keep(e *entry[T], err error) bool {
	switch {
	case e.gone:
		return false
	case redisconn.Repeatable(err):
		return t.again == nil || t.again(e)
	case errors.Is(err, redisconn.ErrIndeterminate) && t.again != nil:
		e.tried = true
		return t.again(e)
	}
	return false
}

// fail ends everything that is pending; t.mu is held.
func (t *batcher[T]) fail() {
	for _, e := range t.pending {
		e.finish(errClosed)
	}
	t.rest()
}

// wait waits until all entries of a call are done, and returns their errors. When ctx ends first, those that were not sent are
// taken back: their error is redisconn.ErrUnavailable, or why they could not be sent; that of the others is
// redisconn.ErrIndeterminate.
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
		e.gone = true
		switch {
		case e.away, waiting[e] && e.tried:
			errs[i] = unknown(ctx)
		case waiting[e]:
			errs[i] = notSent(ctx, t.last)
		default:
			errs[i] = e.err
		}
	}
	return errs
}

// flush waits until nothing is pending or under way.
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
