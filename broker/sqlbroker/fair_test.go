package sqlbroker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/sqlbroker"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// fairQueue declares a fair queue.
func fairQueue(ctx context.Context, t testing.TB, b broker.Broker, name string, levels ...int) {
	t.Helper()
	if err := broker.Declare(ctx, b, broker.Queue{Name: name, Fair: true, Levels: levels}); err != nil {
		t.Fatal(err)
	}
}

// keyed returns the messages of a key, with the ids key-from to key-(to-1).
func keyed(queue, key string, weight, from, to int) []broker.Outgoing {
	var ms []broker.Outgoing
	for i := from; i < to; i++ {
		m := &broker.Message{ID: fmt.Sprintf("%s-%d", key, i), Key: key, Weight: weight, Priority: 100}
		ms = append(ms, broker.Outgoing{Queue: queue, Message: m})
	}
	return ms
}

// published publishes messages.
func published(ctx context.Context, t testing.TB, b broker.Broker, ms ...broker.Outgoing) {
	t.Helper()
	if err := broker.PublishBatch(ctx, b, ms); err != nil {
		t.Fatal(err)
	}
}

// Keys of a fair queue get starts in proportion to their weights, whatever the number of messages
// of a claim.
func TestFairShares(t *testing.T) {
	for _, prefetch := range []int{1, 7, 64} {
		t.Run(fmt.Sprint("prefetch ", prefetch), func(t *testing.T) {
			each(t, func(ctx context.Context, t *testing.T, b *sqlbroker.Broker) {
				fairQueue(ctx, t, b, "q")
				weights := map[string]int{"a": 1, "b": 2, "c": 5, "": 1}
				for key, w := range weights {
					published(ctx, t, b, keyed("q", key, w, 0, 200)...)
				}
				s := subscribed(ctx, t, b, "q", prefetch)
				starts := map[string]int{}
				for range 320 {
					d := received(ctx, t, s)
					m := d.Message()
					if want := fmt.Sprintf("%s-%d", m.Key, starts[m.Key]); m.ID != want {
						t.Fatalf("received %s, want %s", m.ID, want)
					}
					starts[m.Key]++
					if starts["c"] < 195 {
						for key, w := range weights {
							for other, v := range weights {
								if diff := float64(starts[key])/float64(w) - float64(starts[other])/float64(v); diff > 2 {
									t.Fatalf("starts %v differ by %v turns", starts, diff)
								}
							}
						}
					}
					if err := d.Ack(ctx); err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}

// A fair queue has everything that another queue has.
func TestFairQueueHasAll(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, b *sqlbroker.Broker) {
		fairQueue(ctx, t, b, "q", 50, 100)
		q, err := b.Describe(ctx, "q")
		if err != nil || !q.Fair || len(q.Levels) != 2 {
			t.Fatalf("Describe is %+v, %v", q, err)
		}
		published(ctx, t, b, append(keyed("q", "a", 0, 0, 3), keyed("q", "b", 0, 0, 1)...)...)
		urgent := &broker.Message{ID: "urgent", Key: "a", Priority: 1}
		if err := b.Publish(ctx, "q", urgent); err != nil {
			t.Fatal(err)
		}
		later := &broker.Message{ID: "later", Key: "c", Priority: 100}
		if err := b.PublishAt(ctx, "q", later, time.Now().Add(2*time.Second)); err != nil {
			t.Fatal(err)
		}
		st, err := b.Stats(ctx, "q")
		if err != nil || st.Ready != 5 || st.Delayed != 1 {
			t.Fatalf("Stats is %+v, %v", st, err)
		}
		s := subscribed(ctx, t, b, "q", 1)
		seen := map[string]bool{}
		for i := range 6 {
			d := received(ctx, t, s)
			if id := d.Message().ID; i == 0 != (id == "urgent") || seen[id] {
				t.Errorf("message %d is %s", i, id)
			}
			seen[d.Message().ID] = true
			if err := broker.AckSync(ctx, d); err != nil {
				t.Fatal(err)
			}
		}
		if !seen["later"] {
			t.Error("the delayed message was not delivered")
		}
		if st, err := b.Stats(ctx, "q"); err != nil || st != (broker.Stats{}) {
			t.Errorf("Stats is %+v, %v", st, err)
		}
	})
}

// A process of a version without fair queues takes a fair queue for one of its own. The database
// refuses its messages, and it finds none.
func TestFairQueueRefusesOldVersions(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, b *sqlbroker.Broker) {
		fairQueue(ctx, t, b, "q")
		if err := b.Declare(ctx, broker.Queue{Name: "plain"}); err != nil {
			t.Fatal(err)
		}
		for _, queue := range []string{"q", "plain"} {
			err := sqlbroker.StorePlain(ctx, b, queue, &broker.Message{ID: "a"})
			st, statsErr := b.Stats(ctx, queue)
			if refused := queue == "q"; (err != nil) != refused || statsErr != nil || st.Ready == 1 == refused {
				t.Errorf("an old message in %s: %v; Stats is %+v, %v", queue, err, st, statsErr)
			}
		}
	})
}

// Messages go from plain to fair queues and back in one transaction, and keep key and weight.
func TestFairAndPlainTogether(t *testing.T) {
	for name, url := range urls(t) {
		t.Run(name, func(t *testing.T) {
			ctx := testwait.Long(t)
			b := open(t, config(t, url, testserver.Namespace()))
			fairQueue(ctx, t, b, "fair")
			if err := b.Declare(ctx, broker.Queue{Name: "plain"}); err != nil {
				t.Fatal(err)
			}
			published(ctx, t, b, append(keyed("fair", "k", 3, 0, 2), keyed("plain", "k", 3, 2, 4)...)...)
			of := map[string]broker.Subscription{"fair": subscribed(ctx, t, b, "fair", 10), "plain": subscribed(ctx, t, b, "plain", 10)}
			for from, to := range map[string]string{"fair": "plain", "plain": "fair"} {
				for range 2 {
					d := received(ctx, t, of[from])
					next := *d.Message()
					next.Generation++
					if err := b.Retry(ctx, d, broker.Outgoing{Queue: to, Message: &next}); err != nil {
						t.Fatal(err)
					}
				}
			}
			for _, s := range of {
				for range 2 {
					d := received(ctx, t, s)
					if m := d.Message(); m.Key != "k" || m.Weight != 3 || m.Generation != 1 {
						t.Errorf("received %+v", m)
					}
					if err := broker.AckSync(ctx, d); err != nil {
						t.Error(err)
					}
				}
			}
			if name != "memory" {
				mixedTx(ctx, t, b, url, of)
			}
			if err := b.Close(ctx); err != nil {
				t.Error(err)
			}
		})
	}
}

// mixedTx publishes to a plain and a fair queue in one transaction and receives the messages.
func mixedTx(ctx context.Context, t *testing.T, b *sqlbroker.Broker, url string, of map[string]broker.Subscription) {
	own := sqltest.Begin(t, url)
	if err := b.PublishTx(ctx, own.Tx, append(keyed("fair", "t", 1, 0, 1), keyed("plain", "t", 1, 1, 2)...)); err != nil {
		t.Fatal(err)
	}
	if err := own.Commit(); err != nil {
		t.Fatal(err)
	}
	for queue, s := range of {
		if d := received(ctx, t, s); d.Message().Key != "t" {
			t.Errorf("received %+v from %s", d.Message(), queue)
		}
	}
}

// The questions of waiting consumers find ready messages of fair queues, and those that a delay
// ends for.
func TestFairPeek(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, b *sqlbroker.Broker) {
		fairQueue(ctx, t, b, "empty")
		fairQueue(ctx, t, b, "q", 50, 100)
		want := func(queue string, ready, wakes bool) {
			t.Helper()
			got, wake, err := sqlbroker.Peek(ctx, b, queue)
			if err != nil || got != ready || wake > 0 != wakes {
				t.Errorf("Peek of %s is %v, %v, %v", queue, got, wake, err)
			}
		}
		want("q", false, false)
		if err := b.PublishAt(ctx, "q", &broker.Message{ID: "later", Key: "k", Priority: 100}, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		want("q", false, true)
		published(ctx, t, b, keyed("q", "k", 1, 0, 1)...)
		want("q", true, true)
		want("empty", false, false)
		d := received(ctx, t, subscribed(ctx, t, b, "q", 1))
		want("q", false, true)
		if err := d.Release(ctx, time.Hour); err != nil {
			t.Fatal(err)
		}
		want("q", false, true)
	})
}

// A claim whose answer was lost finds its messages by their token, whatever keys were before.
func TestFairRecover(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, b *sqlbroker.Broker) {
		fairQueue(ctx, t, b, "q")
		published(ctx, t, b, append(keyed("q", "a", 1, 0, 3), keyed("q", "b", 1, 0, 3)...)...)
		s := subscribed(ctx, t, b, "q", 1)
		for range 4 {
			d := received(ctx, t, s)
			if ids, err := sqlbroker.Recover(ctx, d); err != nil || len(ids) != 1 || ids[0] != d.Message().ID {
				t.Errorf("the claim of %s is found as %v, %v", d.Message().ID, ids, err)
			}
			if err := broker.AckSync(ctx, d); err != nil {
				t.Fatal(err)
			}
		}
	})
}
