package amqpconn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/internal/wake"
)

// DefaultWindow is the default of PublisherConfig.Window. A larger window is slower: the client
// library checks every unconfirmed message whenever the server confirms several at once.
const DefaultWindow = 1024

// PublisherConfig holds the settings of a Publisher. The zero value is usable.
type PublisherConfig struct {
	// Window is the number of messages that may wait for their confirmation. 0: 1,024.
	Window int
	// Setup is called with each new channel before its first use, to declare exchanges and queues. Its
	// error is returned to the calls that wait for the channel. Nil: no call.
	Setup func(ch *amqp.Channel) error
	// Unconfirmed disables confirmations and returns: Publish returns when the message is buffered,
	// and its arrival is never known. Messages without a bound queue are lost.
	Unconfirmed bool
}

// Outgoing is a message of a batch. The Publisher reads it until PublishBatch has returned.
type Outgoing struct {
	Exchange string
	Key      string
	Message  *amqp.Publishing
}

// Publisher publishes over one channel of a Conn and waits for confirmations. Concurrent publishes
// share system calls and the server's answers. All methods are safe for concurrent use.
type Publisher struct {
	conn *Conn
	cfg  PublisherConfig
	live atomic.Pointer[outlet]

	mu      sync.Mutex
	opening *opening
	closed  bool
}

// opening is a channel that is being opened for all calls that wait for it.
type opening struct {
	sess *Session
	done chan struct{}
	out  *outlet
	err  error
}

// NewPublisher returns a Publisher on conn. It does no I/O. A Window of 0 or less becomes
// DefaultWindow.
func NewPublisher(conn *Conn, cfg PublisherConfig) *Publisher {
	if cfg.Window <= 0 {
		cfg.Window = DefaultWindow
	}
	return &Publisher{conn: conn, cfg: cfg}
}

// Open waits until the Publisher has a channel on which Setup has run, or ctx ends. Publish does
// the same when needed. It returns ErrUnavailable, ErrBlocked, ErrAccess or ErrClosed, like Publish
// for a message that was not sent.
func (p *Publisher) Open(ctx context.Context) error {
	_, err := p.outlet(ctx)
	return err
}

// Publish publishes m once and waits until the server has confirmed it, or ctx ends. While no
// channel is open or the server blocks publishers, it waits before it sends. An unconfirmed
// Publisher returns nil when m is buffered. Errors, besides ErrClosed and ErrAccess:
//
//   - not sent: [ErrUnavailable], [ErrMalformed], and [ErrBlocked] without ErrIndeterminate
//   - not stored: [ErrUnroutable], [ErrRefused]
//   - unknown: [ErrIndeterminate]
//
// Publish does not use m after it returned. After ErrIndeterminate the body of m must not be
// changed.
func (p *Publisher) Publish(ctx context.Context, exchange, key string, m *amqp.Publishing) error {
	f, err := p.send(ctx, exchange, key, m, true)
	if err != nil || f == nil {
		return err
	}
	return p.await(ctx, f)
}

// PublishBatch publishes all messages in their order and then waits for the answers. If the window
// is full it first waits for the earliest answers. A message that fails does not stop the others.
// It returns nil if all are confirmed. Otherwise it returns one error for each message, which is
// nil for a confirmed one. See Publish for the errors.
func (p *Publisher) PublishBatch(ctx context.Context, ms []Outgoing) []error {
	var (
		errs    []error
		flights = make([]*flight, len(ms))
		next    int // first message whose answer was not awaited
	)
	fail := func(i int, err error) {
		if err == nil {
			return
		}
		if errs == nil {
			errs = make([]error, len(ms))
		}
		errs[i] = err
	}
	await := func() {
		if f := flights[next]; f != nil {
			flights[next] = nil
			fail(next, p.await(ctx, f))
		}
		next++
	}
	for i, m := range ms {
		for {
			// While messages of this batch hold slots, waiting for a slot could be a deadlock.
			f, err := p.send(ctx, m.Exchange, m.Key, m.Message, next == i)
			if errors.Is(err, errNoSlot) {
				await()
				continue
			}
			fail(i, err)
			flights[i] = f
			break
		}
	}
	for next < len(ms) {
		await()
	}
	return errs
}

var errNoSlot = errors.New("amqp: all slots of the window are taken")

