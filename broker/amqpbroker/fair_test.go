package amqpbroker_test

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/amqpbroker"
	"github.com/swarmiji/swarmiji/broker/brokertest"
	"github.com/swarmiji/swarmiji/internal/lanes/lanestest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// fairQueue declares a fair queue with the given levels and returns its name.
func fairQueue(t testing.TB, b *amqpbroker.Broker, levels ...int) string {
	t.Helper()
	q := testserver.Namespace()
	if err := b.Declare(testwait.Long(t), broker.Queue{Name: q, Levels: levels, Fair: true}); err != nil {
		t.Fatalf("Declare: %v", err)
	}
	return q
}

// keyed returns a message with a fairness key.
func keyed(id, key string) *broker.Message {
	m := message(id)
	m.Key = key
	return m
}

// dump publishes n messages of one key and the default priority.
func dump(t testing.TB, b *amqpbroker.Broker, queue, key string, n int) {
	t.Helper()
	var ms []broker.Outgoing
	for i := range n {
		ms = append(ms, broker.Outgoing{Queue: queue, Message: keyed(fmt.Sprintf("%s-%04d", key, i), key)})
	}
	if err := b.PublishBatch(testwait.Long(t), ms); err != nil {
		t.Fatalf("PublishBatch: %v", err)
	}
}

// ready returns the numbers of ready messages in the lanes of a level, by the server. level is ""
// or the end of the AMQP queue's name, such as ":p10".
func ready(t testing.TB, queue, level string) (n [4]int) {
	t.Helper()
	for lane := range n {
		name := "swj.default.q." + queue + level
		if lane > 0 {
			name += fmt.Sprintf(":f%d", lane)
		}
		raw(t, testserver.RequireRabbit(t).URL(), func(ch *amqp.Channel) error {
			q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
			n[lane] = q.Messages
			return err
		})
	}
	return n
}

// TestBacklogOfAKeyIsInLanes shows where the messages of a fair queue are, and that the calls for a
// whole queue include its lanes.
func TestBacklogOfAKeyIsInLanes(t *testing.T) {
	t.Parallel()
	b := connect(t, amqpbroker.Config{})
	q := fairQueue(t, b, 10, 100)
	dump(t, b, q, "heavy", 100)
	dump(t, b, q, "light", 3)
	urgent := keyed("urgent", "heavy")
	urgent.Priority = 5
	publish(t, b, q, urgent)
	want, wantUrgent := [4]int{4 + 3, 12, 48, 36}, [4]int{1}
	testwait.Until(t, "the messages in their lanes", func() bool { return ready(t, q, "") == want && ready(t, q, ":p10") == wantUrgent })
	ctx := testwait.Long(t)
	other := connect(t, amqpbroker.Config{}) // it reads the levels from the server
	if st, err := other.Stats(ctx, q); err != nil || st.Ready != 104 {
		t.Errorf("Stats of another process: %+v, %v, want 104 ready", st, err)
	}
	if d, err := other.Describe(ctx, q); err != nil || !d.Fair || !slices.Equal(d.Levels, []int{10, 100}) || d.Name != q {
		t.Errorf("Describe of another process: %+v, %v", d, err)
	}
	if notes, err := other.Audit(ctx, q); err != nil || len(notes) > 0 {
		t.Errorf("Audit: %q, %v", notes, err)
	}
	if n, err := other.Purge(ctx, q); err != nil || n != 104 {
		t.Errorf("Purge: %d, %v, want 104", n, err)
	}
	if got := ready(t, q, ""); got != [4]int{} {
		t.Errorf("%v messages are left in the lanes after Purge", got)
	}
}

// TestPublisherThatHasNotDeclared shows that a process which only publishes learns the levels and
// the fairness of a queue. A plain queue stays plain.
func TestPublisherThatHasNotDeclared(t *testing.T) {
	t.Parallel()
	b, other := connect(t, amqpbroker.Config{}), connect(t, amqpbroker.Config{})
	plain := declared(t, b)
	dump(t, other, plain, "heavy", 20)
	q := fairQueue(t, b, 10, 100)
	dump(t, other, q, "heavy", 100)
	urgent := keyed("urgent", "light")
	urgent.Priority = 5
	publish(t, other, q, urgent)
	testwait.Until(t, "the messages in their lanes", func() bool {
		return ready(t, q, "") == [4]int{4, 12, 48, 36} && ready(t, q, ":p10") == [4]int{1}
	})
	s := subscribe(t, b, plain, 4)
	for range 20 {
		if d := receive(t, s); d.Message().Headers != nil {
			t.Errorf("a message of a plain queue has the headers %v", d.Message().Headers)
		} else {
			ack(t, d)
		}
	}
}

