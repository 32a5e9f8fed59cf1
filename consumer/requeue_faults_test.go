package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/deadletter"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

var _ = []any{errors.New, fmt.Sprint, slog.New, sync.NewCond, (*atomic.Int64)(nil), resultstore.ErrStale}

// publishedUnconfirmed is a broker that publishes the first copy and returns an unknown outcome.
type publishedUnconfirmed struct {
	*membroker.Broker
	once atomic.Bool
}

func (b *publishedUnconfirmed) PublishAt(ctx context.Context, queue string, m *broker.Message, at time.Time) error {
	err := b.Broker.PublishAt(ctx, queue, m, at)
	if err == nil && b.once.CompareAndSwap(false, true) {
		return fmt.Errorf("the answer is lost: %w", broker.ErrIndeterminate)
	}
	return err
}

func (b *table) requeueAll(t *testing.T) deadletter.Report {
	t.Helper()
	l, err := deadletter.New(deadletter.Config{Broker: b.server.Connect(), Results: b.store})
	if err != nil {
		t.Fatal(err)
	}
	rep, err := l.Requeue(t.Context(), "default", deadletter.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

func (b *table) stats(t *testing.T) broker.Stats {
	t.Helper()
	s, err := b.server.Connect().Stats(t.Context(), "default")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (b *table) rec(t *testing.T, id task.ID) resultstore.Record {
	t.Helper()
	r, err := b.store.Load(t.Context(), id)
	if err != nil {
		t.Logf("record of %s: %v", id, err)
	}
	return r
}

// TestRequeueAfterAnUnknownRetry requeues the dead letter of an uncertain task that runs at most
// once, whose retry was queued with an unknown outcome.
func TestRequeueAfterAnUnknownRetry(t *testing.T) {
	for name, after := range map[string]struct {
		retry, run time.Duration
		one        bool
	}{
		"the retry waits for its delay": {retry: time.Hour},
		// two dead letters, of two generations of one task
		"the retry has failed too": {retry: time.Second, run: time.Second, one: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { requeueAfterAnUnknownRetry(t, after.retry, after.run, after.one) })
		})
	}
}

func requeueAfterAnUnknownRetry(t *testing.T, retry, work time.Duration, one bool) {
	fb := &publishedUnconfirmed{}
	var fixed atomic.Bool
	var runs atomic.Int64
	b := newTable(t, func(c *consumer.Config) {
		fb.Broker = c.Broker.(*membroker.Broker)
		c.Broker = fb
		if one {
			c.Queues = map[string]consumer.QueueConfig{"default": {Workers: 1, Prefetch: 1}}
		}
	})
	def := task.New[int, int]("pay", task.WithIdempotent(false), task.WithMaxRetries(5))
	if err := def.Handle(b.c, func(_ context.Context, i int) (int, error) {
		runs.Add(1)
		if fixed.Load() {
			time.Sleep(work)
			return i, nil
		}
		return 0, task.Retry(errors.New("not yet"), task.After(retry))
	}); err != nil {
		t.Fatal(err)
	}
	b.run()
	if _, err := def.Submit(t.Context(), b.p, 7, task.WithID("pay-1")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Minute)
	t.Logf("before: %+v, record %s, %d runs", b.stats(t), b.rec(t, "pay-1").State, runs.Load())
	fixed.Store(true)
	t.Logf("requeue: %+v", b.requeueAll(t))
	time.Sleep(5 * time.Hour)
	if rec, s := b.rec(t, "pay-1"), b.stats(t); rec.State != task.StateSucceeded {
		t.Errorf("5 h after the requeue: record %q (life %d), queue %+v, %d runs: the task is lost", rec.State, rec.Life, s, runs.Load())
	}
	b.end()
}

// bare is a broker without Retrier, as RabbitMQ is. It loses its connection between the confirm of
// a copy and the acknowledgement.
type bare struct {
	b      *membroker.Broker
	server *membroker.Server
	once   sync.Once
	cut    func(m *broker.Message) bool
}

func (b *bare) Publish(ctx context.Context, queue string, m *broker.Message) error {
	return b.PublishAt(ctx, queue, m, time.Time{})
}

func (b *bare) PublishAt(ctx context.Context, queue string, m *broker.Message, at time.Time) error {
	// Publish compares no ids, as RabbitMQ.
	err := b.b.PublishAt(ctx, queue, m, at)
	if err == nil && b.cut(m) {
		b.once.Do(func() { b.server.Disconnect(b.b) })
	}
	return err
}

func (b *bare) Declare(ctx context.Context, qs ...broker.Queue) error { return b.b.Declare(ctx, qs...) }

func (b *bare) Subscribe(ctx context.Context, queue string, o broker.SubscribeOptions) (broker.Subscription, error) {
	return b.b.Subscribe(ctx, queue, o)
}
func (b *bare) Close(ctx context.Context) error { return b.b.Close(ctx) }
func (b *bare) PutDead(ctx context.Context, queue string, d broker.Dead) error {
	return b.b.PutDead(ctx, queue, d)
}

func (b *bare) ScanDead(ctx context.Context, queue string, fn func(*broker.Dead) broker.DeadAction) error {
	return b.b.ScanDead(ctx, queue, fn)
}

func (b *bare) PurgeDead(ctx context.Context, queue string) (int, error) {
	return b.b.PurgeDead(ctx, queue)
}

// TestPutBackAtMostOnceTwice shows that an at-most-once task that is put back before its start runs
// once. The connection is cut after the confirm of the copy. A snooze of an admission or a missing
// handler puts it back.
func TestPutBackAtMostOnceTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fb := &bare{cut: func(m *broker.Message) bool { return m.Generation == 1 }}
		var runs atomic.Int64
		var refused atomic.Bool
		var gens sync.Map
		b := newTable(t, func(c *consumer.Config) {
			fb.b = c.Broker.(*membroker.Broker)
			c.Broker = fb
			c.Admit = []middleware.Admit{func(_ context.Context, r *task.Request) (func(), error) {
				if refused.CompareAndSwap(false, true) {
					return nil, task.Snooze(time.Second)
				}
				return nil, nil
			}}
		})
		fb.server = b.server
		def := task.New[int, int]("pay", task.WithIdempotent(false))
		if err := def.Handle(b.c, func(ctx context.Context, i int) (int, error) {
			req, _ := task.FromContext(ctx)
			gens.Store(req.Generation, true)
			runs.Add(1)
			time.Sleep(10 * time.Second)
			return i, nil
		}); err != nil {
			t.Fatal(err)
		}
		b.run()
		if _, err := def.Submit(t.Context(), b.p, 7, task.WithID("pay-1")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if n := runs.Load(); n != 1 {
			gens.Range(func(k, _ any) bool { t.Logf("generation %v ran", k); return true })
			t.Errorf("a task that runs at most once was started %d times", n)
		}
		b.end()
	})
}