// send writes m to the connection and returns its flight, or nil if the Publisher is unconfirmed.
// It waits for a channel and, if wait is true, for a free slot; otherwise it returns errNoSlot. If
// the channel has ended before m was sent, it sends m on the next one. After an error the message
// was not sent, unless the error is ErrIndeterminate. Returns ErrUnavailable if ctx has ended
// already.
func (p *Publisher) send(ctx context.Context, exchange, key string, m *amqp.Publishing, wait bool) (*flight, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
	}
	for {
		out, err := p.outlet(ctx)
		if err != nil {
			return nil, err
		}
		f, err := p.sendOn(ctx, out, exchange, key, m, wait)
		if !errors.Is(err, errGone) {
			return f, err
		}
		p.live.CompareAndSwap(out, nil)
	}
}

var errGone = errors.New("amqp: the channel has ended")

// sendOn writes m to one channel, like send. It waits while the server blocks publishers, the write
// buffer is full, or, if wait is true, no slot is free. Returns errGone if the channel has ended
// and m was not sent. If ctx ends first, it returns ErrBlocked if the server blocks publishers,
// ErrUnavailable otherwise.
func (p *Publisher) sendOn(ctx context.Context, out *outlet, exchange, key string, m *amqp.Publishing, wait bool) (*flight, error) {
	sess := out.ch.sess
	if sess.Blocked() {
		if err := p.conn.waitUnblocked(ctx, sess); err != nil {
			return nil, err
		}
	}
	if err := sess.sock.WaitRoom(ctx, sess.Blocked); err != nil {
		switch {
		case ctx.Err() == nil:
			return nil, errGone
		case sess.Blocked():
			return nil, fmt.Errorf("%w: %w", ErrBlocked, err)
		default:
			return nil, fmt.Errorf("%w: the server does not read: %w", ErrUnavailable, err)
		}
	}
	if p.cfg.Unconfirmed {
		return nil, out.write(nil, exchange, key, m)
	}
	var f *flight
	select {
	case f = <-out.slots:
	default:
		if !wait {
			return nil, errNoSlot
		}
		select {
		case f = <-out.slots:
		case <-out.ch.done:
			return nil, errGone
		case <-ctx.Done():
			if sess.Blocked() {
				return nil, fmt.Errorf("%w: %w", ErrBlocked, ctx.Err())
			}
			return nil, fmt.Errorf("%w: the server confirms too slowly: %w", ErrUnavailable, ctx.Err())
		}
	}
	if err := out.write(f, exchange, key, m); err != nil {
		out.release(f)
		return nil, err
	}
	return f, nil
}

// await waits for the answer to f and returns it, and frees the slot. Returns ErrIndeterminate when
// ctx ends first, with ErrBlocked if the server blocks publishers. Then a goroutine waits for the
// answer and frees the slot.
func (p *Publisher) await(ctx context.Context, f *flight) error {
	select {
	case <-f.dc.Done():
		return p.outcome(f)
	default:
	}
	select {
	case <-f.dc.Done():
		return p.outcome(f)
	case <-ctx.Done():
	}
	select {
	case <-f.dc.Done():
		return p.outcome(f)
	default:
	}
	blocked := f.out.ch.sess.Blocked()
	go func() { // frees the slot when the answer arrives or the channel ends
		<-f.dc.Done()
		_ = p.outcome(f) // no caller waits for it any more
	}()
	if blocked {
		return fmt.Errorf("%w: %w: %w", ErrIndeterminate, ErrBlocked, ctx.Err())
	}
	return fmt.Errorf("%w: %w", ErrIndeterminate, ctx.Err())
}

// retireAge is the least age of a channel that is replaced after a refusal. It limits the cost if a
// full queue refuses many messages in a row.
const retireAge = time.Second

// outcome returns the answer to f and frees its slot, see the method of outlet. After a refusal it
// replaces a channel that is older than retireAge: a goroutine drains and closes it, and the next
// publish opens another. RabbitMQ (3.10) keeps refusing messages on a channel that first used a
// quorum queue during the election of its leader. It accepts them on other channels.
func (p *Publisher) outcome(f *flight) error {
	o := f.out
	err := o.outcome(f)
	if errors.Is(err, ErrRefused) && time.Since(o.born) > retireAge && p.live.CompareAndSwap(o, nil) {
		go func() { _ = o.drain() }() // ends when all pending messages are answered, or with the session
	}
	return err
}

