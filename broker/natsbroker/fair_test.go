package natsbroker_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
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

// stored returns the numbers of stored messages in the lanes of level 0, by the server.
func stored(t testing.TB, namespace string) (n [4]int) {
	t.Helper()
	ctx := testwait.Long(t)
	s, err := bare(t, testserver.RequireNATS(t).URL()).Stream(ctx, "SWJ_"+namespace)
	if err != nil {
		t.Fatalf("Stream: %v", err)
	}
	for lane, token := range []string{"0", "0f1", "0f2", "0f3"} {
		info, err := s.Info(ctx, jetstream.WithSubjectFilter("swj."+namespace+".T.q."+token+".*"))
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
			if got, want := stored(t, ns), [4]int{4 + 3, 12, 48, 36}; got != want {
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
			if got := stored(t, ns); got != [4]int{} {
				t.Errorf("%v messages are left in the lanes after Purge", got)
			}
		})
	}
}

// TestLightKeyPassesABacklog shows the bound: once a light task is held, it starts after the turns
// of the other lanes.
func TestLightKeyPassesABacklog(t *testing.T) {
	t.Parallel()
	ns := testserver.Namespace()
	b := connect(t, natsbroker.Config{Namespace: ns})
	declareFair(t, b)
	const backlog, lights, others = 400, 10, 4 + 2 + 1 // others: the turns of the lanes 1 to 3
	dump(t, b, "heavy", backlog)
	s := subscribe(t, connect(t, natsbroker.Config{Namespace: ns}), broker.SubscribeOptions{Prefetch: 8})
	starts := 0
	start := func() (id string) {
		d := receive(t, s)
		ack(t, d)
		starts++
		return d.Message().ID
	}
	for light := range lights {
		for range 20 {
			start()
		}
		id := fmt.Sprintf("light-%d", light)
		send(t, b, keyed(id, id))
		testwait.Until(t, "the light task among the held ones", func() bool {
			return slices.ContainsFunc(s.(broker.Buffer).Buffered(), func(m *broker.Message) bool { return m.ID == id })
		})
		for before := 0; start() != id; before++ {
			if before == others {
				t.Fatalf("%s has not started after the turns of the other lanes", id)
			}
		}
	}
	for starts < backlog+lights {
		start()
	}
}

