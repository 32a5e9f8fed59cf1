package consumer_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// polled runs a consumer that polls queues a, b and c, with n tasks in each, and returns their names in the order they ran.
func polled(t *testing.T, p consumer.Poll, n int, during func(b *table)) string {
	t.Helper()
	p.Queues = []string{"a", "b", "c"}
	b := newTable(t, func(c *consumer.Config) { c.Polls = []consumer.Poll{p} })
	var mu sync.Mutex
	var order strings.Builder
	must0(t, hold.Handle(b.c, func(ctx context.Context, _ int) (int, error) {
		r, _ := task.FromContext(ctx)
		mu.Lock()
		order.WriteString(r.Queue)
		mu.Unlock()
		time.Sleep(time.Millisecond)
		return 0, nil
	}))
	conn := b.server.Connect()
	for _, q := range []string{"c", "b", "a"} {
		sub, err := conn.Subscribe(t.Context(), q, broker.SubscribeOptions{})
		must0(t, err)
		must0(t, sub.Close(t.Context()))
		for i := range n {
			_, err := hold.Submit(t.Context(), b.p, i, task.WithQueue(q))
			must0(t, err)
		}
	}
	b.run()
	if during != nil {
		during(b)
	}
	time.Sleep(time.Minute)
	b.end()
	mu.Lock()
	defer mu.Unlock()
	return order.String()
}

// TestPollIsStrict (S50): with a before b and all full, a drains first, then b, then c.
func TestPollIsStrict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		want := strings.Repeat("a", 30) + strings.Repeat("b", 30) + strings.Repeat("c", 30)
		if diff := cmp.Diff(want, polled(t, consumer.Poll{Workers: 1}, 30, nil)); diff != "" {
			t.Error(diff)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		order := polled(t, consumer.Poll{Workers: 4}, 30, nil)
		if len(order) != 90 || strings.LastIndex(order, "a") > 33 || strings.Index(order, "c") < 56 {
			t.Error(order)
		}
	})
}

// TestPollShare: with a share no queue starves.
func TestPollShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		order := polled(t, consumer.Poll{Workers: 1, Share: 5}, 40, nil)
		if len(order) != 120 {
			t.Fatalf("%d of 120 ran", len(order))
		}
		first := order[:30]
		if a, b, c := strings.Count(first, "a"), strings.Count(first, "b"), strings.Count(first, "c"); a < 24 || b < 2 || c < 2 {
			t.Errorf("of the first 30 tasks %d are a's, %d b's and %d c's: %s", a, b, c, first)
		}
	})
}

// TestPollControl: a more urgent task that comes while others are served is next; a paused queue is passed over; Scale is for all.
func TestPollControl(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		order := polled(t, consumer.Poll{Workers: 1}, 20, func(b *table) {
			time.Sleep(time.Millisecond / 2)
			must0(t, b.c.Pause("a"))
			time.Sleep(5 * time.Millisecond)
			must0(t, b.c.Resume("a"))
			must0(t, b.c.Scale("c", 3))
			for _, q := range b.c.Stats().Queues {
				if q.Workers != 3 || q.Prefetch != 12 {
					t.Errorf("%+v", q)
				}
			}
			must0(t, b.c.Scale("a", 1))
			must0(t, b.c.Pause())
			time.Sleep(time.Second)
			if s := b.c.Stats(); s.Active != 0 || s.Reserved != 0 {
				t.Errorf("paused: %+v", s)
			}
			must0(t, b.c.Resume())
		})
		// Right after Resume and Scale there may be nothing at hand but what lies in c.
		if len(order) != 60 || order[:2] != "ab" || strings.Count(order[:38], "c") > 2 {
			t.Errorf("%d: %s", len(order), order)
		}
	})
}

// TestPollConfig: what contradicts itself is refused.
func TestPollConfig(t *testing.T) {
	for i, c := range []consumer.Config{
		{Polls: []consumer.Poll{{}}},
		{Polls: []consumer.Poll{{Queues: []string{"a", "a"}}}},
		{Polls: []consumer.Poll{{Queues: []string{"a"}}, {Queues: []string{"a"}}}},
		{Polls: []consumer.Poll{{Queues: []string{"a"}, Share: 1}}},
		{Polls: []consumer.Poll{{Queues: []string{"no good"}}}},
		{Polls: []consumer.Poll{{Queues: []string{"a"}}}, Queues: map[string]consumer.QueueConfig{"a": {Workers: 1}}},
		{Queues: map[string]consumer.QueueConfig{"a": {Autoscale: &consumer.Autoscale{}}}},
		{Queues: map[string]consumer.QueueConfig{"a": {Autoscale: &consumer.Autoscale{Min: 2, Max: 1}}}},
		{Queues: map[string]consumer.QueueConfig{"a": {PrefetchMultiplier: -1}}},
	} {
		c.Broker = membroker.New()
		if _, err := consumer.New(c); err == nil {
			t.Errorf("configuration %d is accepted", i)
		}
	}
}

