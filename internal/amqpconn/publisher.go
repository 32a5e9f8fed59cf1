package amqpconn

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/internal/netconn"
	"github.com/swarmiji/swarmiji/internal/wake"
)

// DefaultWindow is how many messages a Publisher has under way at most. A larger one costs more than it gives: the client
// library looks at every unconfirmed message whenever the server confirms several at once.
const DefaultWindow = 1024

// PublisherConfig tunes a Publisher. The zero value is usable.
type PublisherConfig struct {
	// Window is how many messages may wait for their confirmation. 0: 1,024.
	Window int
	// Setup is called with each new channel before it is used, to declare what messages are published to. An error is
	// reported to those who wait for the channel. Nil: nothing.
	Setup func(ch *amqp.Channel) error
	// Unconfirmed turns confirmations and returns off: Publish returns when the message is buffered for sending, and whether
	// it arrives is never known. Messages that nothing is bound for vanish.
	Unconfirmed bool
}

// Outgoing is a message of a batch. The Publisher reads it until PublishBatch has returned.
type Outgoing struct {
	Exchange string
	Key      string
	Message  *amqp.Publishing
}

// Publisher publishes with confirmations over one channel of a Conn. Concurrent publishes overtake each other's waits: they
// share system calls and the server's answers. All methods may be called from any goroutine.
type Publisher struct {
	conn *Conn
	cfg  PublisherConfig
	live atomic.Pointer[outlet]

	mu      sync.Mutex
	opening *opening
	closed  bool
}

// opening is a channel that is being opened, for all who wait for it.
type opening struct {
	sess *Session
	done chan struct{}
	out  *outlet
	err  error
}

// NewPublisher returns a Publisher on conn. It does no I/O.
func NewPublisher(conn *Conn, cfg PublisherConfig) *Publisher {
	if cfg.Window <= 0 {
		cfg.Window = DefaultWindow
	}
	return &Publisher{conn: conn, cfg: cfg}
}

// outlet is one channel of a Publisher.
type outlet struct {
	ch      *Channel
	born    time.Time
	slots   chan *flight // free ones
	all     []flight
	returns chan amqp.Return

	mu          sync.Mutex // held while publishing and while returns are matched
	seq         uint64
	anyReturned atomic.Bool
}

// flight is a message that waits for its confirmation. Its fields are written under outlet.mu before active is set.
type flight struct {
	active   atomic.Bool
	returned atomic.Pointer[amqp.Error]
	out      *outlet
	seq      uint64
	exchange string
	key      string
	id       string
	body     []byte
	dc       *amqp.DeferredConfirmation
}

// Open waits until the Publisher has a channel that is set up. Publish does that by itself.
func (p *Publisher) Open(ctx context.Context) error {
	_, err := p.outlet(ctx)
	return err
}

// Publish publishes m and waits until the server has confirmed it. The errors, besides ErrClosed and ErrAccess:
// [ErrUnavailable] (not sent), [ErrMalformed] (not sent), [ErrUnroutable] (not stored), [ErrRefused] (not stored),
// [ErrBlocked] (not sent, unless ErrIndeterminate is there too), [ErrIndeterminate].
// m is not used after Publish has returned; its body must not be changed after ErrIndeterminate.
func (p *Publisher) Publish(ctx context.Context, exchange, key string, m *amqp.Publishing) error {
	f, err := p.send(ctx, exchange, key, m, true)
	if err != nil || f == nil {
		return err
	}
	return p.await(ctx, f)
}

// PublishBatch publishes all of ms and then waits for the answers. It returns nil if all are confirmed, else one error for
// each message, nil where it is confirmed.
func (p *Publisher) PublishBatch(ctx context.Context, ms []Outgoing) []error {
	var (
		errs    []error
		flights = make([]*flight, len(ms))
		next    int // the first whose answer was not awaited
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
			// While messages of this batch hold slots, waiting for a slot could be waiting for ourselves.
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

// send hands m to the connection and returns what to wait for, nil without confirmations. If it fails nothing was sent, unless
// the error is ErrIndeterminate.
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

var errGone = errors.New("amqp: the channel has gone")

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

// write encodes m into the connection's buffer. Errors: errGone (m was not sent), ErrIndeterminate, ErrMalformed.
func (o *outlet) write(f *flight, exchange, key string, m *amqp.Publishing) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	sock := o.ch.sess.sock
	before := sock.Taken()
	dc, err := o.ch.PublishWithDeferredConfirm(exchange, key, f != nil, false, *m)
	if err != nil {
		return writeError(err, sock.Taken()-before, len(m.Body))
	}
	if f != nil {
		o.seq++
		f.seq, f.exchange, f.key, f.id, f.body, f.dc = o.seq, exchange, key, m.MessageId, m.Body, dc
		f.active.Store(true)
	}
	return nil
}

// writeError classes what the library returned for a message with a body of size bytes, while the socket took sent bytes from
// all who write. The library's frames wait in a buffer that others flush too: after a failure the message may have left all
// the same, but not while fewer bytes did than it has. The server ignores a part of a message.
func writeError(err error, sent int64, size int) error {
	switch {
	case !errors.Is(err, netconn.ErrNotWritten) && !errors.Is(err, amqp.ErrClosed): // the encoder's
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	case sent > int64(size): // the frames are larger than the body
		return fmt.Errorf("%w: %w", ErrIndeterminate, err)
	default:
		return errGone
	}
}

func (o *outlet) release(f *flight) {
	f.active.Store(false)
	f.returned.Store(nil)
	o.slots <- f
}

// await waits for the answer to f.
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
	go func() { // the slot is free when the answer has come, or the channel has gone
		<-f.dc.Done()
		_ = p.outcome(f) // nobody waits for it any more
	}()
	if blocked {
		return fmt.Errorf("%w: %w: %w", ErrIndeterminate, ErrBlocked, ctx.Err())
	}
	return fmt.Errorf("%w: %w", ErrIndeterminate, ctx.Err())
}

