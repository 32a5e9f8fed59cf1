package natsconn

import "sync"

// State is the state of a Conn.
type State string

// The states of a Conn. One that was never used is disconnected, with no error.
const (
	Connected    State = "connected"
	Disconnected State = "disconnected"
)

// state returns the present state; c.mu is held.
func (c *Conn) state() (State, error) {
	switch {
	case c.closed:
		return Disconnected, ErrClosed
	case c.live.Load() == nil:
		return Disconnected, c.lastErr
	default:
		return Connected, nil
	}
}

// notify tells of a change; c.mu is held.
func (c *Conn) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
	st, err := c.state()
	for w := range c.watchers {
		w.push(st, err)
	}
}

// watcher calls one function, one call at a time, without holding up those who tell it.
type watcher struct {
	fn func(State, error)

	mu      sync.Mutex
	queue   []change
	running bool
	ended   bool
}

type change struct {
	state State
	err   error
}

func (w *watcher) push(s State, err error) {
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

// Watch calls fn with the present state and at each change and each failed attempt to connect, one call at a time, until
// stop is called or the Conn has been closed. It does not connect. fn may call any method, stop too; a call that is under
// way when stop is called runs to its end.
func (c *Conn) Watch(fn func(s State, err error)) (stop func()) {
	w := &watcher{fn: fn}
	c.mu.Lock()
	defer c.mu.Unlock()
	st, err := c.state()
	w.push(st, err)
	if !c.closed {
		c.watchers[w] = struct{}{}
	}
	return func() {
		c.mu.Lock()
		delete(c.watchers, w)
		c.mu.Unlock()
		w.stop()
	}
}
