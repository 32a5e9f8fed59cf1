package natsbroker_test

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/brokertest"
	"github.com/swarmiji/swarmiji/broker/natsbroker"
	"github.com/swarmiji/swarmiji/internal/lanes/lanestest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// declareFair declares the fair queue q with the given levels.
func declareFair(t testing.TB, b *natsbroker.Broker, levels ...int) {
	t.Helper()
	if err := b.Declare(testwait.Long(t), broker.Queue{Name: "q", Levels: levels, Fair: true}); err != nil {
		t.Fatalf("Declare: %v", err)
	}
}

// keyed returns a message with a fairness key.
func keyed(id, key string) *broker.Message {
	m := message(id)
	m.Key = key
	return m
}

// send publishes m to the queue q.
func send(t testing.TB, b *natsbroker.Broker, m *broker.Message) {
	t.Helper()
	if err := b.Publish(testwait.Long(t), "q", m); err != nil {
		t.Fatalf("Publish(%s): %v", m.ID, err)
	}
}

// dump publishes n messages of one key and the default priority.
func dump(t testing.TB, b *natsbroker.Broker, key string, n int) {
	t.Helper()
	var ms []broker.Outgoing
	for i := range n {
		ms = append(ms, broker.Outgoing{Queue: "q", Message: keyed(fmt.Sprintf("%s-%04d", key, i), key)})
	}
	if err := b.PublishBatch(testwait.Long(t), ms); err != nil {
		t.Fatalf("PublishBatch: %v", err)
	}
}

// stored returns the numbers of stored messages in the lanes of level 0 of a queue, by the server.
func stored(t testing.TB, namespace, queue string) (n [4]int) {
	t.Helper()
	ctx := testwait.Long(t)
	s, err := bare(t, testserver.RequireNATS(t).URL()).Stream(ctx, "SWJ_"+namespace)
	if err != nil {
		t.Fatalf("Stream: %v", err)
	}
	for lane, token := range []string{"0", "0f1", "0f2", "0f3"} {
		info, err := s.Info(ctx, jetstream.WithSubjectFilter("swj."+namespace+".T."+queue+"."+token+".*"))
		if err != nil {
			t.Fatalf("Info: %v", err)
		}
		n[lane] = len(info.State.Subjects)
	}
	return n
}

// TestBacklogOfAKeyIsInLanes shows where the messages of a fair queue are, and that the calls for a
// whole queue include its lanes.
func TestBacklogOfAKeyIsInLanes(t *testing.T) {
	t.Parallel()
	for _, consumed := range []bool{false, true} {
		t.Run(fmt.Sprint("with consumers ", consumed), func(t *testing.T) {
			t.Parallel()
			ns := testserver.Namespace()
			b := connect(t, natsbroker.Config{Namespace: ns})
			declareFair(t, b)
			ctx := testwait.Long(t)
			if consumed {
				if err := subscribe(t, b, broker.SubscribeOptions{Prefetch: 1}).Close(ctx); err != nil {
					t.Fatalf("Close: %v", err)
				}
			}
			dump(t, b, "heavy", 100)
			dump(t, b, "light", 3)
			if got, want := stored(t, ns, "q"), [4]int{4 + 3, 12, 48, 36}; got != want {
				t.Errorf("the lanes hold %v, want %v", got, want)
			}
			other := connect(t, natsbroker.Config{Namespace: ns}) // it reads the record from the server
			if st, err := other.Stats(ctx, "q"); err != nil || st.Ready != 103 || st.Oldest.IsZero() {
				t.Errorf("Stats of another process: %+v, %v, want 103 ready", st, err)
			}
			if d, err := other.Describe(ctx, "q"); err != nil || !d.Fair || len(d.Levels) != 0 || d.Name != "q" {
				t.Errorf("Describe of another process: %+v, %v", d, err)
			}
			if notes, err := other.Audit(ctx, "q"); err != nil || len(notes) > 0 {
				t.Errorf("Audit: %q, %v", notes, err)
			}
			listed := 0
			for query := (broker.ListQuery{Place: broker.PlaceWaiting, Limit: 10}); ; {
				p, err := other.List(ctx, "q", query)
				if err != nil {
					t.Fatalf("List: %v", err)
				}
				listed += len(p.Messages)
				if query.Cursor = p.Next; p.Next == "" {
					break
				}
			}
			if listed != 103 {
				t.Errorf("List shows %d messages, want 103", listed)
			}
			last, err := other.Find(ctx, "q", "heavy-0099")
			if err != nil || last.Message.Key != "heavy" || last.Message.Headers["swj-lane"] != int64(3) {
				t.Errorf("Find: %+v, %v", last.Message, err)
			}
			changed := keyed("heavy-0099", "heavy") // without the header
			changed.Body = []byte("changed")
			if err := other.Update(ctx, "q", broker.Outgoing{Message: changed}); err != nil {
				t.Errorf("Update: %v", err)
			}
			if got, err := other.Find(ctx, "q", "heavy-0099"); err != nil || string(got.Message.Body) != "changed" || got.Message.Headers["swj-lane"] != int64(3) {
				t.Errorf("Find after Update: %+v, %v", got.Message, err)
			}
			if err := other.Delete(ctx, "q", "heavy-0098"); err != nil {
				t.Errorf("Delete: %v", err)
			}
			if n, err := other.Purge(ctx, "q"); err != nil || n != 102 {
				t.Errorf("Purge: %d, %v, want 102", n, err)
			}
			if got := stored(t, ns, "q"); got != [4]int{} {
				t.Errorf("%v messages are left in the lanes after Purge", got)
			}
		})
	}
}

