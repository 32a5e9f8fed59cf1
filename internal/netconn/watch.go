package netconn

import (
	"sync"

	"github.com/swarmiji/swarmiji/broker"
)

// Watchers are functions that are told of the states of a connection, each by one call at a time, without holding up whoever
// tells them. The zero value has none. Safe for concurrent use.
type Watchers struct {
	mu     sync.Mutex
	all    map[*watcher]struct{}
	closed bool
}

type watcher struct {
	fn func(broker.ConnState, error)

	mu      sync.Mutex
	queue   []change
	running bool
	ended   bool
}

type change struct {
	state broker.ConnState
	err   error
}

// Add tells fn of the present state, and of those that Tell is told until stop is called. fn may call stop; a call that is
// under way then runs to its end. After Close fn is told of the present state alone.
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

// Tell tells all of a state.
func (w *Watchers) Tell(s broker.ConnState, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range w.all {
		one.push(s, err)
	}
}

// Any reports whether there are any.
func (w *Watchers) Any() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.all) > 0
}

// Close takes no more of them. Those that are there are still told what they have not heard.
func (w *Watchers) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
}

// Drop ends those that are there, with what they have not heard.
func (w *Watchers) Drop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range w.all {
		one.stop()
	}
	clear(w.all)
}

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

func (w *watcher) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.queue = nil
}
