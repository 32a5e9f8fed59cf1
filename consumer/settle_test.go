package consumer_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// table is a producer and a consumer in memory whose parts can be made to fail. Its tests run in a
// synctest bubble.
type table struct {
	t       *testing.T
	server  *membroker.Server
	store   *memresults.Store
	metrics *middleware.Metrics
	runs    atomic.Int64
	c       *consumer.Consumer
	p       *producer.Producer
	stop    func() error
}

var echo = task.New[int, int]("echo")

func newTable(t *testing.T, change func(*consumer.Config)) *table {
	t.Helper()
	b := &table{
		t: t, server: membroker.NewServer(membroker.Config{}), store: memresults.New(memresults.Config{}),
		metrics: new(middleware.Metrics),
	}
	cfg := consumer.Config{Broker: b.server.Connect(), Results: b.store, Metrics: b.metrics, Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&cfg)
	}
	var err error
	if b.c, err = consumer.New(cfg); err != nil {
		t.Fatal(err)
	}
	if err := echo.Handle(b.c, func(_ context.Context, i int) (int, error) {
		b.runs.Add(1)
		if i < 0 {
			return 0, task.Retry(nil, task.After(time.Duration(-i)*time.Second))
		}
		return i, nil
	}); err != nil {
		t.Fatal(err)
	}
	if b.p, err = producer.New(producer.Config{Broker: b.server.Connect(), Results: b.store}); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *table) run() {
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan error, 1)
	go func() { done <- b.c.Run(ctx) }()
	b.stop = func() error {
		cancel()
		return <-done
	}
}

// end stops the producer and the consumer, so that no goroutine is left in the bubble.
func (b *table) end() {
	b.t.Helper()
	if err := b.stop(); err != nil {
		b.t.Errorf("Run: %v", err)
	}
	if err := b.p.Close(b.t.Context()); err != nil {
		b.t.Error(err)
	}
	_ = b.store.Close(b.t.Context())
}

func (b *table) submit(i int, opts ...task.Option) *task.Future[int] {
	b.t.Helper()
	f, err := echo.Submit(b.t.Context(), b.p, i, opts...)
	if err != nil {
		b.t.Fatal(err)
	}
	return f
}

// flakyStore is a result store that fails until a time.
type flakyStore struct {
	resultstore.ResultStore
	until time.Time
	err   error
}

func (s flakyStore) Save(ctx context.Context, r resultstore.Record) error {
	if time.Now().Before(s.until) {
		return s.err
	}
	return s.ResultStore.Save(ctx, r)
}

// TestStoreIsDownForAWhile shows that the consumer repeats the save and acknowledges only
// afterwards (fault 30).
func TestStoreIsDownForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable(t, func(c *consumer.Config) {
			c.Results = flakyStore{c.Results, time.Now().Add(20 * time.Second), resultstore.ErrUnavailable}
		})
		b.run()
		begin := time.Now()
		got, err := b.submit(7).Get(t.Context())
		if err != nil || got != 7 || b.runs.Load() != 1 {
			t.Fatalf("result %d, %v after %d runs", got, err, b.runs.Load())
		}
		if waited := time.Since(begin); waited < 20*time.Second || waited > 30*time.Second {
			t.Fatalf("resolved after %s although the store was down for 20 s", waited)
		}
		b.end()
	})
}

// TestStoreIsDownForLong shows that the task is given back after StoreRetry, and runs again when
// the store works.
func TestStoreIsDownForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable(t, func(c *consumer.Config) {
			c.Tuning.StoreRetry = 10 * time.Second
			c.Results = flakyStore{c.Results, time.Now().Add(15 * time.Second), resultstore.ErrUnavailable}
		})
		b.run()
		if got, err := b.submit(7).Get(t.Context()); err != nil || got != 7 || b.runs.Load() != 2 {
			t.Fatalf("result %d, %v after %d runs", got, err, b.runs.Load())
		}
		if b.metrics.Released.Count() != 1 {
			t.Fatalf("given back %d times, want once", b.metrics.Released.Count())
		}
		b.end()
	})
}

// TestSubmitterHasEnded shows that a task is settled although its submitter has ended.
func TestSubmitterHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable(t, func(c *consumer.Config) {
			c.Results = flakyStore{c.Results, time.Now().Add(time.Hour), resultstore.ErrUnreachable}
		})
		b.run()
		b.submit(7)
		synctest.Wait()
		if b.metrics.Succeeded.Count() != 1 || b.metrics.Rejected.Count() != 1 {
			t.Fatalf("succeeded %d, rejected %d", b.metrics.Succeeded.Count(), b.metrics.Rejected.Count())
		}
		b.end()
	})
}

