package endtoend_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// life is the life of one process as servers see it. The process dies at a step that was chosen
// beforehand, before or after the server has executed the step. Later steps of the process have no
// effect.
type life struct {
	steps  atomic.Int64
	dieAt  int64 // 0: never
	before bool  // dies before the server executes the step
	dead   chan struct{}
	once   sync.Once
}

func newLife(dieAt int64, before bool) *life {
	return &life{dieAt: dieAt, before: before, dead: make(chan struct{})}
}

func (l *life) end() { l.once.Do(func() { close(l.dead) }) }

func (l *life) over() bool {
	select {
	case <-l.dead:
		return true
	default:
		return false
	}
}

// step executes do and counts it as one step. Returns broker.ErrUnavailable if the process was dead
// before, dies at this step, or has died meanwhile. If the process dies before this step, do is not
// called.
func (l *life) step(do func() error) error {
	if l.over() {
		return broker.ErrUnavailable
	}
	last := l.steps.Add(1) == l.dieAt
	if last && l.before {
		l.end()
		return broker.ErrUnavailable
	}
	err := do()
	if last {
		l.end()
	}
	if l.over() {
		return broker.ErrUnavailable
	}
	return err
}

// mortalBroker is the broker of a process that may die. It hides the broker's optional interfaces,
// so that every step goes through it.
type mortalBroker struct {
	broker.Broker
	life *life
}

func (b mortalBroker) Publish(ctx context.Context, queue string, m *broker.Message) error {
	return b.life.step(func() error { return b.Broker.Publish(ctx, queue, m) })
}

func (b mortalBroker) Subscribe(ctx context.Context, queue string, o broker.SubscribeOptions) (broker.Subscription, error) {
	s, err := b.Broker.Subscribe(ctx, queue, o)
	return mortalSubscription{s, b.life}, err
}

type mortalSubscription struct {
	broker.Subscription
	life *life
}

func (s mortalSubscription) Receive(ctx context.Context) (broker.Delivery, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-s.life.dead:
			cancel()
		case <-ctx.Done():
		}
	}()
	d, err := s.Subscription.Receive(ctx)
	if s.life.over() {
		return nil, broker.ErrClosed
	}
	return mortalDelivery{d, s.life}, err
}

type mortalDelivery struct {
	broker.Delivery
	life *life
}

func (d mortalDelivery) Ack(ctx context.Context) error {
	return d.life.step(func() error { return d.Delivery.Ack(ctx) })
}

func (d mortalDelivery) Release(ctx context.Context, after time.Duration) error {
	return d.life.step(func() error { return d.Delivery.Release(ctx, after) })
}

func (d mortalDelivery) DeadLetter(ctx context.Context, dead broker.Dead) error {
	return d.life.step(func() error { return d.Delivery.DeadLetter(ctx, dead) })
}

// mortalStore is the result store of a process that may die.
type mortalStore struct {
	resultstore.ResultStore
	life *life
}

func (s mortalStore) gatherer() resultstore.Gatherer {
	g, _ := capability.As[resultstore.Gatherer](s.ResultStore)
	return g
}

func (s mortalStore) Save(ctx context.Context, r resultstore.Record) error {
	return s.life.step(func() error { return s.ResultStore.Save(ctx, r) })
}

func (s mortalStore) Load(ctx context.Context, id task.ID) (r resultstore.Record, err error) {
	err = s.life.step(func() (err error) { r, err = s.ResultStore.Load(ctx, id); return err })
	return r, err
}

func (s mortalStore) Arrive(ctx context.Context, a resultstore.Arrival) (g resultstore.Gathered, err error) {
	err = s.life.step(func() (err error) { g, err = s.gatherer().Arrive(ctx, a); return err })
	return g, err
}

func (s mortalStore) Group(ctx context.Context, group task.ID) (g resultstore.Gathered, err error) {
	err = s.life.step(func() (err error) { g, err = s.gatherer().Group(ctx, group); return err })
	return g, err
}

func (s mortalStore) Members(ctx context.Context, group task.ID, from, limit int) (page []resultstore.Record, err error) {
	err = s.life.step(func() (err error) { page, err = s.gatherer().Members(ctx, group, from, limit); return err })
	return page, err
}

func (s mortalStore) Begin(ctx context.Context, id task.ID, which string, ttl time.Duration) (first bool, err error) {
	err = s.life.step(func() (err error) { first, err = s.gatherer().Begin(ctx, id, which, ttl); return err })
	return first, err
}

func (s mortalStore) checkpointer() resultstore.Checkpointer {
	c, _ := capability.As[resultstore.Checkpointer](s.ResultStore)
	return c
}

func (s mortalStore) SaveCheckpoint(ctx context.Context, a resultstore.Attempt, c resultstore.Checkpoint) error {
	return s.life.step(func() error { return s.checkpointer().SaveCheckpoint(ctx, a, c) })
}

func (s mortalStore) LoadCheckpoints(ctx context.Context, a resultstore.Attempt) (all []resultstore.Checkpoint, err error) {
	err = s.life.step(func() (err error) { all, err = s.checkpointer().LoadCheckpoints(ctx, a); return err })
	return all, err
}

// runMortal runs c until it has stopped, or kills it when l is dead. Then it closes the parts of
// the consumer, and for a dead one its connection b first.
func runMortal(ctx context.Context, t *testing.T, c *consumer.Consumer, l *life, b closer, parts ...closer) {
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		_ = c.Run(ctx) // for a killed consumer it returns an error
	}()
	select {
	case <-l.dead:
		c.Kill()
	case <-ran:
	}
	closing, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if l.over() {
		_ = b.Close(closing) // the servers notice the death before the process has ended
	}
	<-ran
	for _, part := range parts {
		if err := part.Close(closing); err != nil {
			t.Errorf("close %T of a consumer: %v", part, err)
		}
	}
}
