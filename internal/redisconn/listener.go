package redisconn

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// DefaultPing is how often a [Listener] asks a silent server for a sign of life.
const DefaultPing = 5 * time.Second

// ListenerConfig says what a [Listener] does with what it hears. Its functions are called one at a time, from one goroutine,
// and must not wait for anything: while they do, the server keeps what comes in its memory and in the end hangs up.
type ListenerConfig struct {
	// Message is called for each message. Nil: messages are dropped.
	Message func(channel, payload string)
	// Subscribed is called each time when the server has confirmed a channel: for the first time, and again after a lost
	// connection. What was published in between is lost, so that the owner looks once where the truth is. Nil: nothing.
	Subscribed func(channel string)
	// Ping is how often a silent server is asked for a sign of life; one that does not answer within as much again is given
	// up. 0: 5 s.
	Ping time.Duration
}

// Listener hears what is published on channels. It has one connection, while there are channels, and outlives its loss.
type Listener struct {
	c   *Conn
	cfg ListenerConfig

	mu       sync.Mutex
	closed   bool
	running  bool
	wake     chan struct{} // there are channels, or it is closed
	ps       *redis.PubSub // the present connection, nil if there is none
	channels map[string]*channel
}

// channel is one subscription.
type channel struct {
	confirmed chan struct{} // closed when the server has confirmed it on the present connection
	done      bool          // confirmed is closed
}

// Listen makes a listener without channels. Close it, or the Conn.
func (c *Conn) Listen(cfg ListenerConfig) *Listener {
	if cfg.Ping <= 0 {
		cfg.Ping = DefaultPing
	}
	l := &Listener{c: c, cfg: cfg, wake: make(chan struct{}, 1), channels: make(map[string]*channel)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		l.closed = true
	} else {
		c.listeners[l] = struct{}{}
	}
	return l
}

// Add subscribes to channels, which stay subscribed, through lost connections, until Remove. It does not wait.
func (l *Listener) Add(channels ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	var fresh []string
	for _, name := range channels {
		if l.channels[name] == nil {
			l.channels[name] = &channel{confirmed: make(chan struct{})}
			fresh = append(fresh, name)
		}
	}
	if !l.running {
		l.c.mu.Lock()
		l.running = l.c.start(l.run)
		l.c.mu.Unlock()
	}
	l.tell(fresh, (*redis.PubSub).Subscribe)
	l.rouse()
}

// Remove ends the subscription to channels. Messages that are under way may still come.
func (l *Listener) Remove(channels ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var gone []string
	for _, name := range channels {
		if l.channels[name] != nil {
			delete(l.channels, name)
			gone = append(gone, name)
		}
	}
	l.tell(gone, (*redis.PubSub).Unsubscribe)
}

// tell sends a change of channels over the present connection, if there is one; l.mu is held. A connection on which that
// fails is given up: the next begins with the right channels.
func (l *Listener) tell(names []string, how func(*redis.PubSub, context.Context, ...string) error) {
	if l.ps == nil || len(names) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(l.c.ctx, l.cfg.Ping)
	defer cancel()
	if err := how(l.ps, ctx, names...); err != nil {
		_ = l.ps.Close()
		l.ps = nil
	}
}

// Wait returns when the server has confirmed a channel that was added: what is published from then on is heard, until the
// connection is lost.
func (l *Listener) Wait(ctx context.Context, name string) error {
	l.mu.Lock()
	ch, closed := l.channels[name], l.closed
	var confirmed chan struct{} // it is replaced when the connection is lost
	if ch != nil {
		confirmed = ch.confirmed
	}
	l.mu.Unlock()
	switch {
	case closed:
		return &failure{ErrClosed, redis.ErrClosed}
	case ch == nil:
		return &failure{ErrRefused, errors.New("the channel was not added")}
	}
	select {
	case <-confirmed:
		return nil
	case <-ctx.Done():
		return &failure{ErrUnavailable, ctx.Err()}
	case <-l.c.done:
		return &failure{ErrClosed, redis.ErrClosed}
	}
}

// Subscribe is Add of one channel and Wait; if that fails the channel is removed.
func (l *Listener) Subscribe(ctx context.Context, name string) error {
	l.Add(name)
	err := l.Wait(ctx, name)
	if err != nil {
		l.Remove(name)
	}
	return err
}