// TestFinishedTaskIsNotRunAgain shows that a redelivered task with a recorded result is settled by
// that result.
func TestFinishedTaskIsNotRunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable(t, nil)
		f := b.submit(7, task.WithID("done-before"))
		other := b.server.Connect()
		sub, err := other.Subscribe(t.Context(), "default", broker.SubscribeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		// another consumer runs it, stores its result,
		if _, err := sub.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := b.store.Save(t.Context(), resultstore.Record{ID: "done-before", State: task.StateSucceeded, ContentType: "application/json", Result: []byte("8"), Deliveries: 1, ReplyTo: b.p.NodeID()}); err != nil {
			t.Fatal(err)
		}
		if err := other.Close(t.Context()); err != nil { // and dies before it acknowledges
			t.Fatal(err)
		}
		b.run()
		if got, err := f.Get(t.Context()); err != nil || got != 8 {
			t.Fatal(got, err)
		}
		synctest.Wait()
		if b.runs.Load() != 0 || b.metrics.Succeeded.Count() != 1 {
			t.Fatalf("ran %d times; settled %d", b.runs.Load(), b.metrics.Succeeded.Count())
		}
		b.end()
	})
}

// flakyBroker is a broker that loses the confirm of some publishes.
type flakyBroker struct {
	*membroker.Broker
	left atomic.Int64
}

func (b *flakyBroker) Retry(ctx context.Context, d broker.Delivery, next broker.Outgoing) error {
	if b.left.Add(-1) >= 0 {
		copied := *next.Message
		if err := b.PublishAt(ctx, next.Queue, &copied, next.At); err != nil {
			return err
		}
		return broker.ErrIndeterminate
	}
	return b.Broker.Retry(ctx, d, next)
}

// TestLostConfirmOfARetry shows that a retry that is published again has the same generation and is
// one message. Promises: S57.
func TestLostConfirmOfARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fb := &flakyBroker{}
		fb.left.Store(2)
		b := newTable(t, func(c *consumer.Config) {
			fb.Broker = c.Broker.(*membroker.Broker)
			c.Broker = fb
		})
		b.run()
		_, err := b.submit(-60, task.WithMaxRetries(1)).Get(t.Context())
		if !errors.Is(err, task.ErrMaxRetries) {
			t.Fatal(err)
		}
		if b.runs.Load() != 2 {
			t.Fatalf("%d runs of a task with one retry", b.runs.Load())
		}
		b.end()
	})
}

// TestRetryWaitsInTheBroker shows that the worker is free during the delay of a retry, and that the
// delay is exact by the broker's clock (S60).
func TestRetryWaitsInTheBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable(t, func(c *consumer.Config) { c.Queues = map[string]consumer.QueueConfig{"default": {Workers: 1}} })
		b.run()
		begin := time.Now()
		slow := b.submit(-60, task.WithMaxRetries(1))
		if got, err := b.submit(3).Get(t.Context()); err != nil || got != 3 || time.Since(begin) > time.Second {
			t.Fatalf("%d, %v after %s: a waiting retry holds the worker", got, err, time.Since(begin))
		}
		synctest.Wait() // the settlement runs on another goroutine
		if s, err := slow.State(t.Context()); err != nil || s != task.StateRetrying {
			t.Fatalf("state %q, %v", s, err)
		}
		if _, err := slow.Get(t.Context()); err == nil {
			t.Fatal("succeeded")
		}
		if took := time.Since(begin).Truncate(time.Second); took != time.Minute {
			t.Fatalf("failed after %s, want 1m", took)
		}
		b.end()
	})
}

// deadBus is a bus that refuses all events.
type deadBus struct{}

func (deadBus) Publish(context.Context, events.Event) error { return events.ErrClosed }
func (deadBus) Subscribe(context.Context, events.Filter) (events.Subscription, error) {
	return nil, events.ErrClosed
}
func (deadBus) Close(context.Context) error { return nil }

// TestEventBusIsDown shows that tasks are not affected and that lost events are counted (fault 31).
// Promises: S36.
func TestEventBusIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable(t, func(c *consumer.Config) { c.Events = deadBus{} })
		b.run()
		if got, err := b.submit(7).Get(t.Context()); err != nil || got != 7 {
			t.Fatal(got, err)
		}
		synctest.Wait()
		if n := b.metrics.Dropped.Count(); n != 4 {
			t.Fatalf("%d events dropped, want worker-online, received, started and succeeded", n)
		}
		b.end()
	})
}

// absent is a broker that is unreachable until a time.
type absent struct {
	*membroker.Broker
	until time.Time
}

func (b absent) Declare(ctx context.Context, qs ...broker.Queue) error {
	if wait := time.Until(b.until); wait > 0 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return errors.Join(broker.ErrUnavailable, ctx.Err())
		}
	}
	return b.Broker.Declare(ctx, qs...)
}

