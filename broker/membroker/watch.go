package membroker

import (
	"slices"
	"sync"

	"github.com/swarmiji/swarmiji/broker"
)

// watchers calls each watcher with every state in order, one call at a time. It holds no mutex
// during a call.
type watchers struct {
	mu    sync.Mutex
	state broker.ConnState
	err   error
	all   []*watcher
}

// watcher is one call of Watch. The mutex of its watchers guards all fields but fn.
type watcher struct {
	fn      func(broker.ConnState, error)
	pending []change // not reported yet
	busy    bool     // a goroutine is calling fn
	stopped bool
}

// change is a state of the connection with its cause. err is nil for Connected.
type change struct {
	state broker.ConnState
	err   error
}

// set records a state and starts goroutines that call the watchers with it; it does not wait for
// them, because its caller holds mutexes. A watcher that another goroutine is calling gets the
// state from that goroutine. It takes ws.mu.
func (ws *watchers) set(s broker.ConnState, err error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.state, ws.err = s, err
	for _, w := range ws.all {
		w.pending = append(w.pending, change{s, err})
		if !w.busy {
			w.busy = true
			go ws.report(w)
		}
	}
}

// report calls w.fn with all pending states, until none is left or w is stopped. Then it clears
// w.busy, which the caller must have set. It takes ws.mu, but not during fn.
func (ws *watchers) report(w *watcher) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for len(w.pending) > 0 && !w.stopped {
		c := w.pending[0]
		w.pending = w.pending[1:]
		ws.mu.Unlock()
		w.fn(c.state, c.err)
		ws.mu.Lock()
	}
	w.busy = false
}

// Watch implements [broker.Watcher]. It calls fn with the current state before it returns. Other
// goroutines call fn later, after each change, one call at a time. After stop has returned no call
// begins, but one may still be in progress. Watch and stop take the mutex of b.watch; no mutex is
// held during fn.
func (b *Broker) Watch(fn func(s broker.ConnState, err error)) (stop func()) {
	ws := &b.watch
	ws.mu.Lock()
	w := &watcher{fn: fn, pending: []change{{ws.state, ws.err}}, busy: true}
	ws.all = append(ws.all, w)
	ws.mu.Unlock()
	ws.report(w)
	return func() {
		ws.mu.Lock()
		defer ws.mu.Unlock()
		w.stopped = true
		ws.all = slices.DeleteFunc(ws.all, func(o *watcher) bool { return o == w })
	}
}
