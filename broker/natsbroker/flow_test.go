package natsbroker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/brokertest"
	"github.com/swarmiji/swarmiji/broker/natsbroker"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// TestClosedSubscriptionsLeaveNothingBehind closes subscriptions while the server sends. A message
// to a closed subscription must not stay there until its lease of an hour ends.
func TestClosedSubscriptionsLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	const n = 4000
	b := connect(t, natsbroker.Config{Lease: time.Hour})
	declare(t, b)
	var ms []broker.Outgoing
	for _, id := range ids("m", n) {
		ms = append(ms, broker.Outgoing{Queue: "q", Message: message(id)})
	}
	if err := b.PublishBatch(testwait.Long(t), ms[:n/2]); err != nil {
		t.Fatal(err)
	}
	rest := make(chan error, 1)
	go func() {
		for _, o := range ms[n/2:] {
			if err := b.Publish(testwait.Long(t), "q", o.Message); err != nil {
				rest <- err
				return
			}
		}
		rest <- nil
	}()
	seen := newTally()
	for round := range 40 {
		s := subscribe(t, b, broker.SubscribeOptions{Prefetch: 1 + round%3*20})
		for range round * 3 % 50 {
			d := receive(t, s)
			seen.add(d.Message().ID)
			ack(t, d)
		}
		if round%4 == 0 {
			if _, err := broker.SetPrefetch(testwait.Long(t), s, round%8); err != nil {
				t.Fatalf("SetPrefetch: %v", err)
			}
		}
		if err := s.Close(testwait.Long(t)); err != nil {
			t.Fatalf("Close: %v", err)
		}
	}
	if err := <-rest; err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(testwait.Long(t))
	defer cancel()
	go consume(ctx, subscribe(t, b, broker.SubscribeOptions{Prefetch: 100}), seen)
	testwait.Until(t, "all messages", func() bool { return seen.different() == n })
	if r := seen.repeats(); r != 0 {
		t.Errorf("%d messages were seen again", r)
	}
}

// TestManyShortDelays shows that messages with short delays do not use up the prefetch one after
// the other.
func TestManyShortDelays(t *testing.T) {
	t.Parallel()
	const n = 600
	b := connect(t, natsbroker.Config{})
	declare(t, b)
	s := subscribe(t, b, broker.SubscribeOptions{Prefetch: 2})
	at := make(map[string]time.Time)
	for _, id := range ids("m", n) {
		at[id] = time.Now().Add(230 * time.Millisecond)
		if err := b.PublishAt(testwait.Long(t), "q", message(id), at[id]); err != nil {
			t.Fatal(err)
		}
	}
	for range n { // one after the other they would take longer than the limit
		d := receive(t, s)
		if early := time.Until(at[d.Message().ID]); early > 0 {
			t.Errorf("%s came %v early", d.Message().ID, early)
		}
		if n, exact := d.Deliveries(); n != 1 || !exact {
			t.Errorf("%s is delivery %d, %v", d.Message().ID, n, exact)
		}
		ack(t, d)
	}
	nothing(t, s, 300*time.Millisecond)
}

// TestNoLimitMeansNone holds more messages than the adapter requests at once.
func TestNoLimitMeansNone(t *testing.T) {
	t.Parallel()
	const n = 2500
	b := connect(t, natsbroker.Config{})
	declare(t, b)
	var ms []broker.Outgoing
	for _, id := range ids("m", n) {
		ms = append(ms, broker.Outgoing{Queue: "q", Message: message(id)})
	}
	if err := b.PublishBatch(testwait.Long(t), ms); err != nil {
		t.Fatal(err)
	}
	s := subscribe(t, b, broker.SubscribeOptions{})
	var ds []broker.Delivery
	for range n {
		ds = append(ds, receive(t, s))
	}
	for _, d := range ds {
		ack(t, d)
	}
}

func TestOlderGenerationsGiveWay(t *testing.T) {
	t.Parallel()
	b := connect(t, natsbroker.Config{Dedupe: 100 * time.Millisecond})
	declare(t, b)
	gen := func(n int) *broker.Message {
		m := message("a")
		m.Generation = n
		return m
	}
	expect := func(n int) {
		t.Helper()
		s := subscribe(t, b, broker.SubscribeOptions{Prefetch: 1})
		d := receive(t, s)
		if d.Message().Generation != n {
			t.Errorf("received generation %d, want %d", d.Message().Generation, n)
		}
		ack(t, d)
		nothing(t, s, 100*time.Millisecond)
		if err := s.Close(testwait.Long(t)); err != nil {
			t.Fatal(err)
		}
	}
	// the newest generation stays, whatever is published later
	for _, n := range []int{1, 3, 2, 3, 0} {
		if err := b.Publish(testwait.Long(t), "q", gen(n)); err != nil {
			t.Fatalf("Publish of generation %d: %v", n, err)
		}
		<-time.After(150 * time.Millisecond) // until the server has forgotten the pair
	}
	expect(3)
	later := time.Now().Add(time.Second)
	for _, n := range []int{4, 6, 5} {
		if err := b.PublishAt(testwait.Long(t), "q", gen(n), later); err != nil {
			t.Fatalf("PublishAt of generation %d: %v", n, err)
		}
	}
	expect(6)
}

