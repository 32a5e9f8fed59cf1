package redisconn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/internal/wake"
)

// Listener receives the messages of channels. It has one connection while it has channels, and
// replaces a lost connection.
type Listener struct {
	c   *Conn
	cfg ListenerConfig

	mu        sync.Mutex
	closed    bool
	running   bool
	wake      wake.Signal       // notified when channels were added or the listener was closed
	ps        *redis.PubSub     // current connection, or nil
	channels  map[string]*reply // state of each channel on the current connection
	requests  []request         // requests without a reply, in the order in which they were sent
	dropCause error             // why this package closed the current connection; nil: it did not
	lost      error             // why no connection exists; nil: one exists
	done      chan struct{}     // closed by Close
}

// reply holds the server's reply to a subscription.
type reply struct {
	arrived chan struct{} // closed when the reply has arrived
	err     error         // reason of a refusal; nil: confirmed. Not written after arrived is closed.
}

func newReply() *reply { return &reply{arrived: make(chan struct{})} }

// pending reports whether the server has not replied yet. It does not wait.
func (r *reply) pending() bool {
	select {
	case <-r.arrived:
		return false
	default:
		return true
	}
}

// set stores the server's reply, nil if confirmed, and wakes Wait. Call it once, with l.mu held.
func (r *reply) set(err error) {
	r.err = err
	close(r.arrived)
}

// request is one SUBSCRIBE command. The server replies in the order of the requests; a refusal does
// not name its channel.
type request struct {
	name string
	to   *reply
}

// Listen returns a listener without channels. It does not connect; the first Add starts its
// goroutine. Close it, or the Conn. After Close of the Conn the listener is closed. It takes c.mu.
func (c *Conn) Listen(cfg ListenerConfig) *Listener {
	if cfg.Ping <= 0 {
		cfg.Ping = DefaultPing
	}
	l := &Listener{c: c, cfg: cfg, wake: wake.New(), channels: make(map[string]*reply), done: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		l.closed = true
		close(l.done)
	} else {
		c.listeners[l] = struct{}{}
	}
	return l
}

// Add subscribes to channels until Remove, also after lost connections. It skips channels that it
// has. The first call starts the listener's goroutine. Add may block for up to Ping to write, but
// does not wait for confirmations; see Wait. After Close it does nothing. It takes l.mu and c.mu.
func (l *Listener) Add(channels ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	var fresh []string
	for _, name := range channels {
		if l.channels[name] == nil {
			l.channels[name] = newReply()
			fresh = append(fresh, name)
		}
	}
	if !l.running {
		l.c.mu.Lock()
		l.running = l.c.start(l.run)
		l.c.mu.Unlock()
	}
	l.subscribe(fresh)
	l.wake.Notify()
}

// Remove ends the subscription to channels and skips unknown ones. Late messages may still arrive.
// Wait for a removed channel may last until its ctx ends. Remove may block up to Ping, with l.mu
// held.
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
	l.change(gone, l.cfg.howNot())
}

// subscribe sends a SUBSCRIBE command for each channel on the current connection and appends it to
// l.requests. A refused channel thus does not affect the others. Without a connection it does
// nothing. Call it with l.mu held.
func (l *Listener) subscribe(names []string) {
	for _, name := range names {
		if l.ps == nil {
			return
		}
		l.requests = append(l.requests, request{name, l.channels[name]})
		l.change([]string{name}, l.cfg.how())
	}
}

// change sends a change of channels on the current connection, if one exists. If that fails or
// takes longer than Ping, it closes the connection and stores the error in l.dropCause. The next
// connection begins with the right channels. Call it with l.mu held.
func (l *Listener) change(names []string, how func(*redis.PubSub, context.Context, ...string) error) {
	if l.ps == nil || len(names) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(l.noDialCtx(), l.cfg.Ping)
	defer cancel()
	if err := how(l.ps, ctx, names...); err != nil {
		l.dropCause = err
		_ = l.ps.Close()
		l.ps = nil
	}
}

