package tasktest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/serializer"
)

// process is the swarm as one process sees it: a connection to the broker, and views of store and
// bus. It is the broker of its producer or consumer. It records publications and settlements, and
// can be disconnected.
type process struct {
	*membroker.Broker
	s       *Swarm
	results *memresults.Store
	bus     *memevents.Bus
	codec   *wire.Codec
	dead    atomic.Bool

	makesQueues bool // a publication to a missing queue makes the queue

	once    bool          // only one delivery is received
	taken   atomic.Bool   // it was
	settled chan struct{} // closed at the first settlement, or when the process is cut off
	first   sync.Once
	delay   atomic.Int64 // nanoseconds, of the last message that took the place of another

	// beforeSettle is called before a delivery is settled. nil: not called.
	beforeSettle func(m *broker.Message)
}

func (s *Swarm) newProcess() *process {
	return &process{Broker: s.server.Connect(), s: s, results: s.store.View(), bus: s.bus.View(), settled: make(chan struct{})}
}

// read sets how the process writes tasks.
func (p *process) read(w serializer.Wire) (err error) {
	p.codec, err = wire.New(w)
	return err
}

// cut takes broker, store and bus from the process, for good.
func (p *process) cut() {
	if p.dead.Swap(true) {
		return
	}
	p.s.server.Isolate(p.Broker)
	_, _ = p.results.Close(context.Background()), p.bus.Close(context.Background())
	p.settlement()
}

// settlement says that a delivery was settled.
func (p *process) settlement() {
	p.first.Do(func() { close(p.settled) })
	p.s.change()
}

// Declare implements broker.Declarer.
func (p *process) Declare(ctx context.Context, qs ...broker.Queue) error {
	for _, q := range qs {
		p.s.knows(q.Name)
	}
	return p.Broker.Declare(ctx, qs...)
}

// ensure makes a queue, if the process makes those that it needs. A subscription does so without
// settling the queue's priority levels; an error shows when the message is published.
func (p *process) ensure(ctx context.Context, queue string) {
	if !p.makesQueues {
		return
	}
	if _, err := p.Broker.Stats(ctx, queue); !errors.Is(err, broker.ErrNoQueue) {
		return
	}
	if s, err := p.Broker.Subscribe(ctx, queue, broker.SubscribeOptions{}); err == nil {
		_ = s.Close(ctx)
	}
}

// Publish implements broker.Broker.
func (p *process) Publish(ctx context.Context, queue string, m *broker.Message) error {
	return p.PublishAt(ctx, queue, m, time.Time{})
}

// PublishAt implements broker.Delayer.
func (p *process) PublishAt(ctx context.Context, queue string, m *broker.Message, at time.Time) error {
	p.ensure(ctx, queue)
	published := p.submission(queue, m, at)
	err := p.Broker.PublishAt(ctx, queue, m, at)
	if err == nil {
		published()
	}
	return err
}

// PublishBatch implements broker.BatchPublisher.
func (p *process) PublishBatch(ctx context.Context, ms []broker.Outgoing) error {
	published := make([]func(), len(ms))
	for i := range ms {
		p.ensure(ctx, ms[i].Queue)
		published[i] = p.submission(ms[i].Queue, ms[i].Message, ms[i].At)
	}
	err := p.Broker.PublishBatch(ctx, ms)
	for i, e := range broker.BatchErrors(err, len(ms)) {
		if e == nil {
			published[i]()
		}
	}
	return err
}

// Retry implements broker.Retrier.
func (p *process) Retry(ctx context.Context, d broker.Delivery, next broker.Outgoing) error {
	p.settling(d)
	p.delay.Store(int64(until(next.At)))
	return p.note(p.Broker.Retry(ctx, d, next))
}

// Subscribe implements broker.Broker.
func (p *process) Subscribe(ctx context.Context, queue string, o broker.SubscribeOptions) (broker.Subscription, error) {
	p.s.knows(queue)
	inner, err := p.Broker.Subscribe(ctx, queue, o)
	if err != nil {
		return nil, err
	}
	return &subscription{inner, p}, nil
}

// settling is called before d is settled.
func (p *process) settling(d broker.Delivery) {
	if p.beforeSettle != nil {
		p.beforeSettle(d.Message())
	}
}

// note says that a delivery was settled unless err says that it was not.
func (p *process) note(err error) error {
	if err == nil {
		p.settlement()
	}
	return err
}

type subscription struct {
	broker.Subscription
	p *process
}

// Unwrap gives the capabilities of the subscription.
func (s *subscription) Unwrap() any { return s.Subscription }

// Receive implements broker.Subscription.
func (s *subscription) Receive(ctx context.Context) (broker.Delivery, error) {
	if s.p.once && s.p.taken.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	d, err := s.Subscription.Receive(ctx)
	if err != nil {
		return nil, err
	}
	s.p.taken.Store(true)
	return &delivery{d, s.p}, nil
}

type delivery struct {
	broker.Delivery
	p *process
}

// Unwrap gives the capabilities of the delivery.
func (d *delivery) Unwrap() any { return d.Delivery }

// Ack implements broker.Delivery.
func (d *delivery) Ack(ctx context.Context) error {
	d.p.settling(d)
	return d.p.note(d.Delivery.Ack(ctx))
}

// AckSync implements broker.SyncAcker.
func (d *delivery) AckSync(ctx context.Context) error {
	d.p.settling(d)
	return d.p.note(broker.AckSync(ctx, d.Delivery))
}

// Release implements broker.Delivery.
func (d *delivery) Release(ctx context.Context, after time.Duration) error {
	d.p.delay.Store(int64(after))
	return d.p.note(d.Delivery.Release(ctx, after))
}

// DeadLetter implements broker.Delivery.
func (d *delivery) DeadLetter(ctx context.Context, dead broker.Dead) error {
	d.p.settling(d)
	return d.p.note(d.Delivery.DeadLetter(ctx, dead))
}

// until returns the time from now to at, without the part that rounding up to milliseconds has
// added.
func until(at time.Time) time.Duration {
	if at.IsZero() {
		return 0
	}
	return max(time.Until(at).Truncate(time.Millisecond), 0)
}
