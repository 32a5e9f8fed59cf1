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
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

// polled runs a consumer that polls the queues a, b and c with n tasks in each. It returns the
// queue names of the tasks in the order in which they ran.
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

// TestPollIsStrict (S50) shows that with all queues full, a is emptied first, then b, then c.
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

// TestPollShare shows that with a share no queue starves.
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

// TestPollControl shows that a new task of a more urgent queue is next and that a paused queue is
// skipped. Scale applies to all queues of the poll.
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
		// Right after Resume and Scale only tasks of c may be available.
		if len(order) != 60 || order[:2] != "ab" || strings.Count(order[:38], "c") > 2 {
			t.Errorf("%d: %s", len(order), order)
		}
	})
}

// TestPollConfig shows that New refuses contradicting polls.
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

// TestAutoscale (S47) shows that workers are added while tasks wait and removed when they are idle,
// within the limits.
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
	s := tasktest.New(nil)
	defer s.Close()
	double := task.New[int, int]("double")

	c := s.Start(consumer.Config{Queues: map[string]consumer.QueueConfig{"default": {Workers: 1}}}, func(r task.Registrar) error {
		return double.Handle(r, func(_ context.Context, n int) (int, error) { return 2 * n, nil })
	})

	ctx := context.Background()
	f, err := double.Submit(ctx, s, 21)
	if err != nil {
		panic(err)
	}
	fmt.Println(f.Get(ctx))

	if err := c.Scale("default", 4); err != nil {
		panic(err)
	}
	if err := c.Pause("default"); err != nil {
		panic(err)
	}
	q := c.Stats().Queues[0]
	fmt.Println(q.Workers, "workers,", q.Prefetch, "held at most, paused:", q.Paused)
	if err := c.Resume(); err != nil {
		panic(err)
	}
	// Output:
	// 42 <nil>
	// 4 workers, 16 held at most, paused: true
}

// TestPollLosesOffers shows that a task that the broker took back while it waited for a worker does
// not start.
func TestPollLosesOffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var conn *membroker.Broker
		b := newTable(t, func(c *consumer.Config) {
			conn = c.Broker.(*membroker.Broker)
			c.Polls = []consumer.Poll{{Queues: []string{"a", "b"}, Workers: 1}}
		})
		var ended atomic.Int32
		runs := make(map[int]int) // written by one worker
		must0(t, hold.Handle(b.c, func(ctx context.Context, i int) (int, error) {
			if ctx.Err() != nil {
				ended.Add(1)
			}
			runs[i]++
			time.Sleep(time.Second) // it ignores its context
			return 0, nil
		}))
		b.run()
		synctest.Wait()
		for i := range 3 {
			_, err := hold.Submit(t.Context(), b.p, i, task.WithQueue("a"))
			must0(t, err)
		}
		synctest.Wait() // one runs, one is offered
		b.server.Disconnect(conn)
		time.Sleep(time.Minute)
		b.end()
		if diff := cmp.Diff(map[int]int{0: 2, 1: 1, 2: 1}, runs); diff != "" || ended.Load() != 0 {
			t.Errorf("%d were started with a context that had ended; runs: %s", ended.Load(), diff)
		}
	})
}

// TestPollAfterPause shows that a queue that was paused counts as empty only after it delivered
// nothing for the interval since.
func TestPollAfterPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable(t, func(c *consumer.Config) {
			c.Polls = []consumer.Poll{{Queues: []string{"a", "b"}, Workers: 1, Interval: 10 * time.Millisecond}}
		})
		var order strings.Builder // written by one worker
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
		for _, q := range []string{"b", "a"} { // the task of b waits before the task of a comes
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
