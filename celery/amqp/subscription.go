package amqp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/amqpconn"
	"github.com/swarmiji/swarmiji/internal/receive"
)

// unlimited is a prefetch without a limit. In SubscribeOptions that is 0, which means "stop" in
// SetPrefetch.
const unlimited = -1

// subscription consumes one queue, on one channel at a time.
type subscription struct {
	b     *Broker
	queue string

	fetch context.Context // ends with Close: no further messages are fetched
	end   context.CancelFunc

	// closed when the subscription was closed and its undelivered messages went back
	returned chan struct{}
	once     sync.Once
	ended    chan struct{} // closed when the goroutine has returned

	mu     sync.Mutex
	want   int                     // prefetch; 0 stops the fetching
	active *channel                // nil without one
	held   receive.Held[delivery]  // deliveries that Receive has not returned
	line   *receive.Line[delivery] // callers of Receive; it fails while the server refuses access
	ready  chan struct{}           // closed when the queue was consumed once, for Subscribe
	faulty chan struct{}           // closed at the first refusal of access, for Subscribe
	opened bool
}

// Subscribe implements [broker.Broker]. It declares the queue, starts a goroutine, and blocks until
// the queue is consumed. The lease is not used, because RabbitMQ has no leases.
//
// After an error the subscription is closed again:
//
//   - ErrMalformed: the name is not valid or the prefetch is negative.
//   - ErrUnsupported: o has bounds or a floor.
//   - ErrClosed: the Broker is closed.
//   - ErrAccess: RabbitMQ refuses access.
//   - ErrUnavailable: ctx ended first.
func (b *Broker) Subscribe(ctx context.Context, queue string, o broker.SubscribeOptions) (broker.Subscription, error) {
	err := checkQueue(queue)
	if err == nil && o.Prefetch < 0 {
		err = fmt.Errorf("%w: prefetch %d", broker.ErrMalformed, o.Prefetch)
	}
	if err == nil {
		err = broker.RefuseBounds(queue, o)
	}
	if err != nil {
		return nil, amqpconn.BrokerError(err, "subscribe to", queue)
	}
	s := &subscription{
		b: b, queue: queue, want: min(o.Prefetch, math.MaxUint16),
		returned: make(chan struct{}), ended: make(chan struct{}), ready: make(chan struct{}), faulty: make(chan struct{}),
	}
	if s.want == 0 {
		s.want = unlimited
	}
	s.line = receive.NewLine(&s.mu, func(bool) *delivery { return s.held.Pop() })
	s.fetch, s.end = context.WithCancel(b.stop)
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		s.end()
		return nil, amqpconn.BrokerError(broker.ErrClosed, "subscribe to", queue)
	}
	b.subs[s] = struct{}{}
	b.mu.Unlock()
	go s.run()
	select {
	case <-s.ready:
		return s, nil
	case <-s.faulty:
		s.mu.Lock()
		err = s.line.Fault()
		s.mu.Unlock()
	case <-b.stop.Done():
		err = broker.ErrClosed
	case <-ctx.Done():
		err = fmt.Errorf("%w: %w", broker.ErrUnavailable, ctx.Err())
	}
	s.closeReceive()
	return nil, amqpconn.BrokerError(err, "subscribe to", queue)
}

// run consumes the queue, on a new channel whenever one is lost, until the subscription or the
// Broker is closed. Then it removes the subscription from the Broker.
func (s *subscription) run() {
	s.b.con.Supervise(s.fetch, s.consume, s.failed)
	s.signalReturned()
	s.b.mu.Lock()
	delete(s.b.subs, s)
	s.b.mu.Unlock()
	close(s.ended)
}

// signalReturned lets Close return. It may be called several times.
func (s *subscription) signalReturned() { s.once.Do(func() { close(s.returned) }) }

var errCancelled = errors.New("consumer cancelled by the server")

// consume declares the queue and consumes it on the channel ch. It blocks until the channel ends
// and returns the error, errCancelled if the server cancelled the consumer. Its deliveries are lost
// then. When fetch ends, because the subscription is closed, it drains the channel instead.
func (s *subscription) consume(fetch context.Context, ch *amqpconn.Channel) error {
	if err := s.b.declareWork(fetch, ch.Session(), s.queue); err != nil {
		return err
	}
	classic, err := isClassic(fetch, ch.Session(), s.queue)
	if err != nil {
		return err
	}
	g := newChannel(s, ch, classic)
	defer g.close()
	s.mu.Lock()
	s.active = g
	s.mu.Unlock()
	if err := g.adjust(); err != nil {
		return err
	}
	s.begun()
	select {
	case _, ok := <-g.cancelled:
		if ok {
			g.flushAcks()
			return errCancelled
		}
		<-ch.Done()
		return ch.Err()
	case <-ch.Done():
		return ch.Err()
	case <-fetch.Done():
		return s.drain(g)
	}
}