// TestLaneIsKept shows that each copy of a message stays in its lane, and keeps key and weight.
func TestLaneIsKept(t *testing.T) {
	t.Parallel()
	ns := testserver.Namespace()
	b := connect(t, natsbroker.Config{Namespace: ns})
	declareFair(t, b)
	dump(t, b, "heavy", 20)
	ctx := testwait.Long(t)
	if n, err := b.Purge(ctx, "q"); err != nil || n != 20 {
		t.Fatalf("Purge: %d, %v", n, err)
	}
	m := keyed("task", "heavy")
	m.Weight = 7
	if err := b.PublishAt(ctx, "q", m, time.Now().Add(400*time.Millisecond)); err != nil {
		t.Fatalf("PublishAt: %v", err)
	}
	other := connect(t, natsbroker.Config{Namespace: ns}) // it has counted nothing
	s := subscribe(t, other, broker.SubscribeOptions{Prefetch: 2})
	check := func(m *broker.Message, what string) {
		t.Helper()
		if m.Key != "heavy" || m.Weight != 7 || m.Headers["swj-lane"] != int64(2) {
			t.Errorf("%s: key %q, weight %d, headers %v, want lane 2", what, m.Key, m.Weight, m.Headers)
		}
	}
	d := receive(t, s)
	check(d.Message(), "after a delay")
	if err := d.Release(ctx, 0); err != nil {
		t.Fatalf("Release: %v", err)
	}
	d = receive(t, s)
	check(d.Message(), "after a release")
	for _, delay := range []time.Duration{time.Millisecond, 400 * time.Millisecond} {
		if err := d.Release(ctx, delay); err != nil {
			t.Fatalf("Release: %v", err)
		}
		d = receive(t, s)
		check(d.Message(), fmt.Sprint("after a release for ", delay))
	}
	next := *d.Message() // a consumer copies the headers to the next generation
	next.Generation++
	if err := broker.Replace(ctx, other, d, broker.Outgoing{Queue: "q", Message: &next}); err != nil {
		t.Fatalf("Replace: %v", err)
	}
	d = receive(t, s)
	check(d.Message(), "after a retry")
	if err := d.DeadLetter(ctx, broker.Dead{Reason: "test"}); err != nil {
		t.Fatalf("DeadLetter: %v", err)
	}
	var dead *broker.Message
	if err := other.ScanDead(ctx, "q", func(l *broker.Dead) broker.DeadAction {
		dead = l.Message
		return broker.DeadRemove
	}); err != nil || dead == nil {
		t.Fatalf("ScanDead: %v, %v", dead, err)
	}
	check(dead, "as a dead letter")
	if err := s.Close(ctx); err != nil {
		t.Fatalf("Close: %v", err)
	}
	next = *dead // as a requeue does
	next.Generation++
	send(t, other, &next)
	testwait.Until(t, "the message in lane 2", func() bool { return stored(t, ns) == [4]int{0, 0, 1, 0} })
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
	if got, want := stored(t, ns), [4]int{4, 2}; got != want {
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
	if got, want := stored(t, ns), [4]int{4, 2}; got != want {
		t.Errorf("after the window: the lanes hold %v, want %v", got, want)
	}
	next := keyed("heavy-0005", "heavy")
	next.Generation = 1
	send(t, fresh, next)
	if got, want := stored(t, ns), [4]int{4, 2}; got != want {
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

// TestFairnessOfTheFirstDeclarationIsValid shows that a queue that exists is used as it is, and
// that the difference is logged once.
func TestFairnessOfTheFirstDeclarationIsValid(t *testing.T) {
	t.Parallel()
	levels := []int{10, 100}
	for name, tt := range map[string]struct {
		first, second broker.Queue
		logged        int
	}{
		"plain":                       {broker.Queue{}, broker.Queue{Fair: true}, 1},
		"with levels":                 {broker.Queue{Levels: levels}, broker.Queue{Levels: levels, Fair: true}, 1},
		"fair":                        {broker.Queue{Fair: true}, broker.Queue{Levels: levels}, 1},
		"fair with levels":            {broker.Queue{Levels: levels, Fair: true}, broker.Queue{Levels: levels}, 1},
		"fair, and then without Fair": {broker.Queue{Fair: true}, broker.Queue{}, 0},
		"fair twice":                  {broker.Queue{Fair: true}, broker.Queue{Fair: true}, 0},
		"fair twice, one level":       {broker.Queue{Fair: true}, broker.Queue{Fair: true, Levels: []int{50}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := testwait.Long(t)
			var log logBook
			ns := testserver.Namespace()
			first, second := connect(t, natsbroker.Config{Namespace: ns}), connect(t, natsbroker.Config{Namespace: ns, Logger: log.logger()})
			tt.first.Name, tt.second.Name = "q", "q"
			if err := first.Declare(ctx, tt.first); err != nil {
				t.Fatalf("Declare: %v", err)
			}
			for range 2 {
				if err := second.Declare(ctx, tt.second); err != nil {
					t.Fatalf("the second Declare: %v", err)
				}
			}
			if n := strings.Count(log.String(), "another fairness"); n != tt.logged {
				t.Errorf("the difference was logged %d times, want %d: %s", n, tt.logged, log.String())
			}
			if d, err := second.Describe(ctx, "q"); err != nil || d.Fair != tt.first.Fair || !slices.Equal(d.Levels, tt.first.Levels) {
				t.Errorf("Describe: %+v, %v, want %+v", d, err, tt.first)
			}
			dump(t, second, "heavy", 20)
			s := subscribe(t, first, broker.SubscribeOptions{Prefetch: 4})
			for range 20 {
				ack(t, receive(t, s))
			}
		})
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

// TestStopReturnsTheMessagesOfAllLanes shows that a closed subscription gives back the messages
// that it holds of each lane.
func TestStopReturnsTheMessagesOfAllLanes(t *testing.T) {
	t.Parallel()
	ns := testserver.Namespace()
	b := connect(t, natsbroker.Config{Namespace: ns})
	declareFair(t, b)
	dump(t, b, "heavy", 100)
	s := subscribe(t, b, broker.SubscribeOptions{Prefetch: 8, Lease: time.Hour})
	testwait.Until(t, "held messages of each lane", func() bool { return len(s.(broker.Buffer).Buffered()) == 4+8+8+8 })
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Fatalf("Close: %v", err)
	}
	again := subscribe(t, b, broker.SubscribeOptions{Prefetch: 8, Lease: time.Hour})
	for range 100 { // the lease would be too long to wait for
		ack(t, receive(t, again))
	}
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

// allFair is a Broker that declares each queue as a fair one.
type allFair struct{ *natsbroker.Broker }

func (b allFair) Declare(ctx context.Context, qs ...broker.Queue) error {
	for i := range qs {
		qs[i].Fair = true
	}
	return b.Broker.Declare(ctx, qs...)
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
		h.Open = func(t testing.TB) broker.Broker { return allFair{open(t).(*natsbroker.Broker)} }
		h.Bounded = func(t testing.TB, most int, age time.Duration) broker.Broker {
			return allFair{bounded(t, most, age).(*natsbroker.Broker)}
		}
		h.Sever = func(t testing.TB, b broker.Broker) { sever(t, b.(allFair).Broker) }
		h.Isolate = func(t testing.TB, b broker.Broker) func() { return isolate(t, b.(allFair).Broker) }
		return h
	})
}
