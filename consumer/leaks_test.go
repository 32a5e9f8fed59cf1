package consumer_test

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/serializer/msgpack"
	"github.com/swarmiji/swarmiji/task"
)

// noDead is a broker without DeadLetterer.
type noDead struct{ b *membroker.Broker }

func (b noDead) Publish(ctx context.Context, q string, m *broker.Message) error {
	return b.b.Publish(ctx, q, m)
}

func (b noDead) PublishAt(ctx context.Context, q string, m *broker.Message, at time.Time) error {
	return b.b.PublishAt(ctx, q, m, at)
}

func (b noDead) Declare(ctx context.Context, qs ...broker.Queue) error {
	return b.b.Declare(ctx, qs...)
}

func (b noDead) Subscribe(ctx context.Context, q string, o broker.SubscribeOptions) (broker.Subscription, error) {
	return b.b.Subscribe(ctx, q, o)
}
func (b noDead) Close(ctx context.Context) error { return b.b.Close(ctx) }

// TestGiveUpWithoutDeadLetters shows that an at-most-once task whose retry is too large frees its
// slot, over a broker without DeadLetterer.
func TestGiveUpWithoutDeadLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 4000
		b := newTable(t, func(c *consumer.Config) {
			c.Broker = noDead{c.Broker.(*membroker.Broker)}
			c.Wire.MaxBody = limit
			c.Queues = map[string]consumer.QueueConfig{"default": {Workers: 1, Prefetch: 1}}
		})
		def := task.New[[]byte, int]("big", task.WithIdempotent(false), task.WithIgnoreResult(true))
		if err := def.Handle(b.c, func(context.Context, []byte) (int, error) {
			return 0, task.Retry(errors.New("x"), task.After(time.Minute))
		}); err != nil {
			t.Fatal(err)
		}
		// the largest task that fits, so that its retry does not
		conn := b.server.Connect()
		_ = conn.Declare(t.Context(), broker.Queue{Name: "default"})
		for n := limit; ; n-- {
			args, _ := msgpack.Serializer{}.Marshal(bytes.Repeat([]byte{1}, n))
			m, err := msgpack.Compact{}.Encode(&task.Envelope{ID: "big-1", Name: "big", ContentType: msgpack.Serializer{}.ContentType(), Args: args, Meta: def.Metadata()})
			if err != nil {
				t.Fatal(err)
			}
			if len(m.Body) <= limit {
				if err := conn.Publish(t.Context(), "default", m); err != nil {
					t.Fatal(err)
				}
				break
			}
		}
		f := b.submit(5, task.WithIdempotent(false)) // needs the only slot
		b.run()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if got, err := f.Get(ctx); err != nil {
			t.Errorf("an hour later the place is still taken: %v %v; %+v", got, err, b.stats(t))
		}
		begin := time.Now()
		b.end()
		t.Logf("the stop took %v", time.Since(begin))
	})
}

// plainPool runs everything at once.
type plainPool struct{}

func (plainPool) Do(_ context.Context, fn func()) error { fn(); return nil }

// ownLost is a broker that gives each delivery its own Lost channel, as the broker of hworker does.
type ownLost struct{ *membroker.Broker }

func (b ownLost) Unwrap() any { return b.Broker }
func (b ownLost) Subscribe(ctx context.Context, q string, o broker.SubscribeOptions) (broker.Subscription, error) {
	s, err := b.Broker.Subscribe(ctx, q, o)
	return ownLostSub{s}, err
}

type ownLostSub struct{ broker.Subscription }

func (s ownLostSub) Unwrap() any { return s.Subscription }
func (s ownLostSub) Receive(ctx context.Context) (broker.Delivery, error) {
	d, err := s.Subscription.Receive(ctx)
	if err != nil {
		return nil, err
	}
	return ownLostDelivery{d, make(chan struct{})}, nil
}

type ownLostDelivery struct {
	broker.Delivery
	lost chan struct{}
}

func (d ownLostDelivery) Unwrap() any           { return d.Delivery }
func (d ownLostDelivery) Lost() <-chan struct{} { return d.lost }

// TestPoolKeepsNoLeases shows that tasks in a Pool leave no lease and no goroutine behind.
func TestPoolKeepsNoLeases(t *testing.T) {
	for _, idempotent := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := newTable(t, func(c *consumer.Config) {
				c.Broker = ownLost{c.Broker.(*membroker.Broker)}
				c.Pool = plainPool{}
			})
			b.run()
			const n = 500
			for i := range n {
				if _, err := b.submit(i, task.WithIdempotent(idempotent)).Get(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Minute)
			if g := runtime.NumGoroutine(); g > 150 {
				t.Errorf("idempotent %t: %d goroutines after %d tasks", idempotent, g, n)
			} else {
				t.Logf("idempotent %t: %d goroutines after %d tasks", idempotent, g, n)
			}
			b.end()
		})
	}
}

// slowBegin is a gatherer whose first Begin fails.
type slowBegin struct {
	*memresults.Store
	failed atomic.Bool
}

func (s *slowBegin) Begin(ctx context.Context, id task.ID, which string, ttl time.Duration) (bool, error) {
	if s.failed.CompareAndSwap(false, true) {
		return false, resultstore.ErrUnavailable
	}
	return s.Store.Begin(ctx, id, which, ttl)
}

// TestUnreadableIsNotRun shows that a successor with unreadable arguments does not run if the
// gatherer fails at first.
func TestUnreadableIsNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sb := &slowBegin{}
		b := newTable(t, func(c *consumer.Config) {
			sb.Store = c.Results.(*memresults.Store)
			c.Results = sb
		})
		var got atomic.Pointer[string]
		if err := b.c.Register("raw", task.HandlerFunc(func(_ context.Context, r *task.Request) (any, error) {
			s := string(r.Args)
			got.Store(&s)
			return nil, nil
		}), task.Metadata{}); err != nil {
			t.Fatal(err)
		}
		conn := b.server.Connect()
		_ = conn.Declare(t.Context(), broker.Queue{Name: "default"})
		m, err := msgpack.Compact{}.Encode(&task.Envelope{ID: "r-1", Name: "raw", ContentType: "application/octet-stream+gzip", Args: []byte("not gzip at all"), Copy: "c"})
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.Publish(t.Context(), "default", m); err != nil {
			t.Fatal(err)
		}
		b.run()
		time.Sleep(time.Minute)
		if s := got.Load(); s != nil {
			t.Errorf("the handler got %q, which nobody has decompressed", *s)
		} else {
			t.Logf("record %+v", b.rec(t, "r-1").Error)
		}
		b.end()
	})
}