// TestSameMessageInAnotherLane shows that a repeated message is dropped although its key has moved
// to another lane. A newer generation replaces the message.
func TestSameMessageInAnotherLane(t *testing.T) {
	t.Parallel()
	ns := testserver.Namespace()
	b := connect(t, natsbroker.Config{Namespace: ns, Dedupe: 100 * time.Millisecond})
	declareFair(t, b)
	dump(t, b, "heavy", 6) // 4 in lane 0, 2 in lane 1
	fresh := connect(t, natsbroker.Config{Namespace: ns})
	send(t, fresh, keyed("heavy-0005", "heavy"))
	if got, want := stored(t, ns, "q"), [4]int{4, 2}; got != want {
		t.Errorf("at once: the lanes hold %v, want %v", got, want)
	}
	ctx := testwait.Long(t)
	testwait.Until(t, "the server forgets the published ids", func() bool {
		send(t, fresh, keyed("gone", "light"))
		if err := fresh.Delete(ctx, "q", "gone"); err != nil {
			t.Fatalf("Delete: %v", err)
		}
		info, err := bare(t, testserver.RequireNATS(t).URL()).Stream(ctx, "SWJ_"+ns)
		if err != nil {
			t.Fatalf("Stream: %v", err)
		}
		return time.Since(info.CachedInfo().Created) > time.Second
	})
	send(t, fresh, keyed("heavy-0005", "heavy"))
	if got, want := stored(t, ns, "q"), [4]int{4, 2}; got != want {
		t.Errorf("after the window: the lanes hold %v, want %v", got, want)
	}
	next := keyed("heavy-0005", "heavy")
	next.Generation = 1
	send(t, fresh, next)
	if got, want := stored(t, ns, "q"), [4]int{4, 2}; got != want {
		t.Errorf("after the next generation: the lanes hold %v, want %v", got, want)
	}
	if o, err := fresh.Find(ctx, "q", next.ID); err != nil || o.Message.Generation != 1 {
		t.Errorf("Find: %+v, %v, want generation 1", o.Message, err)
	}
	s := subscribe(t, fresh, broker.SubscribeOptions{Prefetch: 10})
	for range 6 {
		ack(t, receive(t, s))
	}
	nothing(t, s, testQuiet)
}

