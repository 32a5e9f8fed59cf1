package sqlbroker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/wake"
)

const (
	// watchEvery is the interval at which the database is asked while there are watchers.
	watchEvery = time.Second
	// watchTime limits the wait for an answer.
	watchTime = 2 * time.Second
)

// watchers holds the functions of Watch.
type watchers struct {
	mu      sync.Mutex
	all     map[*watcher]struct{}
	running bool
}

// watcher is one function of Watch. mu is held while fn runs.
type watcher struct {
	mu       sync.Mutex
	fn       func(s broker.ConnState, err error)
	reported broker.ConnState
	stopped  bool
}

// Watch implements [broker.Watcher]. It calls fn on another goroutine: first with the state after
// the next answer, then after each change, one call at a time. While a function is registered, the
// database is asked once a second, or each half second while it does not answer. err wraps a
// sentinel of package broker, and is nil for Connected.
//
// After stop has returned no call begins or runs: it waits for a running one, so fn must not call
// it. Watch and stop take mutexes of b.watch and of the watcher.
func (b *Broker) Watch(fn func(s broker.ConnState, err error)) (stop func()) {
	w := &watcher{fn: fn}
	ws := &b.watch
	ws.mu.Lock()
	if ws.all == nil {
		ws.all = make(map[*watcher]struct{})
	}
	ws.all[w] = struct{}{}
	if !ws.running {
		ws.running = b.start(b.pollState)
	}
	ws.mu.Unlock()
	return func() {
		ws.mu.Lock()
		delete(ws.all, w)
		ws.mu.Unlock()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.stopped = true
	}
}

// pollState asks the database for its time, up to watchTime for each answer, and passes the state
// to the watchers. Then it waits, and repeats that until no watcher is left or the Broker ends. It
// runs in a goroutine of its own. It takes the mutex of b.watch, but does not hold it while it
// waits or calls a watcher.
func (b *Broker) pollState() {
	ws := &b.watch
	for {
		ctx, cancel := context.WithTimeout(b.life, watchTime)
		err := b.conn.View(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
			_, err := tx.Now(ctx)
			return err
		})
		cancel()
		state, wait := broker.Connected, watchEvery
		if err != nil {
			state, wait = broker.Disconnected, watchEvery/2
			if class := classOf(err); class != nil {
				err = fmt.Errorf("%w: %w", class, err)
			}
		}
		if b.life.Err() != nil {
			return
		}
		ws.mu.Lock()
		ws.running = len(ws.all) > 0
		all := make([]*watcher, 0, len(ws.all))
		for w := range ws.all {
			all = append(all, w)
		}
		ws.mu.Unlock()
		if len(all) == 0 {
			return
		}
		for _, w := range all {
			w.report(state, err)
		}
		if !wake.Sleep(b.life, wait) {
			return
		}
	}
}

// report calls the function with the state and the error, unless the state is that of the last call
// or the watcher is stopped. It holds w.mu during the call.
func (w *watcher) report(state broker.ConnState, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stopped && w.reported != state {
		w.reported = state
		w.fn(state, err)
	}
}