// TestRunWaitsForTheBroker shows that Run waits for an unreachable broker until it answers, or
// until the consumer is stopped.
func TestRunWaitsForTheBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wrap := func(d time.Duration) func(*consumer.Config) {
			return func(c *consumer.Config) { c.Broker = absent{c.Broker.(*membroker.Broker), time.Now().Add(d)} }
		}
		b := newTable(t, wrap(10*time.Minute))
		b.run()
		if got, err := b.submit(7).Get(t.Context()); err != nil || got != 7 {
			t.Fatal(got, err)
		}
		b.end()
		never := newTable(t, wrap(1000*time.Hour))
		never.run()
		time.Sleep(time.Minute) // the bubble's clock
		never.end()
	})
}

func TestConfigNamesEveryProblem(t *testing.T) {
	_, err := consumer.New(consumer.Config{
		Report: events.Report{NodeID: "a b"}, Defaults: task.Metadata{Priority: task.Set(-1)}, Wire: serializer.Wire{MaxBody: -1}, Tuning: consumer.Tuning{PrefetchMultiplier: -1},
		Stores: map[string]resultstore.ResultStore{"x": nil},
		Queues: map[string]consumer.QueueConfig{"$": {}, "w": {Workers: -1}, "m": {Meta: task.Metadata{Priority: task.Set(-1)}}},
	})
	if err == nil {
		t.Fatal("taken")
	}
	for _, part := range []string{"Broker", "NodeID", "Defaults", "MaxBody", "PrefetchMultiplier", "Stores", `"$"`, `"w": Workers is -1`, `"m"`} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%s is missing in %q", part, err)
		}
	}
}

// asked is a broker that stores the prefetch of each subscription.
type asked struct {
	*membroker.Broker
	prefetch map[string]int
}

func (b asked) Subscribe(ctx context.Context, queue string, o broker.SubscribeOptions) (broker.Subscription, error) {
	b.prefetch[queue] = o.Prefetch
	return b.Broker.Subscribe(ctx, queue, o)
}

// TestPrefetch shows that the prefetch is the multiplier times the workers, or the configured
// number (S51, S52). The suite of brokers checks that a broker keeps it. Promises: S49, S53.
func TestPrefetch(t *testing.T) {
	for name, c := range map[string]struct {
		cfg        consumer.QueueConfig
		multiplier int
		want       int
	}{
		"default":        {consumer.QueueConfig{Workers: 2}, 0, 8},
		"one per worker": {consumer.QueueConfig{Workers: 2}, 1, 2},
		"explicit":       {consumer.QueueConfig{Workers: 2, Prefetch: 50}, 0, 50},
		"no limit":       {consumer.QueueConfig{Workers: 2, Prefetch: -1}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := asked{prefetch: make(map[string]int)}
				b := newTable(t, func(cc *consumer.Config) {
					a.Broker = cc.Broker.(*membroker.Broker)
					cc.Broker = a
					cc.Tuning.PrefetchMultiplier = c.multiplier
					cc.Queues = map[string]consumer.QueueConfig{"default": c.cfg}
				})
				b.run()
				synctest.Wait()
				if got := a.prefetch["default"]; got != c.want {
					t.Errorf("asked for a prefetch of %d, want %d", got, c.want)
				}
				b.end()
			})
		})
	}
}

// plain is a broker without optional capabilities.
type plain struct{ broker.Broker }

// TestDelaysWithoutADelayer shows that the consumer holds a delayed task back itself, counts the
// retry, and counts no crash.
func TestDelaysWithoutADelayer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable(t, func(c *consumer.Config) {
			c.Broker = plain{c.Broker}
			c.Queues = map[string]consumer.QueueConfig{"default": {Workers: 1}}
		})
		b.run()
		begin := time.Now()
		slow := b.submit(-600, task.WithMaxRetries(2))
		if got, err := b.submit(3).Get(t.Context()); err != nil || got != 3 || time.Since(begin) > time.Second {
			t.Fatalf("%d, %v after %s: a waiting retry holds the worker", got, err, time.Since(begin))
		}
		if _, err := slow.Get(t.Context()); !errors.Is(err, task.ErrMaxRetries) {
			t.Fatal(err)
		}
		if took := time.Since(begin).Truncate(time.Second); took != 20*time.Minute {
			t.Fatalf("failed after %s, want 20m", took)
		}
		if b.runs.Load() != 4 || b.metrics.Crashes.Count() != 0 {
			t.Fatalf("%d runs, %d crashes", b.runs.Load(), b.metrics.Crashes.Count())
		}
		b.end()
	})
}
