package brokertest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/suite"
)

// world is the environment of a case: a namespace, the Brokers opened in it, and bounded waits.
type world struct {
	*suite.World[broker.Broker]
	h       *Harness
	mu      sync.Mutex
	counter int
}

// newWorld returns the environment of a case with the harness h. It opens nothing.
func newWorld(t testing.TB, h *Harness) *world {
	w := &world{h: h}
	w.World = suite.NewWorld(t, suite.Config[broker.Broker]{
		Port: "Broker", Open: h.Open, Secret: h.Secret, Slack: h.Slack, Quiet: h.Quiet, Patience: h.Patience,
	})
	return w
}

// queue creates a queue with Declare, or with Subscribe if b is not a Declarer. It returns the full
// name: the prefix of the harness and name. An error fails the case at once.
func (w *world) queue(b broker.Broker, name string, levels ...int) string {
	w.Helper()
	q := w.h.Prefix + name
	ctx, cancel := w.Ctx()
	defer cancel()
	w.Must(broker.Declare(ctx, b, broker.Queue{Name: q, Levels: levels}), "Declare(%q)", q)
	if _, ok := capability.As[broker.Declarer](b); !ok {
		s, err := b.Subscribe(ctx, q, broker.SubscribeOptions{Prefetch: 1})
		w.Must(err, "Subscribe(%q)", q)
		w.Must(s.Close(ctx), "Subscription.Close")
	}
	return q
}

// publish publishes the messages one after the other. An error fails the case at once.
func (w *world) publish(b broker.Broker, queue string, ms ...*broker.Message) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	for _, m := range ms {
		w.Must(b.Publish(ctx, queue, m), "Publish(%q, %q)", queue, m.ID)
	}
}

// subscribe opens a subscription with the given prefetch and the lease Harness.Leases. An error
// fails the case at once.
func (w *world) subscribe(b broker.Broker, queue string, prefetch int) broker.Subscription {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	s, err := b.Subscribe(ctx, queue, broker.SubscribeOptions{Prefetch: prefetch, Lease: w.h.Leases})
	w.Must(err, "Subscribe(%q)", queue)
	return s
}

// receive waits for the next delivery and returns it. An error fails the case at once.
func (w *world) receive(s broker.Subscription) broker.Delivery {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	d, err := s.Receive(ctx)
	w.Must(err, "Receive")
	return d
}

// receiveN waits for n deliveries and returns them. An error fails the case at once.
func (w *world) receiveN(s broker.Subscription, n int) []broker.Delivery {
	w.Helper()
	ds := make([]broker.Delivery, n)
	for i := range ds {
		ds[i] = w.receive(s)
	}
	return ds
}

// nothing expects that no delivery arrives within Quiet. A delivery fails the case at once.
func (w *world) nothing(s broker.Subscription, format string, args ...any) {
	w.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), w.Quiet)
	defer cancel()
	d, err := s.Receive(ctx)
	if err == nil {
		w.Fatalf("%s: received %s", fmt.Sprintf(format, args...), name(d.Message()))
	}
	w.WantIs(err, context.DeadlineExceeded, "Receive of an empty queue")
}

// ack acknowledges each delivery. An error fails the case at once.
func (w *world) ack(ds ...broker.Delivery) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	for _, d := range ds {
		w.Must(d.Ack(ctx), "Ack(%s)", name(d.Message()))
	}
}

// ackAfterCut receives from s and acknowledges, until one acknowledgement succeeds. A delivery that
// s received before Harness.Sever cut its connection may fail first, see transient. Any other error
// fails the case at once.
func (w *world) ackAfterCut(s broker.Subscription) {
	w.Helper()
	for {
		d := w.receive(s)
		ctx, cancel := w.Ctx()
		err := d.Ack(ctx)
		cancel()
		if w.h.Sever == nil || !transient(err) {
			w.Must(err, "Ack(%s)", name(d.Message()))
			return
		}
	}
}

// closeSub closes a subscription. An error fails the case at once.
func (w *world) closeSub(s broker.Subscription) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	w.Must(s.Close(ctx), "Subscription.Close")
}

// closeBroker closes a Broker. An error fails the case at once.
func (w *world) closeBroker(b broker.Broker) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	w.Must(b.Close(ctx), "Broker.Close")
}

