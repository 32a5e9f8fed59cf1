package natsconn

import "github.com/swarmiji/swarmiji/broker"

// state returns the current state and its reason. A Conn that was never used is Disconnected
// without an error. Call it with c.mu held.
func (c *Conn) state() (broker.ConnState, error) {
	switch {
	case c.closed:
		return broker.Disconnected, ErrClosed
	case c.live.Load() == nil:
		return broker.Disconnected, c.lastErr
	default:
		return broker.Connected, nil
	}
}

// notify wakes waiting calls and passes the current state to the watchers. Call it with c.mu held.
func (c *Conn) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
	c.watchers.Notify(c.state())
}

// Watch calls fn on another goroutine with the current state, at each change and after each failed
// attempt to connect. It makes one call at a time until stop is called or the Conn is closed. It
// does not connect. fn may call any method, including stop; a running call of fn is completed after
// stop. Watch takes c.mu.
func (c *Conn) Watch(fn func(s broker.ConnState, err error)) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	st, err := c.state()
	return c.watchers.Add(fn, st, err)
}
