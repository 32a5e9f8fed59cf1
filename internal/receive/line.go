// Package receive has what the subscriptions of brokers share whose server sends deliveries by itself: queues of what is
// held, and the line of those who wait for it in Receive.
package receive

import (
	"context"
	"slices"
	"sync"
)

// Line hands the deliveries that a subscription holds to its calls of Receive, which wait in their order. The mutex of
// the subscription guards it: callers of all methods but [Line.Receive] hold it. Make one with [NewLine].
type Line[T any] struct {
	mu      *sync.Mutex
	pop     func(at bool) *T
	waiters []*waiter[T]
	fault   error // why there is nothing to receive just now
	closed  error // why there will be nothing
	pool    sync.Pool
}

// waiter is a Receive that waits. It gets exactly one answer, unless it leaves the line first.
type waiter[T any] struct{ ch chan answer[T] }

type answer[T any] struct {
	d   *T
	err error
}

// NewLine returns an empty line. pop takes the most urgent delivery that is held, or returns nil; mu is held. With at it
// does not wait for more urgent ones that may come.
func NewLine[T any](mu *sync.Mutex, pop func(at bool) *T) *Line[T] { return &Line[T]{mu: mu, pop: pop} }

// Receive returns the most urgent delivery that is held, and waits for one. It returns the error of [Line.Close] or
// [Line.Fail], or ctx's. What is held goes before an error.
func (l *Line[T]) Receive(ctx context.Context) (*T, error) {
	err := ctx.Err()
	l.mu.Lock()
	if d := l.pop(err != nil); d != nil {
		l.mu.Unlock()
		return d, nil
	}
	switch {
	case l.closed != nil:
		err = l.closed
	case l.fault != nil:
		err = l.fault
	}
	if err != nil {
		l.mu.Unlock()
		return nil, err
	}
	w, ok := l.pool.Get().(*waiter[T])
	if !ok {
		w = &waiter[T]{ch: make(chan answer[T], 1)}
	}
	l.waiters = append(l.waiters, w)
	l.mu.Unlock()
	var a answer[T]
	select {
	case a = <-w.ch:
	case <-ctx.Done():
		a = l.leave(w, ctx.Err())
	}
	l.pool.Put(w)
	return a.d, a.err
}

// leave takes w out of the line and returns its answer: cause, unless it got one at the same moment or something is held
// after all.
func (l *Line[T]) leave(w *waiter[T], cause error) answer[T] {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.waiters, w)
	if i < 0 {
		return <-w.ch // answers are given under l.mu
	}
	l.waiters = slices.Delete(l.waiters, i, i+1)
	if d := l.pop(true); d != nil {
		return answer[T]{d: d}
	}
	return answer[T]{err: cause}
}

// Serve answers those who wait with what is held.
func (l *Line[T]) Serve() {
	for len(l.waiters) > 0 {
		d := l.pop(false)
		if d == nil {
			return
		}
		w := l.waiters[0]
		l.waiters = slices.Delete(l.waiters, 0, 1)
		w.ch <- answer[T]{d: d} // has room
	}
}

// Len returns how many wait.
func (l *Line[T]) Len() int { return len(l.waiters) }

// Fail lets Receive return err where nothing is held, those who wait included, until Fail(nil).
func (l *Line[T]) Fail(err error) {
	l.fault = err
	if err != nil {
		l.tell(err)
	}
}

// Fault returns the error of Fail; nil: there is none.
func (l *Line[T]) Fault() error { return l.fault }

// Close lets Receive return err where nothing is held, for good. It reports whether it is the first call.
func (l *Line[T]) Close(err error) bool {
	first := l.closed == nil
	l.closed = err
	l.tell(err)
	return first
}

// Closed reports whether Close was called.
func (l *Line[T]) Closed() bool { return l.closed != nil }

func (l *Line[T]) tell(err error) {
	for _, w := range l.waiters {
		w.ch <- answer[T]{err: err}
	}
	l.waiters = nil
}