// Wait blocks until the server has confirmed an added channel. Messages published from then on are
// received until the connection is lost. It takes l.mu, but does not hold it while it waits.
//
// If the server refuses the channel or the credentials, Wait returns [ErrAccess] or [ErrRefused] at
// once; the listener requests the channel again later. Returns [ErrUnavailable] with the cause if
// ctx ends first, [ErrRefused] if the channel was not added, [ErrClosed] after Close.
func (l *Listener) Wait(ctx context.Context, name string) error {
	l.mu.Lock()
	r, closed := l.channels[name], l.closed // a lost connection replaces this entry
	l.mu.Unlock()
	switch {
	case closed:
		return &failure{ErrClosed, redis.ErrClosed}
	case r == nil:
		return &failure{ErrRefused, errors.New("the channel was not added")}
	}
	select {
	case <-r.arrived:
		return r.err
	case <-ctx.Done():
		return &failure{ErrUnavailable, l.withCause(ctx.Err())}
	case <-l.done:
	case <-l.c.done:
	}
	return &failure{ErrClosed, redis.ErrClosed}
}

// withCause adds to err the reason why no connection exists. It takes l.mu.
func (l *Listener) withCause(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost == nil {
		return err
	}
	return fmt.Errorf("%w (%w)", err, l.lost)
}

// Subscribe adds one channel and waits for its confirmation like Wait. If that fails it removes the
// channel and returns the error of Wait.
func (l *Listener) Subscribe(ctx context.Context, name string) error {
	l.Add(name)
	err := l.Wait(ctx, name)
	if err != nil {
		l.Remove(name)
	}
	return err
}

// Close ends the listener and its connection, and makes Wait return ErrClosed. It does not wait for
// a running callback; Close of the Conn does. Further calls do nothing. It takes l.mu and c.mu.
func (l *Listener) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	close(l.done)
	clear(l.channels)
	if l.ps != nil {
		_ = l.ps.Close()
		l.ps = nil
	}
	l.wake.Notify()
	l.c.mu.Lock()
	delete(l.c.listeners, l)
	l.c.mu.Unlock()
}

// run keeps a connection open while the listener has channels, with backoff after each loss, until
// Close of the listener or the Conn. It calls Lost after the loss of a connection with a confirmed
// channel. It is the goroutine of the listener, on which all callbacks run.
func (l *Listener) run() {
	for attempt := 0; ; {
		ps := l.open()
		if ps == nil {
			return
		}
		confirmed, err := l.receive(ps)
		if confirmed {
			attempt = 0
		}
		err = l.drop(ps, err)
		if l.ended() {
			return
		}
		if confirmed && err != nil && l.cfg.Lost != nil {
			l.cfg.Lost(err)
		}
		if !l.c.pause(l.c.ctx, l.c.backoff.Interval(attempt)) {
			return
		}
		attempt++
	}
}

// ended reports whether the listener was closed. It takes l.mu.
func (l *Listener) ended() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// open blocks until the listener has channels and returns a connection object, which connects at
// the first subscription. It returns nil after Close. It takes l.mu, but does not hold it while it
// waits.
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

// receive subscribes to all channels and calls the callbacks until the connection is lost, whose
// error it returns. It returns nil when no channel is left. It pings an idle server and requests
// refused channels again. confirmed reports whether the server has confirmed any channel.
func (l *Listener) receive(ps *redis.PubSub) (confirmed bool, err error) {
	if err := l.begin(ps); err != nil {
		return false, err
	}
	ctx := l.noDialCtx()
	pinged, asked := false, time.Now()
	for {
		msg, err := ps.ReceiveTimeout(ctx, l.cfg.Ping)
		switch m := msg.(type) {
		case *redis.Message:
			pinged = false
			if l.cfg.Message != nil {
				l.cfg.Message(m.Channel, m.Payload)
			}
		case *redis.Subscription:
			pinged = false
			if m.Kind == "subscribe" || m.Kind == "psubscribe" {
				confirmed = true
				l.confirm(m.Channel)
			} else if l.idle(ps) {
				return confirmed, nil
			}
		case *redis.Pong:
			pinged = false
		}
		switch nerr, isNet := errors.AsType[net.Error](err); {
		case err == nil:
		case l.refuse(err):
			pinged = false
		case isNet && nerr.Timeout() && !pinged && l.ping(ps):
			pinged = true
		default:
			return confirmed, err
		}
		if time.Since(asked) >= l.cfg.Ping {
			asked = time.Now()
			l.retryRefused()
		}
	}
}

// noDialCtx returns a ctx for operations on an existing connection, with which the client dials no
// new one.
func (l *Listener) noDialCtx() context.Context { return context.WithValue(l.c.ctx, noDial{}, true) }

