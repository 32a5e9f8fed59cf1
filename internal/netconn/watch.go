package netconn

import (
	"sync"

	"github.com/swarmiji/swarmiji/broker"
)

// Watchers calls functions with the states of a connection. Each function receives one call at a
// time on its own goroutine, so that Notify never blocks. The zero value has no functions. Safe for
// concurrent use.
type Watchers struct {
	mu     sync.Mutex
	all    map[*watcher]struct{}
	closed bool
}

// watcher is one registered function with the states that it has not received.
type watcher struct {
	fn func(broker.ConnState, error)

	mu      sync.Mutex
	queue   []change
	running bool
	ended   bool
}

// change is one state of the connection with its reason.
type change struct {
	state broker.ConnState
	err   error
}

// Add calls fn with the given current state, and with each state of Notify until stop is called.
// The calls are made one at a time, on another goroutine. After Close fn receives only the given
// state.
//
// stop drops the states that fn has not received, and does not wait for a running call. fn may call
// stop. Add and stop take mutexes, which are free during fn.
func (w *Watchers) Add(fn func(broker.ConnState, error), s broker.ConnState, err error) (stop func()) {
	one := &watcher{fn: fn}
	one.push(s, err)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		if w.all == nil {
			w.all = make(map[*watcher]struct{})
		}
		w.all[one] = struct{}{}
	}
	return func() {
		w.mu.Lock()
		delete(w.all, one)
		w.mu.Unlock()
		one.stop()
	}
}

// Notify queues a state and its reason for all functions, and starts their goroutines. It does not
// wait for a call. It takes w.mu.
func (w *Watchers) Notify(s broker.ConnState, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range w.all {
		one.push(s, err)
	}
}

// Any reports whether any function is registered. It takes w.mu.
func (w *Watchers) Any() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.all) > 0
}

// Close makes later calls of Add register no function. Registered functions still receive their
// queued states. It takes w.mu.
func (w *Watchers) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
}

// Drop removes all functions and their queued states. It does not wait for running calls. It takes
// w.mu.
func (w *Watchers) Drop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range w.all {
		one.stop()
	}
	clear(w.all)
}

// push queues a state and starts the watcher's goroutine if it does not run. After stop it does
// nothing. It takes w.mu.
func (w *watcher) push(s broker.ConnState, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return
	}
	w.queue = append(w.queue, change{s, err})
	if !w.running {
		w.running = true
		go w.run()
	}
}

// run calls fn with the queued states, in order, until none is left or the watcher is stopped. It
// is the watcher's goroutine. It takes w.mu, but does not hold it during fn.
func (w *watcher) run() {
	for {
		w.mu.Lock()
		if w.ended || len(w.queue) == 0 {
			w.running = false
			w.mu.Unlock()
			return
		}
		ch := w.queue[0]
		w.queue = w.queue[1:]
		w.mu.Unlock()
		w.fn(ch.state, ch.err)
	}
}

// stop removes the queued states and prevents further calls of fn. It takes w.mu.
func (w *watcher) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.queue = nil
}
