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
	// Lost is called when a connection on which a channel was confirmed has ended, with the client's or the network's reason,
	// and not when the listener was closed. Nil: nothing.
	Lost func(err error)
	// Ping is how often a silent server is asked for a sign of life; one that does not answer within as much again is given
	// up. It is also how often it is asked again for channels that it has refused. 0: 5 s.
	Ping time.Duration
}

// Listener hears what is published on channels. It has one connection, while there are channels, and outlives its loss.
type Listener struct {
	c   *Conn
	cfg ListenerConfig

	mu       sync.Mutex
	closed   bool
	running  bool
	wake     wake.Signal       // there are channels, or it is closed
	ps       *redis.PubSub     // the present connection, nil if there is none
	channels map[string]*reply // of the present connection
	asked    []question        // that have no reply yet, in the order in which they were sent
	gaveUp   error             // why the present connection was given up before it was lost
	lost     error             // why there is no connection, nil if there is one
	done     chan struct{}     // closed by Close
}

// reply is what the server has said to a subscription.
type reply struct {
	came chan struct{} // closed when it did
	err  error         // why it refuses; nil: it has confirmed. Not written any more when it came
}

func newReply() *reply { return &reply{came: make(chan struct{})} }

func (r *reply) pending() bool {
	select {
	case <-r.came:
		return false
	default:
		return true
	}
}

func (r *reply) give(err error) {
	r.err = err
	close(r.came)
}

// question is one SUBSCRIBE. The server replies in their order; a refusal does not say to which.
type question struct {
	name string
	to   *reply
}

// Listen makes a listener without channels. Close it, or the Conn.
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
			l.channels[name] = newReply()
			fresh = append(fresh, name)
		}
	}
	if !l.running {
		l.c.mu.Lock()
		l.running = l.c.start(l.run)
		l.c.mu.Unlock()
	}
	l.ask(fresh)
	l.wake.Notify()
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

// ask subscribes to channels on the present connection, each with a command of its own, so that one which is refused does not
// cost the others; l.mu is held.
func (l *Listener) ask(names []string) {
	for _, name := range names {
		if l.ps == nil {
			return
		}
		l.asked = append(l.asked, question{name, l.channels[name]})
		l.tell([]string{name}, (*redis.PubSub).Subscribe)
	}
}

// tell sends a change of channels over the present connection, if there is one; l.mu is held. A connection on which that
// fails is given up: the next begins with the right channels.
func (l *Listener) tell(names []string, how func(*redis.PubSub, context.Context, ...string) error) {
	if l.ps == nil || len(names) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(l.staying(), l.cfg.Ping)
	defer cancel()
	if err := how(l.ps, ctx, names...); err != nil {
		l.gaveUp = err
		_ = l.ps.Close()
		l.ps = nil
	}
}

// Wait returns when the server has confirmed a channel that was added: what is published from then on is heard, until the
// connection is lost. When the server refuses the channel or the credentials it is [ErrAccess], at once; the listener goes on
// asking all the same. Without a server it is [ErrUnavailable], with the reason, when ctx ends.
func (l *Listener) Wait(ctx context.Context, name string) error {
	l.mu.Lock()
	r, closed := l.channels[name], l.closed // another is put there when the connection is lost
	l.mu.Unlock()
	switch {
	case closed:
		return &failure{ErrClosed, redis.ErrClosed}
	case r == nil:
		return &failure{ErrRefused, errors.New("the channel was not added")}
	}
	select {
	case <-r.came:
		return r.err
	case <-ctx.Done():
		return &failure{ErrUnavailable, l.because(ctx.Err())}
	case <-l.done:
	case <-l.c.done:
	}
	return &failure{ErrClosed, redis.ErrClosed}
}