var errIdle = errors.New("no channel is left")

// begin subscribes the new connection ps to all channels, makes it the current one, and sends the
// changes of channels that were made meanwhile. Returns the error of a failed subscription, errIdle
// without channels, redis.ErrClosed after Close. It takes l.mu, but not while it dials.
func (l *Listener) begin(ps *redis.PubSub) error {
	l.mu.Lock()
	l.requests = nil
	for name, r := range l.channels {
		l.requests = append(l.requests, request{name, r})
	}
	asked := l.requests
	l.mu.Unlock()
	// Without the lock, because dialing may take long. Changes made meanwhile are sent below.
	for i, q := range asked {
		ctx := l.noDialCtx()
		if i == 0 { // the first subscription makes the connection
			ctx = l.c.ctx
		}
		if err := l.cfg.how()(ps, ctx, q.name); err != nil {
			return err
		}
	}
	if len(asked) == 0 {
		return errIdle
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return redis.ErrClosed
	}
	l.ps, l.lost = ps, nil
	had := make(map[string]bool, len(asked))
	var gone, fresh []string
	for _, q := range asked {
		had[q.name] = true
		if r := l.channels[q.name]; r == nil {
			gone = append(gone, q.name)
		} else if r != q.to { // removed and added again
			fresh = append(fresh, q.name)
		}
	}
	for name := range l.channels {
		if !had[name] {
			fresh = append(fresh, name)
		}
	}
	l.change(gone, l.cfg.howNot())
	l.subscribe(fresh)
	return l.dropCause
}

// confirm records the server's confirmation of the oldest request for a channel. It wakes Wait and
// calls Subscribed, unless the channel was removed or requested again meanwhile. It ignores a
// channel without a request. It takes l.mu, but not while it calls Subscribed.
func (l *Listener) confirm(name string) {
	l.mu.Lock()
	i := slices.IndexFunc(l.requests, func(q request) bool { return q.name == name })
	if i < 0 {
		l.mu.Unlock()
		return
	}
	r := l.requests[i].to
	l.requests = slices.Delete(l.requests, i, i+1)
	current := l.channels[name] == r && r.pending()
	if current {
		r.set(nil)
	}
	l.mu.Unlock()
	if current && l.cfg.Subscribed != nil {
		l.cfg.Subscribed(name)
	}
}

// refuse handles an error answer of the server: it refuses the oldest request, which ends its Wait.
// It returns false if err is not such an answer or no request is open. It takes l.mu.
func (l *Listener) refuse(err error) bool {
	err = classify(err, true)
	if !errors.Is(err, ErrAccess) && !errors.Is(err, ErrRefused) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.requests) == 0 {
		return false
	}
	r := l.requests[0].to
	l.requests = l.requests[1:]
	if r.pending() {
		r.set(err)
	}
	return true
}

// retryRefused subscribes again to the refused channels, for which Wait then waits. It takes l.mu.
func (l *Listener) retryRefused() {
	l.mu.Lock()
	defer l.mu.Unlock()
	var names []string
	for name, r := range l.channels {
		if !r.pending() && r.err != nil {
			l.channels[name] = newReply()
			names = append(names, name)
		}
	}
	l.subscribe(names)
}

// idle reports whether no channel is left, and then removes the connection from l. It takes l.mu.
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

// ping sends a PING and reports whether that succeeded. It does not wait for the answer.
func (l *Listener) ping(ps *redis.PubSub) bool {
	ctx, cancel := context.WithTimeout(l.noDialCtx(), l.cfg.Ping)
	defer cancel()
	return ps.Ping(ctx) == nil
}

// drop closes and forgets a connection that ended with err; its channels wait for a reply on the
// next one. If the server refused the credentials, waiting calls of Wait return that error. It
// returns the reason, which is l.dropCause if this package closed the connection. It takes l.mu.
func (l *Listener) drop(ps *redis.PubSub, err error) error {
	_ = ps.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dropCause != nil {
		err = l.dropCause
	}
	l.ps, l.requests, l.dropCause, l.lost = nil, nil, nil, err
	refusal := l.c.classify(err, false)
	for name, r := range l.channels {
		switch {
		case !r.pending():
			l.channels[name] = newReply()
		case errors.Is(refusal, ErrAccess): // refused credentials
			r.set(refusal)
			l.channels[name] = newReply()
		}
	}
	return err
}
