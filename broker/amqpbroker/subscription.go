package amqpbroker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/amqpconn"
	"github.com/swarmiji/swarmiji/internal/receive"
)

// unlimited is a prefetch without a bound; in the port it is 0, which is "stop" in SetPrefetch.
const unlimited = -1

// subscription is a pull on the streams of a queue's levels.
type subscription struct {
	b       *Broker
	queue   string
	streams []*stream // the most urgent first
	done    sync.WaitGroup

	fetch context.Context // ends with Close: nothing is fetched any more
	end   context.CancelFunc

	mu      sync.Mutex
	line    *receive.Line[delivery] // fails while the server lets us have nothing
	started int                     // streams that have consumed
	ready   chan struct{}
	faulty  chan struct{} // closed at the first fault, for Subscribe
}

// Subscribe implements [broker.Broker]: it declares the queue and returns when it is consumed from. The levels of a queue
// share Prefetch: each gets an equal part, what is left over goes to the most urgent ones, and each gets at least 1. The
// lease is not used: RabbitMQ has none.
func (b *Broker) Subscribe(ctx context.Context, queue string, o broker.SubscribeOptions) (broker.Subscription, error) {
	if _, err := b.route(queue, defaultPriority); err != nil {
		return nil, wrap(err, "subscribe to", queue)
	}
	if o.Prefetch < 0 {
		return nil, wrap(fmt.Errorf("%w: prefetch %d", broker.ErrMalformed, o.Prefetch), "subscribe to", queue)
	}
	if err := b.learn(ctx, queue); err != nil {
		return nil, wrap(err, "subscribe to", queue)
	}
	want := o.Prefetch
	if want == 0 {
		want = unlimited
	}
	if err := b.checkChannels(ctx, len(b.all(queue))); err != nil {
		return nil, wrap(err, "subscribe to", queue)
	}
	s := &subscription{b: b, queue: queue, ready: make(chan struct{}), faulty: make(chan struct{})}
	s.line = receive.NewLine(&s.mu, s.pop)
	s.fetch, s.end = context.WithCancel(b.stop)
	names := b.all(queue)
	for i, name := range names {
		st := newStream(s, name, receive.Share(want, i, len(names)))
		st.urgent = i < len(names)-1
		s.streams = append(s.streams, st)
	}
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		s.end()
		return nil, wrap(broker.ErrClosed, "subscribe to", queue)
	}
	b.subs[s] = struct{}{}
	b.mu.Unlock()
	for _, st := range s.streams {
		s.done.Go(st.run)
	}
	select {
	case <-s.ready:
		return s, nil
	case <-s.faulty:
		s.mu.Lock()
		err := s.line.Fault()
		s.mu.Unlock()
		return nil, s.abandon(err)
	case <-b.stop.Done():
		return nil, s.abandon(broker.ErrClosed)
	case <-ctx.Done():
		return nil, s.abandon(fmt.Errorf("%w: %w", broker.ErrUnavailable, ctx.Err()))
	}
}

// ownChannels is how many channels of a connection are kept for declarations and other calls.
const ownChannels = 16

// checkChannels returns ErrTooMany if the connection has no channels for so many AMQP queues more:
// each consumed one needs its own.
func (b *Broker) checkChannels(ctx context.Context, more int) error {
	sess, err := b.con.Session(ctx)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	used := 0
	for s := range b.subs {
		used += len(s.streams)
	}
	if most := sess.MaxChannels() - ownChannels; used+more > most {
		return fmt.Errorf("%w: %d channels are for consumers, the server's channel_max is %d", broker.ErrTooMany, most, sess.MaxChannels())
	}
	return nil
}

// abandon ends a subscription that nobody will get.
func (s *subscription) abandon(err error) error {
	s.shut()
	s.forget()
	if err == nil {
		err = broker.ErrAccess
	}
	return wrap(err, "subscribe to", s.queue)
}