// TestLaneThatWasDeleted shows that a subscription creates the consumer of a lane again.
func TestLaneThatWasDeleted(t *testing.T) {
	t.Parallel()
	ns := testserver.Namespace()
	b := connect(t, natsbroker.Config{Namespace: ns})
	declareFair(t, b)
	s := subscribe(t, b, broker.SubscribeOptions{Prefetch: 2})
	if err := bare(t, testserver.RequireNATS(t).URL()).DeleteConsumer(testwait.Long(t), "SWJ_"+ns, "w_q_0f1"); err != nil {
		t.Fatalf("DeleteConsumer: %v", err)
	}
	dump(t, b, "heavy", 16)
	for range 16 {
		ack(t, receive(t, s))
	}
}

// TestFairQueueIsMadeAgain shows that a fair queue that is lost with its stream is fair again.
func TestFairQueueIsMadeAgain(t *testing.T) {
	t.Parallel()
	ns := testserver.Namespace()
	b := connect(t, natsbroker.Config{Namespace: ns})
	declareFair(t, b, 10, 100)
	ctx := testwait.Long(t)
	if err := bare(t, testserver.RequireNATS(t).URL()).DeleteStream(ctx, "SWJ_"+ns); err != nil {
		t.Fatalf("DeleteStream: %v", err)
	}
	testwait.Until(t, "a publish into the queue that was made again", func() bool {
		err := b.Publish(ctx, "q", keyed("m", "heavy"))
		if err != nil && !errors.Is(err, broker.ErrUnavailable) {
			t.Fatalf("Publish: %v", err)
		}
		return err == nil
	})
	other := connect(t, natsbroker.Config{Namespace: ns})
	if d, err := other.Describe(ctx, "q"); err != nil || !d.Fair || !slices.Equal(d.Levels, []int{10, 100}) {
		t.Errorf("Describe: %+v, %v", d, err)
	}
}

// TestLanes runs the cases of lanestest.
func TestLanes(t *testing.T) {
	ns := testserver.Namespace()
	lanestest.Cases(t, lanestest.Adapter{
		Open: func(t testing.TB, log *slog.Logger) broker.Broker {
			return connect(t, natsbroker.Config{Namespace: ns, Logger: log})
		},
		Stored: func(t testing.TB, queue string) [4]int { return stored(t, ns, queue) },
	})
}

// TestLoads runs the loads of lanestest.
func TestLoads(t *testing.T) {
	ns := testserver.Namespace()
	lanestest.Run(t, func(t testing.TB) broker.Broker { return connect(t, natsbroker.Config{Namespace: ns}) }, testserver.IsThorough())
}

// BenchmarkFair compares fair queues with plain ones.
func BenchmarkFair(b *testing.B) {
	lanestest.Bench(b, func(t testing.TB) broker.Broker { return connect(t, natsbroker.Config{}) })
}

// TestConformanceOfFairQueues runs the suite with fair queues. It leaves out the cases that expect
// an order of all messages, or that a subscription holds no more than its prefetch.
func TestConformanceOfFairQueues(t *testing.T) {
	testserver.Thorough(t)
	t.Parallel()
	others := regexp.MustCompile("/(order|prefetch|fair|watch)/|restart|inspect/(Stats|Purge)$|list/held_messages$")
	brokertest.Run(t, func(c testing.TB) *brokertest.Harness {
		if others.MatchString(c.Name()) {
			c.Skip("not for fair queues, or tried with plain ones")
		}
		h := harness(c, testserver.RequireNATS(t), 0)
		h.Promises.Order = false
		open, bounded, sever, isolate := h.Open, h.Bounded, h.Sever, h.Isolate
		h.Open = func(t testing.TB) broker.Broker { return lanestest.AllFair{Broker: open(t)} }
		h.Bounded = func(t testing.TB, most int, age time.Duration) broker.Broker {
			return lanestest.AllFair{Broker: bounded(t, most, age)}
		}
		h.Sever = func(t testing.TB, b broker.Broker) { sever(t, b.(lanestest.AllFair).Broker) }
		h.Isolate = func(t testing.TB, b broker.Broker) func() { return isolate(t, b.(lanestest.AllFair).Broker) }
		return h
	})
}
