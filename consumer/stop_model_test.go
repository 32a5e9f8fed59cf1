package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/deadletter"
	"github.com/swarmiji/swarmiji/internal/raced"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// chance draws from one seed. Safe for concurrent use.
type chance struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func (c *chance) below(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rng.IntN(n)
}

func (c *chance) upTo(most time.Duration) time.Duration {
	return time.Duration(c.below(int(most/time.Millisecond)+1)) * time.Millisecond
}

// passed waits for d and returns true, or false if ctx ends first.
func passed(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// unsureAck is a delivery whose early acknowledgement takes its time, before and after its effect.
// If the call ends meanwhile, its outcome may be unknown.
type unsureAck struct {
	broker.Delivery
	*chance
}

func (d unsureAck) Unwrap() any { return d.Delivery }

func (d unsureAck) AckSync(ctx context.Context) error {
	if !passed(ctx, d.upTo(3*time.Second)) && d.below(2) == 0 {
		return fmt.Errorf("%w: before the effect", broker.ErrIndeterminate)
	}
	if err := broker.AckSync(context.WithoutCancel(ctx), d.Delivery); err != nil {
		return err
	}
	if !passed(ctx, d.upTo(3*time.Second)) && d.below(2) == 0 || d.below(20) == 0 {
		return fmt.Errorf("%w: after the effect", broker.ErrIndeterminate)
	}
	return nil
}

// slowBroker has slow dead letters and acknowledgements.
type slowBroker struct {
	deliveries
	*chance
}

func (b slowBroker) Unwrap() any { return b.deliveries }

func (b slowBroker) PutDead(ctx context.Context, queue string, d broker.Dead) error {
	if !passed(ctx, b.upTo(800*time.Millisecond)) {
		return broker.ErrUnavailable
	}
	return b.Broker.PutDead(ctx, queue, d)
}

// slowStore saves slowly, or not at all.
type slowStore struct {
	resultstore.ResultStore
	*chance
	away bool
}

func (s slowStore) Save(ctx context.Context, r resultstore.Record) error {
	if !passed(ctx, s.upTo(800*time.Millisecond)) || s.away {
		return resultstore.ErrUnavailable
	}
	return s.ResultStore.Save(ctx, r)
}

// TestStopModel draws stops of a consumer whose tasks run at most once: slow or unknown early
// acknowledgements, a slow or missing store, handlers that ignore their context, retries, releases
// of admissions that take long, and Kill. After Run has returned, each task has left a record, a
// dead letter or its message. No attempt has started twice, and none starts any more.
func TestStopModel(t *testing.T) {
	seeds := uint64(60)
	if raced.Enabled && !testserver.IsThorough() { // ten times slower
		seeds = 20
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { drawStop(t, &chance{rng: rand.New(rand.NewPCG(seed, 7))}) })
		})
	}
}

func drawStop(t *testing.T, c *chance) {
	b := newTable(t, func(cfg *consumer.Config) {
		cfg.ShutdownTimeout = c.upTo(4 * time.Second)
		cfg.Results = slowStore{cfg.Results, c, c.below(3) == 0}
		cfg.Queues = map[string]consumer.QueueConfig{"default": {Workers: 1 + c.below(3), Prefetch: 1 + c.below(6)}}
		cfg.Broker = slowBroker{deliveries{cfg.Broker.(*membroker.Broker), func(d broker.Delivery) broker.Delivery { return unsureAck{d, c} }}, c}
		if c.below(2) == 0 {
			cfg.Admit = []middleware.Admit{func(context.Context, *task.Request) (func(), error) {
				return func() { passed(t.Context(), c.upTo(12*time.Second)) }, nil
			}}
		}
	})
	var mu sync.Mutex
	starts, over := map[string]int{}, false
	pay := task.New[int, int]("pay", task.WithIdempotent(false))
	must0(t, pay.Handle(b.c, func(ctx context.Context, i int) (int, error) {
		r, _ := task.FromContext(ctx)
		attempt := fmt.Sprintf("%s/%d", r.ID, r.Retries)
		mu.Lock()
		if starts[attempt]++; starts[attempt] > 1 || over {
			t.Errorf("start %d of %s; Run has returned: %t", starts[attempt], attempt, over)
		}
		mu.Unlock()
		if c.below(2) == 0 { // a handler that ignores its context
			ctx = context.WithoutCancel(ctx)
		}
		passed(ctx, c.upTo(20*time.Second))
		switch c.below(4) {
		case 0:
			return 0, errors.New("no")
		case 1:
			return 0, task.Retry(errors.New("again"), task.After(c.upTo(2*time.Second)))
		default:
			return i, nil
		}
	}))
	var ids []task.ID
	for i := range 1 + c.below(6) {
		f, err := pay.Submit(t.Context(), b.p, i)
		must0(t, err)
		ids = append(ids, f.ID())
	}
	b.run()
	passed(t.Context(), c.upTo(15*time.Second))
	if c.below(2) == 0 {
		time.AfterFunc(c.upTo(6*time.Second), b.c.Kill)
	}
	_ = b.stop() // its error is that of the forced stop, if any
	mu.Lock()
	over = true
	mu.Unlock()
	traced := map[task.ID]bool{}
	for _, id := range ids {
		if r, err := b.store.Load(t.Context(), id); err == nil && r.State.Terminal() {
			traced[id] = true
		}
	}
	letters, err := deadletter.New(deadletter.Config{Broker: b.server.Connect()})
	must0(t, err)
	must0(t, letters.List(t.Context(), "default", deadletter.Filter{}, func(l *deadletter.Letter) bool {
		traced[task.ID(l.Message.ID)] = true
		return true
	}))
	if s := b.stats(t); len(ids) > len(traced)+s.Ready+s.Held+s.Delayed {
		t.Errorf("%d tasks, %d of them with a record or a dead letter, %+v", len(ids), len(traced), s)
	}
	passed(t.Context(), 10*time.Hour) // handlers that ignored their context end
	must0(t, b.p.Close(t.Context()))
	must0(t, b.store.Close(t.Context()))
}
