package sqlbroker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/sqlbroker"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// bounded returns a subscription with bounds.
func bounded(ctx context.Context, t testing.TB, b broker.Broker, queue string, prefetch int, bounds broker.Bounds) broker.Subscription {
	t.Helper()
	s, err := b.Subscribe(ctx, queue, broker.SubscribeOptions{Prefetch: prefetch, Bounds: bounds})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Consumers of several processes never hold more messages of a key than its Max, and not more than
// that of the queue. Each settlement frees a place. Nothing of the bounds is left behind.
func TestBoundsHold(t *testing.T) {
	const keys, each, consumers = 12, 20, 4
	bounds := broker.Bounds{
		Key: broker.Bound{Max: 2}, All: broker.Bound{Max: 14},
		Keys: map[string]broker.Bound{"key1": {Max: 1}, "key2": {}, "key3": {Max: 3, Rate: 100_000}},
	}
	for name, url := range urls(t) {
		if name == "memory" { // no second broker can open it
			continue
		}
		t.Run(name, func(t *testing.T) {
			ctx := testwait.Long(t)
			cfg := config(t, url, testserver.Namespace())
			b := open(t, cfg)
			fairQueue(ctx, t, b, "q", 10, 100)
			for k := range keys {
				ms := keyed("q", fmt.Sprint("key", k), 1, 0, each)
				for i := range ms {
					ms[i].Message.Priority = 10 + 90*(i%2)
				}
				published(ctx, t, b, ms...)
			}
			var mu sync.Mutex
			held, all, most := map[string]int{}, 0, 0
			var left atomic.Int64
			left.Store(keys * each)
			receiving, stop := context.WithCancel(ctx)
			defer stop()
			var work sync.WaitGroup
			for c := range consumers {
				own := config(t, url, cfg.Namespace)
				if name == "sqlite" {
					own.DB = cfg.DB
				}
				other := open(t, own)
				defer func() { _ = other.Close(context.WithoutCancel(ctx)) }()
				s := bounded(ctx, t, other, "q", 1+5*c, bounds)
				for range 5 {
					work.Go(func() {
						for n := 0; ; n++ {
							d, err := s.Receive(receiving)
							if err != nil {
								return
							}
							key := d.Message().Key
							mu.Lock()
							held[key]++
							all++
							most = max(most, all)
							if m := bounds.Of(key).Max; m > 0 && held[key] > m || all > bounds.All.Max {
								t.Errorf("%d of %q are held, %d of the queue", held[key], key, all)
							}
							mu.Unlock()
							time.Sleep(time.Millisecond)
							mu.Lock()
							held[key]--
							all--
							mu.Unlock()
							if n%7 == 3 {
								err = d.Release(ctx, time.Duration(n%2)*time.Millisecond)
							} else if err = d.Ack(ctx); err == nil && left.Add(-1) == 0 {
								stop()
							}
							if err != nil {
								t.Error(err)
							}
						}
					})
				}
			}
			work.Wait()
			if n := left.Load(); n != 0 {
				t.Errorf("%d messages were not delivered", n)
			}
			t.Logf("at most %d were held", most)
			testwait.Until(t, "nothing is left", func() bool {
				n, err := sqlbroker.Keys(ctx, b, "q")
				return err == nil && n == 0
			})
		})
	}
}

// A key at its Max is passed over. Its messages come as soon as a place is free, without a poll.
// The held messages of a consumer without bounds count.
func TestBoundsWake(t *testing.T) {
	for name, url := range urls(t) {
		t.Run(name, func(t *testing.T) {
			ctx := testwait.Long(t)
			cfg := config(t, url, testserver.Namespace())
			cfg.Poll = time.Hour
			b := open(t, cfg)
			defer func() { _ = b.Close(ctx) }()
			fairQueue(ctx, t, b, "q")
			published(ctx, t, b, keyed("q", "a", 1, 0, 10)...)
			free := subscribed(ctx, t, b, "q", 2)
			first, second := received(ctx, t, free), received(ctx, t, free)
			if err := free.(broker.Resizer).SetPrefetch(ctx, 0); err != nil {
				t.Fatal(err)
			}
			s := bounded(ctx, t, b, "q", 8, broker.Bounds{Key: broker.Bound{Max: 3}})
			third := received(ctx, t, s)
			published(ctx, t, b, keyed("q", "b", 1, 0, 1)...)
			other := received(ctx, t, s)
			if other.Message().Key != "b" {
				t.Fatalf("received %s", other.Message().ID)
			}
			for _, settle := range []func() error{
				func() error { return first.Ack(ctx) },
				func() error { return second.Release(ctx, time.Hour) },
				func() error { return third.DeadLetter(ctx, broker.Dead{}) },
			} {
				if err := settle(); err != nil {
					t.Fatal(err)
				}
				if d := received(ctx, t, s); d.Message().Key != "a" {
					t.Fatalf("received %s", d.Message().ID)
				}
			}
			if err := s.(broker.Bounder).SetBounds(broker.Bounds{Key: broker.Bound{Max: 4}}); err != nil {
				t.Fatal(err)
			}
			received(ctx, t, s)
			page, err := b.ListKeys(ctx, "q", "", 0)
			if err != nil || len(page.Keys) != 2 || page.Keys[0].Held != 4 || page.Keys[0].Ready != 3 || page.Keys[1].Held != 1 {
				t.Errorf("ListKeys is %+v, %v", page, err)
			}
		})
	}
}

// A rate allows its messages at once, and the next one an interval later, without a poll.
func TestBoundsRate(t *testing.T) {
	for name, url := range urls(t) {
		t.Run(name, func(t *testing.T) {
			ctx := testwait.Long(t)
			cfg := config(t, url, testserver.Namespace())
			cfg.Poll = time.Hour
			b := open(t, cfg)
			defer func() { _ = b.Close(ctx) }()
			fairQueue(ctx, t, b, "q")
			published(ctx, t, b, append(keyed("q", "a", 1, 0, 10), keyed("q", "b", 1, 0, 10)...)...)
			s := bounded(ctx, t, b, "q", 0, broker.Bounds{
				Key: broker.Bound{Rate: 3, Per: 300 * time.Millisecond}, All: broker.Bound{Rate: 5, Per: 100 * time.Millisecond},
			})
			begun, starts := time.Now(), map[string]int{}
			for range 12 {
				d := received(ctx, t, s)
				starts[d.Message().Key]++
				since := time.Since(begun)
				if n, key := starts[d.Message().Key], d.Message().Key; since < time.Duration(n-3)*100*time.Millisecond-time.Millisecond {
					t.Errorf("message %d of %s came after %v", n, key, since)
				}
				if all := starts["a"] + starts["b"]; since < time.Duration(all-5)*20*time.Millisecond-time.Millisecond {
					t.Errorf("message %d came after %v", all, since)
				}
			}
			if starts["a"] != 6 {
				t.Errorf("starts are %v", starts)
			}
			// A message by other bounds uses half an hour of the rates, which does not pass before ListKeys.
			hourly := broker.Bound{Rate: 2, Per: time.Hour}
			if err := broker.SetBounds(s, broker.Bounds{Key: hourly, All: hourly}); err != nil {
				t.Fatal(err)
			}
			published(ctx, t, b, keyed("q", "c", 1, 0, 1)...)
			late := func(used time.Time) bool { return used.After(begun.Add(10 * time.Minute)) }
			testwait.Until(t, "that ListKeys shows the rates of a key and of the queue", func() bool {
				page, err := b.ListKeys(ctx, "q", "", 0)
				return err == nil && late(page.Used) && slices.ContainsFunc(page.Keys, func(k broker.KeyState) bool { return late(k.Used) })
			})
		})
	}
}

// Bounds need a fair queue.
func TestBoundsOfPlainQueue(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, b *sqlbroker.Broker) {
		if _, err := b.Subscribe(ctx, "plain", broker.SubscribeOptions{Bounds: broker.Bounds{All: broker.Bound{Max: 1}}}); !errors.Is(err, broker.ErrMalformed) {
			t.Errorf("Subscribe: %v", err)
		}
		s := subscribed(ctx, t, b, "plain", 1)
		if err := s.(broker.Bounder).SetBounds(broker.Bounds{All: broker.Bound{Max: 1}}); !errors.Is(err, broker.ErrMalformed) {
			t.Errorf("SetBounds: %v", err)
		}
		if err := s.(broker.Bounder).SetBounds(broker.Bounds{}); err != nil {
			t.Errorf("SetBounds without a limit: %v", err)
		}
		if _, err := b.ListKeys(ctx, "plain", "", 0); !errors.Is(err, broker.ErrMalformed) {
			t.Errorf("ListKeys: %v", err)
		}
	})
}