// TestLaneThatWasDeleted shows that a subscription declares a deleted lane again.
func TestLaneThatWasDeleted(t *testing.T) {
	t.Parallel()
	b := connect(t, amqpbroker.Config{})
	q := fairQueue(t, b)
	s := subscribe(t, b, q, 2)
	raw(t, testserver.RequireRabbit(t).URL(), func(ch *amqp.Channel) error {
		_, err := ch.QueueDelete("swj.default.q."+q+":f1", false, false, false)
		return err
	})
	for i := range 16 {
		m := keyed(fmt.Sprint(i), "heavy")
		testwait.Until(t, "a publish into the lane", func() bool {
			err := b.Publish(testwait.Long(t), q, m)
			// it is refused while the server creates the quorum queue
			if err != nil && !errors.Is(err, broker.ErrNoQueue) && !errors.Is(err, broker.ErrBlocked) {
				t.Fatalf("Publish: %v", err)
			}
			return err == nil
		})
	}
	for range 16 {
		ack(t, receive(t, s))
	}
}

// TestPlainQueueHasNoLanes shows that a plain queue has neither the stream nor the queues nor the
// header of a fair one.
func TestPlainQueueHasNoLanes(t *testing.T) {
	t.Parallel()
	b := connect(t, amqpbroker.Config{})
	q := declared(t, b)
	dump(t, b, q, "heavy", 20)
	for _, name := range []string{"swj.default.levels." + q, "swj.default.q." + q + ":f1"} {
		if exists(t, name) {
			t.Errorf("%s exists", name)
		}
	}
	s := subscribe(t, b, q, 4)
	for i := range 20 {
		d := receive(t, s)
		if m := d.Message(); m.ID != fmt.Sprintf("heavy-%04d", i) || m.Headers != nil {
			t.Errorf("message %d is %s with the headers %v", i, m.ID, m.Headers)
		}
		ack(t, d)
	}
}

// exists reports whether the server has an AMQP queue.
func exists(t testing.TB, name string) bool {
	t.Helper()
	conn, err := amqp.Dial(testserver.RequireRabbit(t).URL())
	if err != nil {
		t.Fatalf("Dial: %v", err)
	}
	defer func() { _ = conn.Close() }()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatalf("Channel: %v", err)
	}
	_, err = ch.QueueDeclarePassive(name, true, false, false, false, nil)
	return err == nil
}

// TestLanes runs the cases of lanestest.
func TestLanes(t *testing.T) {
	lanestest.Cases(t, lanestest.Adapter{
		Open:   func(t testing.TB, log *slog.Logger) broker.Broker { return connect(t, amqpbroker.Config{Logger: log}) },
		Stored: func(t testing.TB, queue string) [4]int { return ready(t, queue, "") },
	})
}

// TestLoads runs the loads of lanestest.
func TestLoads(t *testing.T) {
	lanestest.Run(t, func(t testing.TB) broker.Broker { return connect(t, amqpbroker.Config{}) }, testserver.IsThorough())
}

// BenchmarkFair compares fair queues with plain ones.
func BenchmarkFair(b *testing.B) {
	lanestest.Bench(b, func(t testing.TB) broker.Broker { return connect(t, amqpbroker.Config{}) })
}

// TestConformanceOfFairQueues runs the suite with fair queues. It leaves out the cases that expect
// an order of all messages, or that a subscription holds no more than its prefetch.
func TestConformanceOfFairQueues(t *testing.T) {
	testserver.Thorough(t)
	t.Parallel()
	ns := namespace(t, amqpbroker.Quorum)
	others := regexp.MustCompile("/(order|prefetch|fair|watch|witness)/|restart|inspect/(Stats|Purge)$|list/held_messages$")
	brokertest.Run(t, func(c testing.TB) *brokertest.Harness {
		if others.MatchString(c.Name()) {
			c.Skip("not for fair queues, or tried with plain ones")
		}
		h := harness(c, testserver.RequireRabbit(t), ns, amqpbroker.Quorum)
		h.Promises.Order, h.Restart = false, nil
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
