package consumer_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/settings"
	"github.com/swarmiji/swarmiji/settings/memsettings"
	"github.com/swarmiji/swarmiji/task"
)

// gauge counts the running handlers of each fairness key.
type gauge struct {
	mu   sync.Mutex
	now  map[string]int
	most map[string]int

	all, mostAll int
}

func (g *gauge) add(key string, n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now[key] += n
	g.most[key] = max(g.most[key], g.now[key])
	g.all += n
	g.mostAll = max(g.mostAll, g.all)
}

// take returns the largest numbers by key since the last call, and that of all keys.
func (g *gauge) take() (byKey map[string]int, all int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	byKey, all = g.most, g.mostAll
	g.most, g.mostAll = map[string]int{}, 0
	return byKey, all
}

var slow = task.New[string, int]("slow")

// newBounded returns a table whose queue is fair and has bounds, with a task that takes a second.
func newBounded(t *testing.T, bounds broker.Bounds, change func(*consumer.Config)) (*table, *gauge) {
	b := newTable(t, func(c *consumer.Config) {
		c.Queues = map[string]consumer.QueueConfig{"default": {Workers: 16, Fair: true, Bounds: bounds}}
		if change != nil {
			change(c)
		}
	})
	b.produceTo(broker.Queue{Name: "default", Fair: true})
	g := &gauge{now: map[string]int{}, most: map[string]int{}}
	err := slow.Handle(b.c, func(_ context.Context, key string) (int, error) {
		g.add(key, 1)
		time.Sleep(time.Second) // in the bubble's time
		g.add(key, -1)
		return 0, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b, g
}

// produceTo replaces the producer by one that declares the queue.
func (b *table) produceTo(q broker.Queue) {
	b.t.Helper()
	if err := b.p.Close(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	var err error
	if b.p, err = producer.New(producer.Config{Broker: b.server.Connect(), Results: b.store, Queues: []broker.Queue{q}}); err != nil {
		b.t.Fatal(err)
	}
}

// submitKeys submits n tasks of each key.
func (b *table) submitKeys(n int, keys ...string) {
	b.t.Helper()
	for range n {
		for _, key := range keys {
			if _, err := slow.Submit(b.t.Context(), b.p, key, task.WithFairnessKey(key)); err != nil {
				b.t.Fatal(err)
			}
		}
	}
}

// TestBoundsOfAQueue shows that the handlers of a key and of the queue stay within the bounds, and
// that the prefetch is the number of workers.
func TestBoundsOfAQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, g := newBounded(t, broker.Bounds{Key: broker.Bound{Max: 3}, Keys: map[string]broker.Bound{"big": {Max: 5}}}, nil)
		b.run()
		synctest.Wait()
		if n := b.c.Stats().Queues[0].Prefetch; n != 16 {
			t.Errorf("the prefetch is %d, want 16, one for each worker", n)
		}
		b.submitKeys(20, "a", "b", "big")
		time.Sleep(3500 * time.Millisecond) // 3 of 7 seconds of a and b
		if most, _ := g.take(); fmt.Sprint(most) != fmt.Sprint(map[string]int{"a": 3, "b": 3, "big": 5}) {
			t.Errorf("the most handlers by key were %v, want 3, 3 and 5", most)
		}
		time.Sleep(5 * time.Second)
		if n := b.metrics.Succeeded.Count(); n != 60 {
			t.Errorf("%d tasks have ended after 8.5 seconds, want all 60", n)
		}
		b.end()
	})
}

