package natsconn

import "github.com/swarmiji/swarmiji/broker"

// state returns the present state; c.mu is held. A Conn that was never used is disconnected, with no error.
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

// notify tells of a change; c.mu is held.
func (c *Conn) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
	c.watchers.Tell(c.state())
}

// Watch calls fn with the present state and at each change and each failed attempt to connect, one call at a time, until
// stop is called or the Conn has been closed. It does not connect. fn may call any method, stop too; a call that is under
// way when stop is called runs to its end.
func (c *Conn) Watch(fn func(s broker.ConnState, err error)) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	st, err := c.state()
	return c.watchers.Add(fn, st, err)
}
