// Package receive is the common base of broker subscriptions whose server pushes deliveries. It
// provides queues of held deliveries, and a line of Receive calls that wait for them.
package receive

import (
	"context"
	"slices"
	"sync"
)

// Line distributes the deliveries that a subscription holds to its calls of Receive, in the order
// of the calls. The mutex of the subscription guards it: hold it in calls of all methods except
// [Line.Receive]. Make one with [NewLine].
type Line[T any] struct {
	mu      *sync.Mutex
	pop     func(now bool) *T
	waiters []*waiter[T]
	fault   error // error of Receive while no delivery is held; nil: wait
	closed  error // error of Receive after Close
	pool    sync.Pool
}

// waiter is a waiting Receive. It gets exactly one answer, unless it leaves the line first.
type waiter[T any] struct{ ch chan answer[T] }

// answer is the result of a waiting Receive: a delivery or an error.
type answer[T any] struct {
	d   *T
	err error
}

// NewLine returns an empty line. pop must remove and return the most urgent held delivery, or
// return nil; it is called with mu held. If now is true pop must not wait for more urgent
// deliveries that may arrive.
func NewLine[T any](mu *sync.Mutex, pop func(now bool) *T) *Line[T] {
	return &Line[T]{mu: mu, pop: pop}
}

// Receive removes and returns the most urgent held delivery, and waits for one. If none is held it
// returns the error of [Line.Close] or [Line.Fail], or ctx's error. A held delivery is returned
// even if ctx has ended. It takes the mutex.
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

// leave removes w from the line and returns its answer. That is the answer it got at the same
// moment, or a delivery that is held, or otherwise cause. It takes l.mu.
func (l *Line[T]) leave(w *waiter[T], cause error) answer[T] {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.waiters, w)
	if i < 0 {
		return <-w.ch // answers are given with l.mu held
	}
	l.waiters = slices.Delete(l.waiters, i, i+1)
	if d := l.pop(true); d != nil {
		return answer[T]{d: d}
	}
	return answer[T]{err: cause}
}

// Serve passes held deliveries to the waiting calls, the oldest call first, until pop returns nil
// or no call waits. Call it after a delivery was added.
func (l *Line[T]) Serve() {
	for len(l.waiters) > 0 {
		d := l.pop(false)
		if d == nil {
			return
		}
		w := l.waiters[0]
		l.waiters = slices.Delete(l.waiters, 0, 1)
		w.ch <- answer[T]{d: d} // never blocks: the channel has space for one answer
	}
}

// Len returns the number of waiting calls.
func (l *Line[T]) Len() int { return len(l.waiters) }

// Fail makes Receive return err while no delivery is held, until Fail(nil). Waiting calls return
// err at once.
func (l *Line[T]) Fail(err error) {
	l.fault = err
	if err != nil {
		l.failAll(err)
	}
}

// Fault returns the error of Fail, or nil.
func (l *Line[T]) Fault() error { return l.fault }

// Close makes Receive return err while no delivery is held, for good. Waiting calls return err at
// once. It returns false if Close was called before.
func (l *Line[T]) Close(err error) bool {
	first := l.closed == nil
	l.closed = err
	l.failAll(err)
	return first
}

// Closed reports whether Close was called.
func (l *Line[T]) Closed() bool { return l.closed != nil }

// failAll makes all waiting calls return err. Call it with the mutex held.
func (l *Line[T]) failAll(err error) {
	for _, w := range l.waiters {
		w.ch <- answer[T]{err: err}
	}
	l.waiters = nil
}
