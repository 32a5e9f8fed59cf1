package amqpconn

import "github.com/swarmiji/swarmiji/broker"

// state returns the current state and its reason. A Conn that was never used is Disconnected
// without an error. Call it with c.mu held.
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

// Error returns the text of ErrBlocked and the server's reason.
func (e *blockedError) Error() string { return ErrBlocked.Error() + ": " + e.reason }

// Unwrap returns ErrBlocked.
func (e *blockedError) Unwrap() error { return ErrBlocked }

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