// Close ends the listener. It does not wait for a function that is under way; the Conn's Close does. It is idempotent.
func (l *Listener) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	clear(l.channels)
	if l.ps != nil {
		_ = l.ps.Close()
		l.ps = nil
	}
	l.rouse()
	l.c.mu.Lock()
	delete(l.c.listeners, l)
	l.c.mu.Unlock()
}

// rouse wakes the goroutine; l.mu is held.
func (l *Listener) rouse() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run keeps a connection while there are channels.
func (l *Listener) run() {
	for attempt := 0; ; {
		ps := l.open()
		if ps == nil {
			return
		}
		if l.hear(ps) {
			attempt = 0
		}
		l.drop(ps)
		if l.ended() {
			return
		}
		if !l.c.pause(l.c.ctx, l.c.backoff.Delay(attempt)) {
			return
		}
		attempt++
	}
}

func (l *Listener) ended() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// open waits for channels and makes a connection object for them, which connects when they are subscribed. Nil: closed.
func (l *Listener) open() *redis.PubSub {
	for {
		l.mu.Lock()
		if l.closed {
			l.mu.Unlock()
			return nil
		}
		if len(l.channels) > 0 {
			l.mu.Unlock()
			return l.c.client.Subscribe(l.c.ctx)
		}
		l.mu.Unlock()
		select {
		case <-l.wake:
		case <-l.c.done:
			return nil
		}
	}
}

// hear subscribes to all channels and passes on what comes, until the connection is lost or no channel is left. It reports
// whether the server has confirmed any.
func (l *Listener) hear(ps *redis.PubSub) (confirmed bool) {
	if !l.begin(ps) {
		return false
	}
	pinged := false
	for {
		msg, err := ps.ReceiveTimeout(l.c.ctx, l.cfg.Ping)
		switch m := msg.(type) {
		case *redis.Message:
			pinged = false
			if l.cfg.Message != nil {
				l.cfg.Message(m.Channel, m.Payload)
			}
		case *redis.Subscription:
			pinged = false
			if m.Kind == "subscribe" {
				confirmed = true
				l.confirm(ps, m.Channel)
			} else if l.idle(ps) {
				return true
			}
		case *redis.Pong:
			pinged = false
		}
		if err == nil {
			continue
		}
		if nerr, ok := errors.AsType[net.Error](err); !ok || !nerr.Timeout() || pinged || !l.ping(ps) {
			return confirmed
		}
		pinged = true
	}
}

// begin subscribes a new connection to all channels.
func (l *Listener) begin(ps *redis.PubSub) bool {
	l.mu.Lock()
	names := make([]string, 0, len(l.channels))
	for name := range l.channels {
		names = append(names, name)
	}
	l.mu.Unlock()
	if len(names) == 0 {
		return false
	}
	// Without the lock, since it may take the time of a dial. A change of channels meanwhile is made good below.
	if err := ps.Subscribe(l.c.ctx, names...); err != nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.ps = ps
	had := make(map[string]bool, len(names))
	var gone, fresh []string
	for _, name := range names {
		had[name] = true
		if l.channels[name] == nil {
			gone = append(gone, name)
		}
	}
	for name := range l.channels {
		if !had[name] {
			fresh = append(fresh, name)
		}
	}
	l.tell(gone, (*redis.PubSub).Unsubscribe)
	l.tell(fresh, (*redis.PubSub).Subscribe)
	return l.ps != nil
}

// confirm notes that the server has confirmed a channel, and tells the owner.
func (l *Listener) confirm(ps *redis.PubSub, name string) {
	l.mu.Lock()
	ch := l.channels[name]
	if ch != nil && l.ps == ps && !ch.done {
		ch.done = true
		close(ch.confirmed)
	}
	l.mu.Unlock()
	if ch != nil && l.cfg.Subscribed != nil {
		l.cfg.Subscribed(name)
	}
}

// idle reports whether no channel is left, and takes the connection out of use then.
func (l *Listener) idle(ps *redis.PubSub) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.channels) > 0 {
		return false
	}
	if l.ps == ps {
		l.ps = nil
	}
	return true
}

func (l *Listener) ping(ps *redis.PubSub) bool {
	ctx, cancel := context.WithTimeout(l.c.ctx, l.cfg.Ping)
	defer cancel()
	return ps.Ping(ctx) == nil
}

// drop forgets a connection: its channels wait to be confirmed anew.
func (l *Listener) drop(ps *redis.PubSub) {
	_ = ps.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ps == ps {
		l.ps = nil
	}
	for _, ch := range l.channels {
		if ch.done {
			ch.done = false
			ch.confirmed = make(chan struct{})
		}
	}
}
