package amqpconn

import "github.com/swarmiji/swarmiji/broker"

// state returns the present state; c.mu is held. A Conn that was never used is disconnected, with no error.
func (c *Conn) state() (broker.ConnState, error) {
	s := c.live.Load()
	switch {
	case c.closed:
		return broker.Disconnected, ErrClosed
	case s == nil:
		return broker.Disconnected, c.lastErr
	case s.Blocked():
		return broker.Blocked, &blockedError{c.reason}
	default:
		return broker.Connected, nil
	}
}

// blockedError is ErrBlocked with the server's reason.
type blockedError struct{ reason string }

func (e *blockedError) Error() string { return ErrBlocked.Error() + ": " + e.reason }
func (e *blockedError) Unwrap() error { return ErrBlocked }

// Watch calls fn with the present state and at each change and each failed attempt to connect, one call at a time, until
// stop is called or the Conn has been closed. It does not connect. fn may call any method, stop too; a call that is under
// way when stop is called runs to its end.
func (c *Conn) Watch(fn func(s broker.ConnState, err error)) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	st, err := c.state()
	return c.watchers.Add(fn, st, err)
}