// retireAge is how old a channel is at least that is replaced because of a refusal. It bounds the cost where a full queue
// refuses one message after the other.
const retireAge = time.Second

// outcome reads the answer to f. A channel on which the server refuses is replaced: RabbitMQ (3.10) goes on refusing, on one
// that first reached a quorum queue while its leader was being elected, what it takes on every other.
func (p *Publisher) outcome(f *flight) error {
	o := f.out
	err := o.outcome(f)
	if errors.Is(err, ErrRefused) && time.Since(o.born) > retireAge && p.live.CompareAndSwap(o, nil) {
		go func() { _ = o.drain() }() // ends when all that is under way is answered, or with the session
	}
	return err
}

// outcome reads the answer to f and frees its slot.
func (o *outlet) outcome(f *flight) error {
	// A return arrives before the confirmation of the same message. It is in the channel, or somebody else has taken it from
	// there after setting anyReturned, and is done with it when mu is free.
	if len(o.returns) > 0 || o.anyReturned.Load() {
		o.matchReturns()
	}
	returned, acked := f.returned.Load(), f.dc.Acked()
	o.release(f)
	switch {
	case returned != nil:
		return fmt.Errorf("%w: %w", ErrUnroutable, returned)
	case acked:
		return nil
	case o.ch.IsClosed() || o.ch.sess.conn.IsClosed():
		<-o.ch.done
		return fmt.Errorf("%w: %w", ErrIndeterminate, o.ch.err)
	default:
		return fmt.Errorf("%w: negative confirmation", ErrRefused)
	}
}

// matchReturns finds for each returned message the publish it belongs to: the earliest unanswered one of an equal message,
// since returns come in the order of the publishes. Two equal messages are one to us, so it does not matter if one of
// them was stored and the other not.
func (o *outlet) matchReturns() {
	o.anyReturned.Store(true)
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		select {
		case r, ok := <-o.returns:
			if !ok {
				return
			}
			var first *flight
			for i := range o.all {
				f := &o.all[i]
				if f.active.Load() && f.returned.Load() == nil && (first == nil || f.seq < first.seq) &&
					f.key == r.RoutingKey && f.exchange == r.Exchange && f.id == r.MessageId && bytes.Equal(f.body, r.Body) {
					first = f
				}
			}
			if first != nil {
				first.returned.Store(&amqp.Error{Code: int(r.ReplyCode), Reason: r.ReplyText, Server: true})
			}
		default:
			return
		}
	}
}

// outlet returns the open channel, or waits for one.
func (p *Publisher) outlet(ctx context.Context) (*outlet, error) {
	if o := p.live.Load(); o != nil && !o.ch.IsClosed() {
		return o, nil
	}
	var last error // of an attempt
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
			return nil, unavailable(ctx, cmp.Or(sess.Err(), last))
		}
		last = op.err
		switch {
		case op.err == nil:
			return op.out, nil
		case errors.Is(op.err, ErrAccess):
			return nil, op.err
		case sess.Err() == nil && !wake.Sleep(ctx, p.conn.backoff.Interval(attempt)):
			return nil, unavailable(ctx, last)
		}
	}
}

// open starts to open a channel of sess, or joins who does.
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

func (p *Publisher) newOutlet(sess *Session) (*outlet, error) {
	ch, err := sess.open()
	if err != nil {
		return nil, err
	}
	if err := p.prepare(ch.Channel); err != nil {
		if ch.IsClosed() { // the library may have said no more than that; the server has said why
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
	// There is room for one return per slot, and a slot is freed after its return was taken out: the library never waits.
	o.returns = ch.NotifyReturn(make(chan amqp.Return, p.cfg.Window))
	return o, nil
}

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

// Close ends the Publisher: later calls return [ErrClosed], and those that wait for an answer go on waiting for theirs. It
// closes the channel in good order, so that all that was buffered has reached the server when it returns nil. When ctx ends
// first the channel is left to the end of its Conn. It is idempotent.
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

// drain waits until nothing is under way and closes the channel.
func (o *outlet) drain() error {
	for range o.all {
		select {
		case <-o.slots:
		case <-o.ch.done:
			return nil
		}
	}
	if err := o.ch.Close(); err != nil && !errors.Is(err, amqp.ErrClosed) {
		return err
	}
	return nil
}
