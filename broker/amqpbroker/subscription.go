package amqpbroker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/amqpconn"
	"github.com/swarmiji/swarmiji/internal/lanes"
	"github.com/swarmiji/swarmiji/internal/receive"
)

// unlimited is a prefetch without a limit. In the port that is 0, but 0 means "stop" in
// SetPrefetch.
const unlimited = -1

// subscription consumes the streams of all levels and lanes of a queue.
type subscription struct {
	b       *Broker
	queue   string
	held    *lanes.Levels[delivery] // deliveries that Receive has not returned; guarded by mu
	streams []*stream               // the most urgent level first, and lane by lane
	done    sync.WaitGroup

	fetch context.Context // ends with Close: no further messages are fetched
	end   context.CancelFunc

	mu      sync.Mutex
	line    *receive.Line[delivery] // callers of Receive; it fails while the server refuses access
	started int                     // number of streams that have consumed
	ready   chan struct{}           // closed when all streams have consumed once, for Subscribe
	faulty  chan struct{}           // closed at the first refusal of access, for Subscribe
}

// Subscribe implements [broker.Broker]. It declares the queue, starts a goroutine for each level or
// lane, and blocks until each is consumed. It takes b.mu, but not while it waits.
//
// The levels share Prefetch equally. The remainder goes to the most urgent levels, and each level
// gets at least 1. Of a fair queue each lane has the whole part of its level, so that one lane can
// keep all workers busy. The lease is not used, because RabbitMQ has no leases.
//
// After an error the subscription is closed again:
//
//   - ErrMalformed: the name is not valid or the prefetch is negative.
//   - ErrClosed: the Broker is closed.
//   - ErrTooMany: the connection has too few channels.
//   - ErrAccess: RabbitMQ refuses access.
//   - ErrUnavailable: ctx ended first, or the queue's levels cannot be read.
func (b *Broker) Subscribe(ctx context.Context, queue string, o broker.SubscribeOptions) (broker.Subscription, error) {
	if _, err := b.route(queue, defaultPriority); err != nil {
		return nil, wrap(err, "subscribe to", queue)
	}
	if o.Prefetch < 0 {
		return nil, wrap(fmt.Errorf("%w: prefetch %d", broker.ErrMalformed, o.Prefetch), "subscribe to", queue)
	}
	if err := broker.RefuseBounds(queue, o); err != nil {
		return nil, wrap(err, "subscribe to", queue)
	}
	if err := b.loadLevels(ctx, queue); err != nil {
		return nil, wrap(err, "subscribe to", queue)
	}
	want := o.Prefetch
	if want == 0 {
		want = unlimited
	}
	if err := b.checkChannels(ctx, len(b.amqpQueues(queue))); err != nil {
		return nil, wrap(err, "subscribe to", queue)
	}
	s := &subscription{b: b, queue: queue, ready: make(chan struct{}), faulty: make(chan struct{})}
	s.line = receive.NewLine(&s.mu, s.pop)
	s.fetch, s.end = context.WithCancel(b.stop)
	s.addStreams(want, o.Floor)
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

// addStreams sets s.held and s.streams for all levels of the queue, with a prefetch of want for all
// levels together. floor is that of SubscribeOptions. It starts none of the streams.
func (s *subscription) addStreams(want int, floor float64) {
	fair, names := false, []string{s.b.names.work(s.queue)}
	if v, ok := s.b.queues.Load(s.queue); ok { // once: Declare may store them meanwhile
		l := v.(*levels) //nolint:forcetypeassert // nothing else is in it
		fair, names = l.fair, l.queues
	}
	width := lanes.Width(fair)
	n := len(names) / width
	s.held = lanes.NewLevels[delivery](n, fair, floor)
	for i := range n {
		for lane, name := range names[i*width : (i+1)*width] {
			st := newStream(s, name, receive.Share(want, i, n), s.held.Level(i).Lane(lane))
			st.level, st.awaited = i, i < n-1 || n > 1 && floor > 0
			s.streams = append(s.streams, st)
		}
	}
}

// ownChannels is the number of channels of a connection that are reserved for declarations and
// other calls.
const ownChannels = 16

// checkChannels returns nil if the connection for consumers has room for more channels in addition
// to those in use, and otherwise ErrTooMany. Each consumed AMQP queue uses one channel, and
// ownChannels of the connection are reserved for other calls. It only checks, and reserves none. It
// waits for a connection, and returns the error of that. It takes b.mu, but not while it waits.
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

// abandon closes a subscription that Subscribe does not return, without waiting for its streams.
// It returns err with the queue in its text, or ErrAccess if err is nil. It takes s.mu.
func (s *subscription) abandon(err error) error {
	s.closeReceive()
	s.removeWhenDone()
	if err == nil {
		err = broker.ErrAccess
	}
	return wrap(err, "subscribe to", s.queue)
}

// Receive implements [broker.Subscription]. It blocks until a delivery is held, ctx ends, the
// subscription is closed, or the server refuses access. A held delivery is returned even if ctx has
// ended. A lost connection does not end the wait. Returns ctx's error, ErrClosed or ErrAccess.
func (s *subscription) Receive(ctx context.Context) (broker.Delivery, error) {
	d, err := s.line.Receive(ctx)
	if err != nil {
		return nil, s.receiveError(err)
	}
	return d, nil
}

// receiveError returns the end of a ctx unchanged and any other error with the queue in its text.
func (s *subscription) receiveError(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return wrap(err, "receive from", s.queue)
}

// pop removes and returns the next delivery that this process holds, or nil if it holds none: the
// most urgent one, or by the floor one of another level. Call it with s.mu held.
//
// If now is false, pop also returns nil while the server may have messages of a level that comes
// first: its prefetch was used up a moment ago, or none has arrived yet. Other deliveries stay held
// meanwhile, and pop asks the server about that level in the background. If now is true, pop does
// not wait for such messages.
func (s *subscription) pop(now bool) *delivery {
	return s.held.Pop(nil, func(level int) bool { return !now && s.awaitHeldBack(level) })
}

// awaitHeldBack reports whether the server may hold messages of a level back, for which other
// levels wait. Then it asks the server in the background. Without a floor it returns false for the
// least urgent level. Call it with s.mu held.
func (s *subscription) awaitHeldBack(level int) (wait bool) {
	width := len(s.streams) / s.held.Len()
	for _, st := range s.streams[level*width : (level+1)*width] {
		if st.awaited && st.unsure.Load() {
			st.watchHeldBack()
			wait = true
		}
	}
	return wait
}

// push adds a new delivery to the held ones and passes deliveries to waiting callers of Receive. It
// takes s.mu.
func (s *subscription) push(st *stream, d *delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.held.Push(d, &d.msg)
	s.line.Serve()
}

// streamReady records that a stream consumes, which ends a failure of Receive. When all streams
// have consumed once it lets Subscribe return; later calls for a stream do not count. It takes
// s.mu.
func (s *subscription) streamReady(st *stream) {
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

// streamFailed is called with the error that ended a channel of the stream. If access was refused,
// Receive and a waiting Subscribe return the error. Other errors of the channel are logged. Errors
// of the connection are not, since Watch reports them. It takes s.mu.
func (s *subscription) streamFailed(st *stream, err error) {
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
		return // Receive returns the error
	case isConsumerTimeout(err):
		msg = "amqp: the server took deliveries back because one was held for longer than its consumer_timeout; raise consumer_timeout in rabbitmq.conf or shorten the task"
	case errors.Is(err, errCancelled):
		msg = "amqp: the server cancelled the consumer, because the queue was deleted or moved; declaring it again"
	case !amqpconn.IsChannelError(err):
		return // the connection is lost, which Watch reports
	}
	s.b.cfg.Logger.LogAttrs(context.Background(), log, msg, slog.String("queue", s.queue), slog.String("amqp_queue", st.name), slog.String("error", err.Error()))
}

// SetPrefetch implements [broker.Resizer]. The levels share n as at Subscribe; 0 stops all. When
// it returns nil the server has applied the prefetch. Without a connection it is applied on the
// next one, and SetPrefetch does not wait for that. A negative n counts as 0. Returns the errors
// of all levels joined, or ctx's error if ctx ends first; n stays wanted then.
func (s *subscription) SetPrefetch(ctx context.Context, n int) error {
	n = max(n, 0)
	errs := make([]error, len(s.streams))
	var wg sync.WaitGroup
	for i, st := range s.streams {
		wg.Go(func() { errs[i] = st.setPrefetch(ctx, receive.Share(n, st.level, s.held.Len())) })
	}
	wg.Wait()
	return wrap(errors.Join(errs...), "set the prefetch of", s.queue)
}

// Divided implements [broker.Divider]: each level and each lane has its own prefetch.
func (s *subscription) Divided() bool { return len(s.streams) > 1 }

// closeReceive makes Receive return ErrClosed and ends s.fetch, so that the streams stop fetching.
// It reports whether this is the first call. It does not wait for the streams. It takes s.mu.
func (s *subscription) closeReceive() bool {
	s.mu.Lock()
	first := s.line.Close(broker.ErrClosed)
	s.mu.Unlock()
	s.end()
	return first
}

// removeWhenDone starts a goroutine that removes the subscription from the Broker after all its
// streams have ended: when the last delivery is settled or lost. It does not wait. Call it after
// closeReceive. It takes the mutex of the Broker.
func (s *subscription) removeWhenDone() {
	go func() { // ends with the streams, or with the Broker
		s.done.Wait()
		s.b.mu.Lock()
		defer s.b.mu.Unlock()
		delete(s.b.subs, s)
	}()
}

// Close implements [broker.Subscription]. It blocks until the messages that Receive has not
// returned are back in the queue. Deliveries that Receive has returned can still be settled. If ctx
// ends first Close returns ErrUnavailable, and the messages go back when the connection is closed.
// Further calls wait too.
func (s *subscription) Close(ctx context.Context) error {
	if s.closeReceive() {
		s.removeWhenDone()
	}
	for _, st := range s.streams {
		select {
		case <-st.returned:
		case <-ctx.Done():
			return wrap(fmt.Errorf("%w: the messages held go back when the connection is closed: %w", broker.ErrUnavailable, ctx.Err()), "close the subscription of", s.queue)
		}
	}
	return nil
}

// awaitStreams blocks until all streams have ended or ctx ends. A stream ends when its deliveries
// are settled or lost after Close, or when the Broker is closed.
func (s *subscription) awaitStreams(ctx context.Context) {
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