// because adds to err why there is no connection.
func (l *Listener) because(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost == nil {
		return err
	}
	return fmt.Errorf("%w (%w)", err, l.lost)
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

// run keeps a connection while there are channels.
func (l *Listener) run() {
	for attempt := 0; ; {
		ps := l.open()
		if ps == nil {
			return
		}
		confirmed, err := l.hear(ps)
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

// hear subscribes to all channels and passes on what comes, until the connection is lost, which is err, or no channel is
// left. confirmed tells whether the server has confirmed any.
func (l *Listener) hear(ps *redis.PubSub) (confirmed bool, err error) {
	if err := l.begin(ps); err != nil {
		return false, err
	}
	ctx := l.staying()
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
			if m.Kind == "subscribe" {
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
			l.askAgain()
		}
	}
}

// staying is a ctx for what is done on a connection that is there.
func (l *Listener) staying() context.Context { return context.WithValue(l.c.ctx, stay{}, true) }

var errIdle = errors.New("no channel is left")

// begin subscribes a new connection to all channels.
func (l *Listener) begin(ps *redis.PubSub) error {
	l.mu.Lock()
	l.asked = nil
	for name, r := range l.channels {
		l.asked = append(l.asked, question{name, r})
	}
	asked := l.asked
	l.mu.Unlock()
	// Without the lock, since it may take the time of a dial. A change of channels meanwhile is made good below.
	for i, q := range asked {
		ctx := l.staying()
		if i == 0 { // which makes the connection
			ctx = l.c.ctx
		}
		if err := ps.Subscribe(ctx, q.name); err != nil {
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
		} else if r != q.to { // it was removed and added again
			fresh = append(fresh, q.name)
		}
	}
	for name := range l.channels {
		if !had[name] {
			fresh = append(fresh, name)
		}
	}
	l.tell(gone, (*redis.PubSub).Unsubscribe)
	l.ask(fresh)
	return l.gaveUp
}

// confirm notes that the server has confirmed a channel, and tells the owner.
func (l *Listener) confirm(name string) {
	l.mu.Lock()
	i := slices.IndexFunc(l.asked, func(q question) bool { return q.name == name })
	if i < 0 {
		l.mu.Unlock()
		return
	}
	r := l.asked[i].to
	l.asked = slices.Delete(l.asked, i, i+1)
	current := l.channels[name] == r && r.pending()
	if current {
		r.give(nil)
	}
	l.mu.Unlock()
	if current && l.cfg.Subscribed != nil {
		l.cfg.Subscribed(name)
	}
}

// refuse notes that the server has refused a channel. It reports whether err says so; the connection is as good as before then.
func (l *Listener) refuse(err error) bool {
	err = classify(err, true)
	if !errors.Is(err, ErrAccess) && !errors.Is(err, ErrRefused) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.asked) == 0 {
		return false
	}
	r := l.asked[0].to
	l.asked = l.asked[1:]
	if r.pending() {
		r.give(err)
	}
	return true
}

// askAgain asks for the channels that were refused.
func (l *Listener) askAgain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	var names []string
	for name, r := range l.channels {
		if !r.pending() && r.err != nil {
			l.channels[name] = newReply()
			names = append(names, name)
		}
	}
	l.ask(names)
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
	ctx, cancel := context.WithTimeout(l.staying(), l.cfg.Ping)
	defer cancel()
	return ps.Ping(ctx) == nil
}

// drop forgets a connection, which was lost because of err: its channels wait for a reply of the next one. It returns the
// reason, which is an earlier one if the connection was given up because of that.
func (l *Listener) drop(ps *redis.PubSub, err error) error {
	_ = ps.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gaveUp != nil {
		err = l.gaveUp
	}
	l.ps, l.asked, l.gaveUp, l.lost = nil, nil, nil, err
	refusal := classify(err, false)
	for name, r := range l.channels {
		switch {
		case !r.pending():
			l.channels[name] = newReply()
		case errors.Is(refusal, ErrAccess): // of the credentials
			r.give(refusal)
			l.channels[name] = newReply()
		}
	}
	return err
}