// The floor keeps its share when a bound allows far fewer messages than a claim wants.
func TestBoundsFloor(t *testing.T) {
	const starts = 60
	each(t, func(ctx context.Context, t *testing.T, b *sqlbroker.Broker) {
		fairQueue(ctx, t, b, "q", 10, 100)
		ms := keyed("q", "a", 1, 0, 2*starts)
		for i := range starts {
			ms[i].Message.Priority = 10
		}
		published(ctx, t, b, ms...)
		s, err := b.Subscribe(ctx, "q", broker.SubscribeOptions{Prefetch: 20, Floor: 0.05, Bounds: broker.Bounds{All: broker.Bound{Max: 1}}})
		if err != nil {
			t.Fatal(err)
		}
		lower := 0
		for range starts {
			d := received(ctx, t, s)
			if d.Message().Priority == 100 {
				lower++
			}
			if err := broker.AckSync(ctx, d); err != nil {
				t.Fatal(err)
			}
		}
		if lower < 2 || lower > 4 {
			t.Errorf("%d of %d messages are from the less urgent level, want about 3", lower, starts)
		}
	})
}

// A consumer without bounds marks its messages once another one uses bounds, also when it does not
// read the keys.
func TestBoundsKnownKeys(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, b *sqlbroker.Broker) {
		fairQueue(ctx, t, b, "q")
		if marks, err := sqlbroker.MarksKnown(ctx, b, "q"); err != nil || marks {
			t.Errorf("without bounds: %v, %v", marks, err)
		}
		published(ctx, t, b, keyed("q", "a", 1, 0, 1)...)
		received(ctx, t, bounded(ctx, t, b, "q", 1, broker.Bounds{All: broker.Bound{Max: 1}}))
		if marks, err := sqlbroker.MarksKnown(ctx, b, "q"); err != nil || !marks {
			t.Errorf("with bounds: %v, %v", marks, err)
		}
	})
}