// begun records that the queue is consumed, which ends a failure of Receive and lets Subscribe
// return.
func (s *subscription) begun() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line.Fail(nil)
	if !s.opened {
		s.opened = true
		close(s.ready)
	}
}

// failed is called with the error that ended a channel. If access was refused, Receive and a
// waiting Subscribe return the error. Other errors of the channel are logged. Errors of the
// connection are not, since Watch reports them.
func (s *subscription) failed(err error) {
	msg := "celery: consuming is interrupted"
	switch {
	case errors.Is(err, amqpconn.ErrAccess):
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.line.Fault() == nil {
			s.line.Fail(err)
			select {
			case <-s.faulty:
			default:
				close(s.faulty)
			}
		}
		return
	case amqpconn.IsPrecondition(err) && strings.Contains(err.Error(), "timeout"):
		msg = "celery: the server took deliveries back because one was held for longer than its consumer_timeout; raise consumer_timeout in rabbitmq.conf or shorten the task"
	case errors.Is(err, errCancelled):
		msg = "celery: the server cancelled the consumer, because the queue was deleted or moved; declaring it again"
	case !amqpconn.IsChannelError(err):
		return
	}
	s.b.cfg.Logger.LogAttrs(context.Background(), slog.LevelWarn, msg, slog.String("queue", s.queue), slog.String("error", err.Error()))
}

// push adds a new delivery to the held ones and passes deliveries to waiting callers of Receive.
func (s *subscription) push(d *delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held.Push(d)
	s.line.Serve()
}

// takeHeld removes and returns the deliveries that Receive has not returned. They belong to one
// channel.
func (s *subscription) takeHeld() []*delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held.TakeAll()
}

// SetPrefetch implements [broker.Resizer]. When it returns nil the server has applied the prefetch.
// Without a connection it is applied on the next one, and SetPrefetch does not wait for that.
// Returns the server's error, or ctx's error if ctx ends first; n stays wanted then.
//
// On queues of another type than classic, messages that were fetched before the change do not count
// against n.
func (s *subscription) SetPrefetch(ctx context.Context, n int) error {
	s.mu.Lock()
	s.want = min(max(n, 0), math.MaxUint16)
	g := s.active
	s.mu.Unlock()
	if g == nil {
		return nil
	}
	done := make(chan error, 1)
	go func() { done <- g.adjust() }() // ends with the channel at the latest
	select {
	case err := <-done:
		select {
		case <-g.lost: // the next channel uses the new prefetch
			return nil
		default:
			return amqpconn.BrokerError(err, "set the prefetch of", s.queue)
		}
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Receive implements [broker.Subscription]. It blocks until a delivery is held, ctx ends, the
// subscription is closed, or the server refuses access. A held delivery is returned even if ctx has
// ended. A lost connection does not end the wait. Returns ctx's error, ErrClosed or ErrAccess.
func (s *subscription) Receive(ctx context.Context) (broker.Delivery, error) {
	d, err := s.line.Receive(ctx)
	switch {
	case err == nil:
		return d, nil
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return nil, err
	}
	return nil, amqpconn.BrokerError(err, "receive from", s.queue)
}

// closeReceive makes Receive return ErrClosed and ends s.fetch, so that nothing more is fetched.
func (s *subscription) closeReceive() {
	s.mu.Lock()
	s.line.Close(broker.ErrClosed)
	s.mu.Unlock()
	s.end()
}

// Close implements [broker.Subscription]. It blocks until the messages that Receive has not
// returned are back in the queue. Deliveries that Receive has returned can still be settled. If ctx
// ends first Close returns ErrUnavailable, and the messages go back when the connection is closed.
// Further calls wait too.
func (s *subscription) Close(ctx context.Context) error {
	s.closeReceive()
	select {
	case <-s.returned:
		return nil
	case <-ctx.Done():
		return amqpconn.BrokerError(fmt.Errorf("%w: the messages held go back when the connection is closed: %w", broker.ErrUnavailable, ctx.Err()),
			"close the subscription of", s.queue)
	}
}

// awaitEnd blocks until the goroutine has ended or ctx ends. It ends when the deliveries are
// settled or lost after Close, or when the Broker is closed.
func (s *subscription) awaitEnd(ctx context.Context) {
	select {
	case <-s.ended:
	case <-ctx.Done():
	}
}
