package amqpbroker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/amqpconn"
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
	waiters []*waiter
	fault   error // why the server lets us have nothing; Receive reports it until it is mended
	started int   // streams that have consumed
	ready   chan struct{}
	faulty  chan struct{} // closed at the first fault, for Subscribe
	closed  bool
}

// waiter is a Receive that waits. It gets exactly one answer, unless it leaves the list first.
type waiter struct{ ch chan answer }

type answer struct {
	d   *delivery
	err error
}

// waiters are used again; all of them are empty.
var waiterPool = sync.Pool{New: func() any { return &waiter{ch: make(chan answer, 1)} }}

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
	s.fetch, s.end = context.WithCancel(b.stop)
	names := b.all(queue)
	for i, name := range names {
		st := newStream(s, name, share(want, i, len(names)))
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
		err := s.fault
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

// share is the part of stream i of n in a prefetch.
func share(want, i, n int) int {
	if want <= 0 {
		return want
	}
	part := want / n
	if i < want%n {
		part++
	}
	return max(part, 1)
}

// Receive implements [broker.Subscription].
func (s *subscription) Receive(ctx context.Context) (broker.Delivery, error) {
	err := ctx.Err()
	s.mu.Lock()
	if d := s.pop(err != nil); d != nil {
		s.mu.Unlock()
		return d, nil
	}
	switch {
	case s.closed:
		err = broker.ErrClosed
	case s.fault != nil:
		err = s.fault
	}
	if err != nil {
		s.mu.Unlock()
		return nil, s.receiveError(err)
	}
	w := waiterPool.Get().(*waiter)
	s.waiters = append(s.waiters, w)
	s.mu.Unlock()
	var a answer
	select {
	case a = <-w.ch:
	case <-ctx.Done():
		a = s.leave(w, ctx.Err())
	}
	waiterPool.Put(w)
	if a.err != nil {
		return nil, s.receiveError(a.err)
	}
	return a.d, nil
}

func (s *subscription) receiveError(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return wrap(err, "receive from", s.queue)
}

// leave takes w from the list of those who wait and returns its answer: cause, unless it got one at the same moment or
// something is held after all.
func (s *subscription) leave(w *waiter, cause error) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.waiters, w)
	if i < 0 {
		return <-w.ch // answers are given under s.mu
	}
	s.waiters = slices.Delete(s.waiters, i, i+1)
	if d := s.pop(true); d != nil {
		return answer{d: d}
	}
	return answer{err: cause}
}

// pop takes the most urgent delivery that is held; s.mu is held. While a more urgent level may have messages that the server
// could not send, since the level's prefetch was used up, less urgent ones wait for them, unless at is set.
func (s *subscription) pop(at bool) *delivery {
	for _, st := range s.streams {
		if d := st.held.pop(); d != nil {
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
	st.held.push(d)
	s.serve()
}

// serve answers those who wait with what is held; s.mu is held.
func (s *subscription) serve() {
	for len(s.waiters) > 0 {
		d := s.pop(false)
		if d == nil {
			return
		}
		w := s.waiters[0]
		s.waiters = slices.Delete(s.waiters, 0, 1)
		w.ch <- answer{d: d} // has room
	}
}

// tell answers all that wait; s.mu is held.
func (s *subscription) tell(err error) {
	for _, w := range s.waiters {
		w.ch <- answer{err: err}
	}
	s.waiters = nil
}

// consuming notes that a stream consumes.
func (s *subscription) consuming(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = nil
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
		if s.fault == nil {
			s.fault = err
			select {
			case <-s.faulty:
			default:
				close(s.faulty)
			}
		}
		s.tell(err)
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
		wg.Go(func() { errs[i] = st.setWant(ctx, share(n, i, len(s.streams))) })
	}
	wg.Wait()
	return wrap(errors.Join(errs...), "set the prefetch of", s.queue)
}

// shut makes Receive answer ErrClosed and ends the fetching.
func (s *subscription) shut() {
	s.mu.Lock()
	s.closed = true
	s.tell(broker.ErrClosed)
	s.mu.Unlock()
	s.end()
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
	s.mu.Lock()
	again := s.closed
	s.mu.Unlock()
	s.shut()
	if !again {
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

// fifo is a queue that keeps its memory.
type fifo struct {
	items []*delivery
	head  int
}

func (f *fifo) push(d *delivery) {
	if f.head > 0 && len(f.items) == cap(f.items) {
		n := copy(f.items, f.items[f.head:])
		clear(f.items[n:])
		f.items, f.head = f.items[:n], 0
	}
	f.items = append(f.items, d)
}

func (f *fifo) pop() *delivery {
	if f.head == len(f.items) {
		return nil
	}
	d := f.items[f.head]
	f.items[f.head] = nil
	if f.head++; f.head == len(f.items) {
		f.items, f.head = f.items[:0], 0
	}
	return d
}

// takeAll empties the queue and returns what it held.
func (f *fifo) takeAll() []*delivery {
	all := f.items[f.head:]
	*f = fifo{}
	return all
}