// msg returns a message with the given id, Generation 0, priority 100, a short text as its body,
// and no headers.
func msg(id string) *broker.Message {
	return &broker.Message{ID: id, ContentType: "text/plain", Body: []byte("body of " + id), Priority: 100}
}

// msgs returns n messages of msg with the ids prefix-0 to prefix-(n-1).
func msgs(prefix string, n int) []*broker.Message {
	ms := make([]*broker.Message, n)
	for i := range ms {
		ms[i] = msg(fmt.Sprintf("%s-%d", prefix, i))
	}
	return ms
}

// nothingOn expects that no value arrives on ch within Quiet. A value fails the case at once.
func (w *world) nothingOn(ch <-chan string, what string) {
	w.Helper()
	t := time.NewTimer(w.Quiet)
	defer t.Stop()
	select {
	case v := <-ch:
		w.Fatalf("%s: %s", what, v)
	case <-t.C:
	}
}

// async runs a call in a goroutine, because it may wait, and returns the channel of its error. The
// ctx of the call ends after the suite's patience.
func (w *world) async(call func(ctx context.Context) error) <-chan error {
	done := make(chan error, 1)
	go func() {
		ctx, cancel := w.Ctx()
		defer cancel()
		done <- w.Clean(call(ctx))
	}()
	return done
}

// drain receives and acknowledges until every message of want was seen, and then expects no other
// message. want holds names, see name. It returns how often each message was seen.
func (w *world) drain(s broker.Subscription, want ...string) map[string]int {
	w.Helper()
	seen := w.collect(s, want)
	w.nothing(s, "after all %d messages", len(want))
	return seen
}

// drainAll does the same as drain after a fault: a message may be seen more than once, but every
// message must have been published.
func (w *world) drainAll(s broker.Subscription, want ...string) {
	w.Helper()
	w.drainAllAnd(s, nil, want...)
}

// drainAllAnd does the same as drainAll, but the messages of maybe may be seen too.
func (w *world) drainAllAnd(s broker.Subscription, maybe []string, want ...string) {
	w.Helper()
	seen := w.collect(s, want)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), w.Quiet)
		d, err := s.Receive(ctx)
		cancel()
		if err != nil {
			w.WantIs(err, context.DeadlineExceeded, "Receive of an empty queue")
			break
		}
		seen[name(d.Message())]++
		w.ack(d)
	}
	for _, n := range slices.Concat(want, maybe) {
		delete(seen, n)
	}
	for n := range seen {
		w.Errorf("%s was seen and never published", n)
	}
}

// collect receives and acknowledges until every message of want was seen, and returns how often
// each message was seen. An error fails the case at once.
func (w *world) collect(s broker.Subscription, want []string) map[string]int {
	w.Helper()
	seen := make(map[string]int)
	left := make(map[string]bool, len(want))
	for _, n := range want {
		left[n] = true
	}
	for len(left) > 0 {
		ctx, cancel := w.Ctx()
		d, err := s.Receive(ctx)
		cancel()
		if w.Clean(err) != nil {
			w.Fatalf("Receive: %v; %d messages are missing, among them %s", err, len(left), slices.Sorted(maps.Keys(left))[0])
		}
		n := name(d.Message())
		seen[n]++
		delete(left, n)
		w.ack(d)
	}
	return seen
}

// names returns the name of each message.
func names(ms ...*broker.Message) []string {
	ns := make([]string, len(ms))
	for i, m := range ms {
		ns[i] = name(m)
	}
	return ns
}

// name returns the name of a message in the suite: "ID/Generation".
func name(m *broker.Message) string { return fmt.Sprintf("%s/%d", m.ID, m.Generation) }

// wantFirst expects that Deliveries of d is 1, and exact if the broker counts. what names the
// delivery in a failure.
func (w *world) wantFirst(d broker.Delivery, what string) {
	w.Helper()
	if n, exact := d.Deliveries(); n != 1 || exact == w.h.Promises.Uncounted {
		w.Errorf("Deliveries() of %s = %d, %v; want 1, %t", what, n, exact, !w.h.Promises.Uncounted)
	}
}
