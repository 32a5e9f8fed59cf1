package amqpconn

import (
	"fmt"
	"sync"

	"github.com/swarmiji/swarmiji/broker"
)

// WatchBoth calls fn on another goroutine with the combined state of a publishing and a consuming
// connection, now and after each change. It makes one call at a time, until stop is called. The
// state is:
//
//   - Disconnected, if one of them was used and is disconnected. It is also the state, with no
//     error, before either is used.
//   - Otherwise Blocked, if publishing is blocked.
//   - Otherwise Connected.
//
// stop takes the watch's mutex. A call of fn that has begun may end after stop.
func WatchBoth(publishing, consuming *Conn, fn func(s broker.ConnState, err error)) (stop func()) {
	w := &watch{fn: fn}
	stopPub := publishing.Watch(func(s broker.ConnState, err error) { w.update(0, s, err) })
	stopCon := consuming.Watch(func(s broker.ConnState, err error) { w.update(1, s, err) })
	return func() {
		stopPub()
		stopCon()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.stopped = true
	}
}

// watch combines the states of the two connections.
type watch struct {
	fn func(broker.ConnState, error)

	calling sync.Mutex // held during fn

	mu      sync.Mutex
	stopped bool
	state   [2]broker.ConnState
	used    [2]bool // the connection was up or has failed
	err     [2]error
	told    bool
	last    broker.ConnState
	lastErr error
}

// update records the state of connection i, 0 for publishing and 1 for consuming. It calls fn if
// the combined state or its cause has changed, both states are known and the watch is not stopped.
// It takes w.calling, which it holds while fn runs, and w.mu, which it does not.
func (w *watch) update(i int, s broker.ConnState, err error) {
	w.calling.Lock()
	defer w.calling.Unlock()
	w.mu.Lock()
	w.state[i], w.err[i] = s, err
	w.used[i] = w.used[i] || s != broker.Disconnected || err != nil
	if w.state[0] == "" || w.state[1] == "" || w.stopped {
		w.mu.Unlock()
		return
	}
	state, cause := w.combined()
	same := w.told && state == w.last && cause == w.lastErr //nolint:errorlint // identity
	w.told, w.last, w.lastErr = true, state, cause
	w.mu.Unlock()
	if !same {
		w.fn(state, wrapState(cause))
	}
}

// wrapState returns err with the port's sentinel that fits it, or err unchanged if none fits.
func wrapState(err error) error {
	if class := classOf(err); class != nil {
		return fmt.Errorf("%w: %w", class, err)
	}
	return err
}

// combined returns the worst state of the connections that were used, and its cause: Disconnected
// before Blocked before Connected. If none was used it returns Disconnected and nil. Call it with
// w.mu held.
func (w *watch) combined() (broker.ConnState, error) {
	state, cause := broker.Disconnected, error(nil)
	for i, s := range w.state {
		if !w.used[i] {
			continue
		}
		switch s {
		case broker.Disconnected:
			return broker.Disconnected, w.err[i]
		case broker.Blocked:
			state, cause = broker.Blocked, w.err[i]
		case broker.Connected:
			if state != broker.Blocked {
				state = broker.Connected
			}
		}
	}
	return state, cause
}