// TestStoredBounds shows that a consumer follows the stored bounds of its queue at once, and uses
// its own bounds when they are removed.
func TestStoredBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memsettings.New()
		defer store.Close(t.Context())
		b, g := newBounded(t, broker.Bounds{}, func(c *consumer.Config) { c.Settings = store })
		set := func(change settings.Bounds) {
			t.Helper()
			if err := settings.BoundQueue(t.Context(), store, "default", change); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		set(settings.Bounds{Key: &settings.Bound{Max: 1}})
		b.run()
		synctest.Wait()
		b.submitKeys(100, "a", "b")
		check := func(a, b, all int) {
			t.Helper()
			time.Sleep(1100 * time.Millisecond) // the tasks of before have ended
			g.take()
			time.Sleep(1100 * time.Millisecond)
			if most, sum := g.take(); most["a"] > a || most["b"] > b || sum != all {
				t.Errorf("the most handlers by key were %v, and %d of all; want %d, %d and %d", most, sum, a, b, all)
			}
		}
		check(1, 1, 2)
		set(settings.Bounds{Keys: map[string]settings.Bound{"b": {Max: 4}}})
		check(1, 4, 5)
		set(settings.Bounds{All: &settings.Bound{Max: 2}})
		check(1, 2, 2)
		if _, err := settings.UnboundQueue(t.Context(), store, "default"); err != nil {
			t.Fatal(err)
		}
		check(16, 16, 16)
		b.end()
	})
}

// TestRefusedStoredBounds shows that bounds in a setting that the broker refuses do not stop the
// consumer: they are logged and not used.
func TestRefusedStoredBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memsettings.New()
		defer store.Close(t.Context())
		bound := settings.Bounds{Key: &settings.Bound{Max: 1}}
		if err := settings.BoundQueue(t.Context(), store, "default", bound); err != nil {
			t.Fatal(err)
		}
		b, g := newBounded(t, broker.Bounds{}, func(c *consumer.Config) {
			c.Settings = store
			c.Broker = boundless{c.Broker.(*membroker.Broker)}
		})
		b.run()
		synctest.Wait()
		b.submitKeys(8, "a")
		time.Sleep(500 * time.Millisecond)
		if most, _ := g.take(); most["a"] != 8 {
			t.Errorf("the most handlers by key were %v, want all 8", most)
		}
		time.Sleep(time.Second)
		b.end()
	})
}

// boundless is a broker that refuses bounds.
type boundless struct{ *membroker.Broker }

func (b boundless) Subscribe(ctx context.Context, queue string, o broker.SubscribeOptions) (broker.Subscription, error) {
	if err := broker.RefuseBounds(queue, o); err != nil {
		return nil, err
	}
	return b.Broker.Subscribe(ctx, queue, o)
}

// TestFloor shows that less urgent tasks get their share of the starts.
func TestFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable(t, func(c *consumer.Config) {
			c.Queues = map[string]consumer.QueueConfig{"default": {Workers: 1, Levels: []int{10, 100}, Floor: 0.25}}
		})
		var order []string
		err := slow.Handle(b.c, func(_ context.Context, key string) (int, error) {
			order = append(order, key)
			return 0, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		b.produceTo(broker.Queue{Name: "default", Levels: []int{10, 100}})
		for range 20 {
			for key, priority := range map[string]int{"urgent": 5, "other": 50} {
				if _, err := slow.Submit(t.Context(), b.p, key, task.WithPriority(priority)); err != nil {
					t.Fatal(err)
				}
			}
		}
		b.run()
		synctest.Wait()
		want := strings.Fields(strings.Repeat("urgent urgent urgent other ", 6))
		if len(order) != 40 || !slices.Equal(order[:24], want) {
			t.Errorf("the order is %v, want each fourth from the other level", order)
		}
		b.end()
	})
}

func TestBadBounds(t *testing.T) {
	for name, q := range map[string]consumer.QueueConfig{
		"not fair": {Bounds: broker.Bounds{Key: broker.Bound{Max: 1}}},
		"negative": {Fair: true, Bounds: broker.Bounds{Key: broker.Bound{Max: -1}}},
		"floor":    {Floor: 0.7},
	} {
		_, err := consumer.New(consumer.Config{Broker: membroker.New(), Queues: map[string]consumer.QueueConfig{"default": q}})
		if err == nil || !strings.Contains(err.Error(), `"default"`) {
			t.Errorf("%s: New returned %v, want an error that names the queue", name, err)
		}
	}
}