// TestAutoscale (S47): workers come while tasks wait and go when there is nothing to do, between the bounds.
func TestAutoscale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var load atomic.Int64 // percent
		load.Store(100)
		h := newHolding(t, consumer.QueueConfig{Workers: 1, Autoscale: &consumer.Autoscale{Min: 2, Max: 9, Load: func() float64 { return float64(load.Load()) / 100 }}})
		h.submit(0, 100)
		h.b.run()
		look := func(why string, want int) {
			t.Helper()
			synctest.Wait()
			if n := h.b.c.Stats().Queues[0].Workers; n != want {
				t.Errorf("%s: %d workers, want %d", why, n, want)
			}
		}
		look("at first", 2)
		time.Sleep(11 * time.Second)
		look("under load", 2)
		load.Store(0)
		time.Sleep(5 * time.Second)
		look("after a look", 4)
		time.Sleep(time.Minute)
		look("after many", 9)
		close(h.release)
		time.Sleep(20 * time.Second)
		look("idle for a short time", 9)
		time.Sleep(5 * time.Minute)
		look("idle for long", 2)
		if n := len(h.runs()); n != 100 {
			t.Errorf("%d runs", n)
		}
		h.b.end()
	})
}

func ExampleConsumer_Scale() {
	p, c, run := inMemory(producer.Config{}, consumer.Config{Queues: map[string]consumer.QueueConfig{"default": {Workers: 1}}})
	double := task.New[int, int]("double")
	must(double.Handle(c, func(_ context.Context, n int) (int, error) { return 2 * n, nil }))
	defer run()()

	ctx, cancel := soon()
	defer cancel()
	f, err := double.Submit(ctx, p, 21)
	must(err)
	fmt.Println(f.Get(ctx))

	must(c.Scale("default", 4))
	must(c.Pause("default"))
	s := c.Stats().Queues[0]
	fmt.Println(s.Workers, "workers,", s.Prefetch, "held at most, paused:", s.Paused)
	must(c.Resume())
	// Output:
	// 42 <nil>
	// 4 workers, 16 held at most, paused: true
}

// TestPollLosesOffers: what the broker has taken back while it waited for a worker is not started.
func TestPollLosesOffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var conn *membroker.Broker
		b := newTable(t, func(c *consumer.Config) {
			conn = c.Broker.(*membroker.Broker)
			c.Polls = []consumer.Poll{{Queues: []string{"a", "b"}, Workers: 1}}
		})
		var ended atomic.Int32
		runs := make(map[int]int) // of one worker
		must0(t, hold.Handle(b.c, func(ctx context.Context, i int) (int, error) {
			if ctx.Err() != nil {
				ended.Add(1)
			}
			runs[i]++
			time.Sleep(time.Second) // it does not heed its context
			return 0, nil
		}))
		b.run()
		synctest.Wait()
		for i := range 3 {
			_, err := hold.Submit(t.Context(), b.p, i, task.WithQueue("a"))
			must0(t, err)
		}
		synctest.Wait() // one runs, one is on offer
		b.server.Disconnect(conn)
		time.Sleep(time.Minute)
		b.end()
		if diff := cmp.Diff(map[int]int{0: 2, 1: 1, 2: 1}, runs); diff != "" || ended.Load() != 0 {
			t.Errorf("%d were started with a context that had ended; runs: %s", ended.Load(), diff)
		}
	})
}

// TestPollAfterPause: a queue that was paused counts as empty only when it has been silent for the interval since.
func TestPollAfterPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable(t, func(c *consumer.Config) {
			c.Polls = []consumer.Poll{{Queues: []string{"a", "b"}, Workers: 1, Interval: 10 * time.Millisecond}}
		})
		var order strings.Builder // of one worker
		must0(t, hold.Handle(b.c, func(ctx context.Context, _ int) (int, error) {
			r, _ := task.FromContext(ctx)
			order.WriteString(r.Queue)
			return 0, nil
		}))
		b.run()
		synctest.Wait()
		must0(t, b.c.Pause("a"))
		time.Sleep(time.Second)
		must0(t, b.c.Resume("a"))
		for _, q := range []string{"b", "a"} { // the next of a is on its way while that of b is there
			_, err := hold.Submit(t.Context(), b.p, 0, task.WithQueue(q))
			must0(t, err)
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Minute)
		b.end()
		if order.String() != "ab" {
			t.Errorf("ran in the order %s, want ab", order.String())
		}
	})
}