func TestRetryIntoAnotherQueueIsOneStep(t *testing.T) {
	t.Parallel()
	b := connect(t, natsbroker.Config{})
	if err := b.Declare(testwait.Long(t), broker.Queue{Name: "q", Levels: []int{10, 100}}, broker.Queue{Name: "other"}); err != nil {
		t.Fatal(err)
	}
	publish(t, b, "a", "b", "c")
	s := subscribe(t, b, broker.SubscribeOptions{})
	stats := func(queue string) broker.Stats {
		t.Helper()
		st, err := b.Stats(testwait.Long(t), queue)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	ds := []broker.Delivery{receive(t, s), receive(t, s), receive(t, s)}
	for i, o := range []broker.Outgoing{
		{Queue: "other"}, // another queue
		{Queue: "q"},     // another level
		{Queue: "other", At: time.Now().Add(2 * time.Hour)}, // another queue and later
	} {
		d := ds[i]
		m := *d.Message()
		m.Generation, m.Priority = 1, 5
		o.Message = &m
		if err := b.Retry(testwait.Long(t), d, o); err != nil {
			t.Fatalf("Retry %d: %v", i, err)
		}
		if err := d.Ack(testwait.Long(t)); !errors.Is(err, broker.ErrSettled) {
			t.Errorf("Ack after Retry: %v", err)
		}
	}
	d := receive(t, s)
	if m := d.Message(); m.ID != "b" || m.Generation != 1 {
		t.Errorf("received %s/%d", m.ID, m.Generation)
	}
	ack(t, d)
	testwait.Until(t, "an empty queue", func() bool { return stats("q") == broker.Stats{} })
	if st := stats("other"); st.Ready != 1 || st.Delayed != 1 {
		t.Errorf("Stats of the other queue: %+v", st)
	}
	if f, err := b.Find(testwait.Long(t), "other", "c"); err != nil || f.Message.Generation != 1 || time.Until(f.At) < time.Hour {
		t.Errorf("Find of the delayed successor: %+v, %v", f, err)
	}
}

func TestAckOfWhatWasReplacedChangesNothing(t *testing.T) {
	t.Parallel()
	ns := testserver.Namespace()
	b, other := connect(t, natsbroker.Config{Namespace: ns}), connect(t, natsbroker.Config{Namespace: ns})
	declare(t, b)
	publish(t, b, "a")
	s := subscribe(t, b, broker.SubscribeOptions{Prefetch: 1})
	d := receive(t, s)
	next := message("a")
	next.Generation = 1
	if err := other.Publish(testwait.Long(t), "q", next); err != nil {
		t.Fatal(err)
	}
	again := message("a")
	again.Generation = 2
	if err := b.Retry(testwait.Long(t), d, broker.Outgoing{Queue: "q", Message: again}); !errors.Is(err, broker.ErrLeaseLost) {
		t.Errorf("Retry of what was replaced: %v, want ErrLeaseLost", err)
	}
	if err := d.Ack(testwait.Long(t)); !errors.Is(err, broker.ErrSettled) {
		t.Errorf("Ack afterwards: %v, want ErrSettled", err)
	}
	d = receive(t, s)
	if d.Message().Generation != 1 {
		t.Errorf("received generation %d", d.Message().Generation)
	}
	ack(t, d)
}

func TestTwoRequeueAtOnce(t *testing.T) {
	t.Parallel()
	const n = 50
	ns := testserver.Namespace()
	b, other := connect(t, natsbroker.Config{Namespace: ns}), connect(t, natsbroker.Config{Namespace: ns})
	declare(t, b)
	publish(t, b, ids("m", n)...)
	s := subscribe(t, b, broker.SubscribeOptions{})
	for range n {
		if err := receive(t, s).DeadLetter(testwait.Long(t), broker.Dead{Reason: "why"}); err != nil {
			t.Fatal(err)
		}
	}
	var both sync.WaitGroup
	for _, x := range []*natsbroker.Broker{b, other} {
		both.Go(func() {
			if _, err := brokertest.Requeue(testwait.Long(t), x, "q"); err != nil {
				t.Errorf("Requeue: %v", err)
			}
		})
	}
	both.Wait()
	seen := newTally()
	for range n {
		d := receive(t, s)
		seen.add(fmt.Sprint(d.Message().ID, d.Message().Generation))
		ack(t, d)
	}
	nothing(t, s, 100*time.Millisecond)
	if seen.different() != n {
		t.Errorf("%d different messages came back", seen.different())
	}
}

func TestIDsOfAnyBytes(t *testing.T) {
	t.Parallel()
	b := connect(t, natsbroker.Config{})
	declare(t, b)
	s := subscribe(t, b, broker.SubscribeOptions{})
	for _, id := range []string{"a.b", "*", ">", "a b", "=2E", "grüße", "\x00\r\n", "$JS.API.>", "a=zz", "=", "!\"#%&'()+,/:;<?@[]^`{|}~"} {
		publish(t, b, id)
		d := receive(t, s)
		if d.Message().ID != id {
			t.Errorf("id %q came as %q", id, d.Message().ID)
		}
		ack(t, d)
	}
	for _, id := range []string{"", string(make([]byte, 256))} {
		if err := b.Publish(testwait.Long(t), "q", message(id)); !errors.Is(err, broker.ErrMalformed) {
			t.Errorf("an id of %d bytes: %v, want ErrMalformed", len(id), err)
		}
	}
}

func TestNewReportsEverything(t *testing.T) {
	t.Parallel()
	_, err := natsbroker.New(natsbroker.Config{Namespace: "a.b", Replicas: 9, Storage: "paper", MaxBody: -1, Lease: 1, Dedupe: 1})
	for _, want := range []string{"no URL", "namespace", "replicas", "storage", "MaxBody", "lease", "dedupe"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %q: %v", want, err)
		}
	}
}
