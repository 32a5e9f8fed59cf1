package redisconn

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/broker"
)

// probeEvery is how often a server is asked for a sign of life while somebody watches and nothing else is under way.
const probeEvery = time.Second

// probeSource is a script that writes nothing and is refused whenever a write would be.
const probeSource = "#!lua\nreturn 1"

// note draws from the end of a call what state the connection is in.
func (c *Conn) note(ctx context.Context, key string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	switch {
	case err == nil, errors.Is(err, redis.Nil), errors.Is(err, ErrRefused):
		c.lastOK = time.Now()
		if c.state != broker.Blocked { // only the probe ends that: some scripts go through all the same
			c.setState(broker.Connected, nil)
		}
	case errors.Is(err, ErrBlocked):
		c.lastOK = time.Now()
		c.blockedBy = key
		c.setState(broker.Blocked, err)
	case errors.Is(err, ErrAccess), errors.Is(err, ErrClosed):
		c.setState(broker.Disconnected, err)
	case errors.Is(ctx.Err(), context.Canceled): // it says nothing of the server
	case ctx.Err() != nil && c.state == broker.Connected && time.Since(c.lastOK) < probeEvery: // the caller was in a hurry
	default:
		c.setState(broker.Disconnected, err)
	}
}

// setState tells the watchers of a change; c.mu is held.
func (c *Conn) setState(s broker.ConnState, reason error) {
	if s == c.state && s == broker.Connected {
		return
	}
	same := s == c.state && c.reason != nil && reason != nil && c.reason.Error() == reason.Error()
	c.state, c.reason = s, reason
	if same {
		return
	}
	c.watchers.Tell(s, reason)
}

// Watch calls fn with the present state and at each change, one call at a time, until stop is called or the Conn has been
// closed. While it does, the server is asked about once a second for a sign of life. fn may call any method, stop too; a call
// that is under way when stop is called runs to its end.
func (c *Conn) Watch(fn func(s broker.ConnState, err error)) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	stop = c.watchers.Add(fn, c.state, c.reason)
	if !c.closed && !c.probing {
		c.probing = c.start(c.probe)
	}
	return stop
}

// probe asks for signs of life until nobody watches.
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

// probeBlocked looks whether the server that refused a write would take one now.
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
