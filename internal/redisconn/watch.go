package redisconn

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/broker"
)

// probeEvery is the interval at which the server is checked while a watcher exists and no other
// call is answered.
const probeEvery = time.Second

// probeSource is a script that writes nothing, but that the server refuses whenever it refuses
// writes.
const probeSource = "#!lua\nreturn 1"

// updateState derives the connection state from the result of a call on key. The first case counts:
//
//   - An answer or ErrRefused: Connected, unless the state is Blocked, which only the probe ends.
//   - ErrBlocked: Blocked; the probe will test key.
//   - ErrAccess or ErrClosed: Disconnected.
//   - The caller cancelled the call, or its short deadline passed after a recent answer: no change.
//   - Any other error: Disconnected.
//
// It notifies the watchers of a change. It does nothing after Close. It takes c.mu.
func (c *Conn) updateState(ctx context.Context, key string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	switch {
	case err == nil, errors.Is(err, redis.Nil), errors.Is(err, ErrRefused):
		c.lastOK = time.Now()
		// only the probe ends the blocked state, because the server still accepts some scripts
		if c.state != broker.Blocked {
			c.setState(broker.Connected, nil)
		}
	case errors.Is(err, ErrBlocked):
		c.lastOK = time.Now()
		c.blockedBy = key
		c.setState(broker.Blocked, err)
	case errors.Is(err, ErrAccess), errors.Is(err, ErrClosed):
		c.setState(broker.Disconnected, err)
	case errors.Is(ctx.Err(), context.Canceled): // a cancelled call says nothing about the server
	// the deadline of the caller was short
	case ctx.Err() != nil && c.state == broker.Connected && time.Since(c.lastOK) < probeEvery:
	default:
		c.setState(broker.Disconnected, err)
	}
}

// setState stores the state and its reason and notifies the watchers, unless the state and the text
// of the reason are the same as before. Call it with c.mu held.
func (c *Conn) setState(s broker.ConnState, reason error) {
	if s == c.state && s == broker.Connected {
		return
	}
	same := s == c.state && c.reason != nil && reason != nil && c.reason.Error() == reason.Error()
	c.state, c.reason = s, reason
	if same {
		return
	}
	c.watchers.Notify(s, reason)
}

// Watch calls fn on another goroutine with the current state and at each change, one call at a
// time. That ends when stop is called or the Conn is closed. While a watcher exists, a goroutine
// checks the server about once a second. fn may call any method, including stop; a running call of
// fn is completed after stop. Watch takes c.mu.
func (c *Conn) Watch(fn func(s broker.ConnState, err error)) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	stop = c.watchers.Add(fn, c.state, c.reason)
	if !c.closed && !c.probing {
		c.probing = c.start(c.probe)
	}
	return stop
}

// probe checks the server every probeEvery until no watcher exists or the Conn is closed. If the
// server was blocked it tests a write. Otherwise it sends a PING, if no answer came since the last
// check or the state is not Connected. A failed PING sets the state to Disconnected. It is the
// goroutine that Watch starts. It takes c.mu, but does not hold it while it waits.
func (c *Conn) probe() {
	for {
		if !c.pause(c.ctx, probeEvery) {
			return
		}
		c.mu.Lock()
		if !c.watchers.Any() {
			c.probing = false
			c.mu.Unlock()
			return
		}
		state, key, quiet := c.state, c.blockedBy, time.Since(c.lastOK)
		c.mu.Unlock()
		switch {
		case state == broker.Blocked:
			c.probeBlocked(key)
		case quiet >= probeEvery || state != broker.Connected:
			ctx, cancel := context.WithTimeout(c.ctx, 2*probeEvery)
			_, err := c.attempt(ctx, "", func(ctx context.Context) (any, error) { return c.client.Ping(ctx).Result() })
			if err != nil && c.ctx.Err() == nil {
				c.mu.Lock()
				if !c.closed {
					c.setState(broker.Disconnected, err)
				}
				c.mu.Unlock()
			}
			cancel()
		}
	}
}

// probeBlocked tests a write on a server that refused one, with the given key if that is not empty.
// If the write succeeds it sets the state to Connected; otherwise it changes nothing. It waits for
// the answer, at most twice probeEvery. It takes c.mu afterwards.
func (c *Conn) probeBlocked(key string) {
	ctx, cancel := context.WithTimeout(c.ctx, 2*probeEvery)
	defer cancel()
	var keys []string
	if key != "" {
		keys = []string{key}
	}
	if _, err := c.EvalOnce(ctx, c.probeScript, keys); err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed && c.state == broker.Blocked {
		c.setState(broker.Connected, nil)
	}
}