// outlet returns the open channel. Without one it waits until a channel is open and prepared, and
// repeats failed attempts with backoff until ctx ends. Returns ErrUnavailable, ErrBlocked,
// ErrAccess or ErrClosed.
func (p *Publisher) outlet(ctx context.Context) (*outlet, error) {
	if o := p.live.Load(); o != nil && !o.ch.IsClosed() {
		return o, nil
	}
	var last error // error of the last attempt
	for attempt := 0; ; attempt++ {
		sess, err := p.conn.Session(ctx)
		if err != nil {
			return nil, err
		}
		op, err := p.open(sess)
		if err != nil {
			return nil, err
		}
		select {
		case <-op.done:
		case <-ctx.Done():
			if sess.Blocked() {
				return nil, fmt.Errorf("%w: %w", ErrBlocked, ctx.Err())
			}
			return nil, p.conn.unavailable(ctx, cmp.Or(sess.Err(), last))
		}
		last = op.err
		switch {
		case op.err == nil:
			return op.out, nil
		case errors.Is(op.err, ErrAccess):
			return nil, op.err
		case sess.Err() == nil && !wake.Sleep(ctx, p.conn.backoff.Interval(attempt)):
			return nil, p.conn.unavailable(ctx, last)
		}
	}
}

// open starts a goroutine that opens a channel of sess and stores it in p.live. If an opening is
// running already, also one of an earlier session, open returns that. If a channel is open, it
// returns a finished opening with it. It does not wait. Returns ErrClosed after Close. It takes
// p.mu, and so does the goroutine.
func (p *Publisher) open(sess *Session) (*opening, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, ErrClosed
	}
	if op := p.opening; op != nil {
		return op, nil
	}
	op := &opening{sess: sess, done: make(chan struct{})}
	if o := p.live.Load(); o != nil && !o.ch.IsClosed() {
		op.out = o
		close(op.done)
		return op, nil
	}
	p.opening = op
	go func() { // ends with the session
		op.out, op.err = p.newOutlet(sess)
		p.mu.Lock()
		p.opening = nil
		if op.err == nil {
			p.live.Store(op.out)
		}
		p.mu.Unlock()
		close(op.done)
	}()
	return op, nil
}

// newOutlet opens a channel of sess, runs Setup on it and enables confirmations, and returns it as
// an outlet with Window free slots. An unconfirmed Publisher gets an outlet without slots. It waits
// for the server. After an error the channel is closed.
func (p *Publisher) newOutlet(sess *Session) (*outlet, error) {
	ch, err := sess.open()
	if err != nil {
		return nil, err
	}
	if err := p.prepare(ch.Channel); err != nil {
		if ch.IsClosed() { // the library may not give the reason, but the server has
			<-ch.done
			err = ch.err
		}
		_ = ch.Close()
		return nil, fmt.Errorf("amqp %s: preparing to publish: %w", sess.addr, channelError(err))
	}
	o := &outlet{ch: ch, born: time.Now()}
	if p.cfg.Unconfirmed {
		return o, nil
	}
	o.all = make([]flight, p.cfg.Window)
	o.slots = make(chan *flight, p.cfg.Window)
	for i := range o.all {
		o.all[i].out = o
		o.slots <- &o.all[i]
	}
	// The channel has space for one return per slot, and a slot is freed only after its return was
	// read. The library therefore never blocks.
	o.returns = ch.NotifyReturn(make(chan amqp.Return, p.cfg.Window))
	return o, nil
}

// prepare runs Setup on a new channel and enables confirmations, unless the Publisher is
// unconfirmed. It waits for the server and returns the first error.
func (p *Publisher) prepare(ch *amqp.Channel) error {
	if p.cfg.Setup != nil {
		if err := p.cfg.Setup(ch); err != nil {
			return err
		}
	}
	if p.cfg.Unconfirmed {
		return nil
	}
	return ch.Confirm(false)
}

// Close makes later calls return [ErrClosed]; calls that wait for an answer still receive it. It
// waits for the pending answers and closes the channel, so that all buffered messages have reached
// the server when it returns nil. Without an open channel it returns nil at once.
//
// If ctx ends first it returns ctx's error, and a goroutine continues the work. Further calls are
// allowed. It takes p.mu, but does not hold it while it waits.
func (p *Publisher) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	o := p.live.Load()
	if o == nil || o.ch.IsClosed() {
		return nil
	}
	done := make(chan error, 1)
	go func() { done <- o.drain() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("amqp %s: closing a channel: %w", o.ch.sess.addr, ctx.Err())
	}
}