// Receive implements [broker.Subscription].
func (s *subscription) Receive(ctx context.Context) (broker.Delivery, error) {
	d, err := s.line.Receive(ctx)
	if err != nil {
		return nil, s.receiveError(err)
	}
	return d, nil
}

func (s *subscription) receiveError(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return wrap(err, "receive from", s.queue)
}

// pop takes the most urgent delivery that is held; s.mu is held. While a more urgent level may have messages that the server
// could not send, since the level's prefetch was used up, less urgent ones wait for them, unless at is set.
func (s *subscription) pop(at bool) *delivery {
	for _, st := range s.streams {
		if d := st.held.Pop(); d != nil {
			return d
		}
		if !at && st.urgent && st.unsure.Load() {
			st.look()
			return nil
		}
	}
	return nil
}

// push holds a fresh delivery and hands over what somebody waits for.
func (s *subscription) push(st *stream, d *delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.held.Push(d)
	s.line.Serve()
}

// consuming notes that a stream consumes.
func (s *subscription) consuming(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line.Fail(nil)
	if !st.started {
		st.started = true
		if s.started++; s.started == len(s.streams) {
			close(s.ready)
		}
	}
}

// failed notes why a stream does not consume just now. What waiting cannot mend is reported by Receive.
func (s *subscription) failed(st *stream, err error) {
	log := slog.LevelWarn
	msg := "amqp: consuming is interrupted"
	switch {
	case errors.Is(err, amqpconn.ErrAccess):
		s.mu.Lock()
		if s.line.Fault() == nil {
			s.line.Fail(err)
			select {
			case <-s.faulty:
			default:
				close(s.faulty)
			}
		}
		s.mu.Unlock()
		return // it is returned
	case isConsumerTimeout(err):
		msg = "amqp: the server took deliveries back since one was held for longer than its consumer_timeout; raise consumer_timeout in rabbitmq.conf or shorten the task"
	case errors.Is(err, errCancelled):
		msg = "amqp: the server cancelled the consumer, the queue was deleted or moved; it is declared again"
	case !amqpconn.IsChannelError(err):
		return // the connection has gone, Watch tells of that
	}
	s.b.cfg.Logger.LogAttrs(context.Background(), log, msg, slog.String("queue", s.queue), slog.String("amqp_queue", st.name), slog.String("error", err.Error()))
}

// SetPrefetch implements [broker.Resizer]. Server and adapter agree on it when it returns nil; while there is no connection
// it is applied with the next one.
func (s *subscription) SetPrefetch(ctx context.Context, n int) error {
	n = max(n, 0)
	errs := make([]error, len(s.streams))
	var wg sync.WaitGroup
	for i, st := range s.streams {
		wg.Go(func() { errs[i] = st.setWant(ctx, receive.Share(n, i, len(s.streams))) })
	}
	wg.Wait()
	return wrap(errors.Join(errs...), "set the prefetch of", s.queue)
}

// shut makes Receive answer ErrClosed and ends the fetching. It reports whether this is the first
// call.
func (s *subscription) shut() bool {
	s.mu.Lock()
	first := s.line.Close(broker.ErrClosed)
	s.mu.Unlock()
	s.end()
	return first
}

// forget lets the Broker forget the subscription when its last delivery is settled.
func (s *subscription) forget() {
	go func() { // ends with the streams, at the latest with the Broker
		s.done.Wait()
		s.b.mu.Lock()
		defer s.b.mu.Unlock()
		delete(s.b.subs, s)
	}()
}

// Close implements [broker.Subscription].
func (s *subscription) Close(ctx context.Context) error {
	if s.shut() {
		s.forget()
	}
	for _, st := range s.streams {
		select {
		case <-st.returned:
		case <-ctx.Done():
			return wrap(fmt.Errorf("%w: what was held goes back with the connection: %w", broker.ErrUnavailable, ctx.Err()), "close the subscription of", s.queue)
		}
	}
	return nil
}

// await waits until all streams have ended, or ctx has.
func (s *subscription) await(ctx context.Context) {
	ended := make(chan struct{})
	go func() {
		s.done.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}
