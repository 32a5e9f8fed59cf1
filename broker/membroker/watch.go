package membroker

import (
	"slices"
	"sync"

	"github.com/swarmiji/swarmiji/broker"
)

// watchers tells each watcher of every state in order, one call at a time, without holding any mutex during the call.
type watchers struct {
	mu    sync.Mutex
	state broker.ConnState
	err   error
	all   []*watcher
}

type watcher struct {
	fn      func(broker.ConnState, error)
	pending []change // not told yet
	busy    bool     // a goroutine is telling
	stopped bool
}

type change struct {
	state broker.ConnState
	err   error
}

// set notes a state. The watchers are told from a goroutine that ends when there is nothing more to tell, since the caller
// holds mutexes.
func (ws *watchers) set(s broker.ConnState, err error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.state, ws.err = s, err
	for _, w := range ws.all {
		w.pending = append(w.pending, change{s, err})
		if !w.busy {
			w.busy = true
			go ws.tell(w)
		}
	}
}

// tell calls w for what is pending. The caller has made w busy.
func (ws *watchers) tell(w *watcher) {
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

// Watch implements [broker.Watcher]. The first call of fn is made before Watch returns. No call begins after stop has
// returned, but one may still be under way.
func (b *Broker) Watch(fn func(s broker.ConnState, err error)) (stop func()) {
	ws := &b.watch
	ws.mu.Lock()
	w := &watcher{fn: fn, pending: []change{{ws.state, ws.err}}, busy: true}
	ws.all = append(ws.all, w)
	ws.mu.Unlock()
	ws.tell(w)
	return func() {
		ws.mu.Lock()
		defer ws.mu.Unlock()
		w.stopped = true
		ws.all = slices.DeleteFunc(ws.all, func(o *watcher) bool { return o == w })
	}
}
