package membroker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFullQueueBlocksUntilThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		b, s := subscribed(t, membroker.Config{MaxQueue: 2}, 0)
		for i := range 2 {
			if err := b.Publish(ctx, "q", &broker.Message{ID: fmt.Sprint(i)}); err != nil {
				t.Fatal(err)
			}
		}
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		start := time.Now()
		if err := b.Publish(short, "q", &broker.Message{ID: "refused"}); !errors.Is(err, broker.ErrBlocked) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Publish to a full queue: got error %v, want ErrBlocked and the reason", err)
		}
		if time.Since(start) != time.Second {
			t.Errorf("Publish to a full queue waited %v, want until its ctx ended", time.Since(start))
		}
		err := b.PublishBatch(short, []broker.Outgoing{{Queue: "q", Message: &broker.Message{ID: "refused"}}})
		if !errors.Is(err, broker.ErrBlocked) {
			t.Errorf("PublishBatch to a full queue: got error %v, want ErrBlocked", err)
		}

		// Three wait; each delivery frees room for one.
		done := make(chan error, 3)
		for i := range 3 {
			go func() { done <- b.Publish(ctx, "q", &broker.Message{ID: fmt.Sprint("waits-", i)}) }()
		}
		for i := range 3 {
			synctest.Wait()
			if len(done) != i {
				t.Fatalf("%d of the waiting publishers returned after %d hand-outs", len(done), i)
			}
			if _, err := s.Receive(ctx); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			if err := <-done; err != nil {
				t.Errorf("Publish that waited for room: %v", err)
			}
		}
		if st, err := b.Stats(ctx, "q"); err != nil || st.Ready != 2 || st.Held != 3 {
			t.Errorf("Stats = %+v, %v", st, err)
		}
	})
}

func TestPurgeAndDeleteMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		b, _ := subscribed(t, membroker.Config{MaxQueue: 2}, 0)
		publish := func(id string) <-chan error {
			done := make(chan error, 1)
			go func() { done <- b.Publish(ctx, "q", &broker.Message{ID: id}) }()
			synctest.Wait()
			return done
		}
		a, bb, c, d, e := publish("a"), publish("b"), publish("c"), publish("d"), publish("e")
		if len(a) != 1 || len(bb) != 1 || len(c)+len(d)+len(e) != 0 {
			t.Fatal("a queue of two did not take two")
		}
		if err := b.Delete(ctx, "q", "a"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(c) != 1 || len(d)+len(e) != 0 {
			t.Error("Delete of one made room for another number of messages")
		}
		if n, err := b.Purge(ctx, "q"); n != 2 || err != nil {
			t.Errorf("Purge = %d, %v; want 2", n, err)
		}
		synctest.Wait()
		if len(d) != 1 || len(e) != 1 {
			t.Error("Purge of two did not make room for two")
		}
	})
}

func TestHigherGenerationReplacesWaitingOne(t *testing.T) {
	ctx := t.Context()
	b, s := subscribed(t, membroker.Config{}, 0)
	pub := func(gen int, at time.Time) {
		t.Helper()
		if err := b.PublishAt(ctx, "q", &broker.Message{ID: "a", Generation: gen}, at); err != nil {
			t.Fatal(err)
		}
	}
	later := time.Now().Add(time.Hour)
	pub(0, time.Time{})
	pub(1, later)
	pub(1, time.Time{}) // the same pair: dropped
	pub(0, time.Time{}) // an earlier attempt of the same task: dropped
	if st, err := b.Stats(ctx, "q"); err != nil || st != (broker.Stats{Delayed: 1}) {
		t.Errorf("Stats = %+v, %v; want one delayed message", st, err)
	}
	pub(2, time.Time{})
	d, err := s.Receive(ctx)
	if err != nil || d.Message().Generation != 2 {
		t.Fatalf("Receive = %+v, %v; want generation 2", d, err)
	}
	pub(2, time.Time{}) // held by the consumer
	pub(3, time.Time{}) // the successor of the held message
	if st, err := b.Stats(ctx, "q"); err != nil || st.Ready != 1 || st.Held != 1 {
		t.Errorf("Stats = %+v, %v; want the held one and its successor", st, err)
	}
	if err := d.Ack(ctx); err != nil {
		t.Fatal(err)
	}
	pub(2, time.Time{})
	if st, err := b.Stats(ctx, "q"); err != nil || st.Ready != 1 || st.Held != 0 {
		t.Errorf("Stats = %+v, %v; want the successor alone", st, err)
	}
}

func TestMessagesWithoutIDAreNeverTheSame(t *testing.T) {
	ctx := t.Context()
	b, s := subscribed(t, membroker.Config{}, 0)
	for range 2 {
		if err := b.Publish(ctx, "q", &broker.Message{}); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if d, err := s.Receive(ctx); err != nil || d.Ack(ctx) != nil {
			t.Fatal("a message without an ID was taken for another")
		}
	}
}

func TestGivenBackKeepsItsPlace(t *testing.T) {
	ctx := t.Context()
	server := membroker.NewServer(membroker.Config{})
	b := server.Connect()
	defer b.Close(ctx)
	s, err := b.Subscribe(ctx, "q", broker.SubscribeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if err := b.Publish(ctx, "q", &broker.Message{ID: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	var held []broker.Delivery
	for range 60 {
		d, err := s.Receive(ctx)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, d)
	}
	for _, i := range []int{7, 3, 30, 5} {
		if err := held[i].Release(ctx, 0); err != nil {
			t.Fatal(err)
		}
	}
	server.Disconnect(b)
	for i := range 100 {
		d, err := s.Receive(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if d.Message().ID != fmt.Sprint(i) {
			t.Fatalf("message %d is %s: what was given back lost its place", i, d.Message().ID)
		}
	}
}

func TestOneLostChannelForAConnection(t *testing.T) {
	ctx := t.Context()
	server := membroker.NewServer(membroker.Config{})
	b := server.Connect()
	defer b.Close(ctx)
	s, err := b.Subscribe(ctx, "q", broker.SubscribeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	receive := func() broker.Delivery {
		d, err := s.Receive(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	for _, id := range []string{"a", "b"} {
		if err := b.Publish(ctx, "q", &broker.Message{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	d1, d2 := receive(), receive()
	if d1.Lost() != d2.Lost() {
		t.Error("two deliveries of one connection have two channels")
	}
	server.Disconnect(b)
	if d3 := receive(); d3.Lost() == d1.Lost() {
		t.Error("a delivery after the loss has the channel of the one before")
	}
}

func TestDeclareLevelsAQueueThatSubscribeMade(t *testing.T) {
	ctx := t.Context()
	var log strings.Builder
	b, s := subscribed(t, membroker.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, 0)
	for _, p := range []int{100, 5, 50} {
		if err := b.Publish(ctx, "q", &broker.Message{ID: fmt.Sprint(p), Priority: p}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Declare(ctx, broker.Queue{Name: "q", Levels: []int{10, 60}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"5", "100", "50"} { // 100 is above every bound: the last level
		d, err := s.Receive(ctx)
		if err != nil || d.Message().ID != want {
			t.Fatalf("received %v, %v; want %s", d.Message().ID, err, want)
		}
	}
	if log.Len() > 0 {
		t.Errorf("the first Declare said: %s", &log)
	}
	for range 3 {
		if err := b.Declare(ctx, broker.Queue{Name: "q", Levels: []int{20}}); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(log.String(), "queue=q"); n != 1 {
		t.Errorf("other levels were told %d times, want once:\n%s", n, &log)
	}
	if err := b.Declare(ctx, broker.Queue{Name: "new", Levels: []int{20, 10}}); !errors.Is(err, broker.ErrMalformed) {
		t.Errorf("Declare with descending levels: got error %v, want ErrMalformed", err)
	}
}

// unwrapper is a delivery in a wrapper, as of middleware.
type unwrapper struct{ broker.Delivery }

func (u unwrapper) Unwrap() any { return u.Delivery }

func TestRetryOfAWrappedAndOfAForeignDelivery(t *testing.T) {
	ctx := t.Context()
	b, s := subscribed(t, membroker.Config{}, 0)
	other, _ := subscribed(t, membroker.Config{}, 0)
	if err := b.Publish(ctx, "q", &broker.Message{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	d, err := s.Receive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	next := broker.Outgoing{Queue: "q", Message: &broker.Message{ID: "a", Generation: 1}}
	if err := other.Retry(ctx, d, next); !errors.Is(err, broker.ErrUnsupported) {
		t.Errorf("Retry of another server's delivery: got error %v, want ErrUnsupported", err)
	}
	if err := b.Retry(ctx, unwrapper{d}, next); err != nil {
		t.Errorf("Retry of a wrapped delivery: %v", err)
	}
}

func TestPathOfAMessageAllocatesOnce(t *testing.T) {
	ctx := t.Context()
	b, s := subscribed(t, membroker.Config{}, 8)
	m := &broker.Message{ID: "a"}
	allocs := testing.AllocsPerRun(2000, func() {
		if err := b.Publish(ctx, "q", m); err != nil {
			t.Fatal(err)
		}
		d, err := s.Receive(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Ack(ctx); err != nil {
			t.Fatal(err)
		}
	})
	if allocs > 1 {
		t.Errorf("Publish, Receive and Ack allocate %v times, want once", allocs)
	}
}

func TestHolesOfARingAreFilled(t *testing.T) {
	ctx := t.Context()
	b, s := subscribed(t, membroker.Config{}, 0)
	keep := func(id string) {
		t.Helper()
		if err := b.Publish(ctx, "q", &broker.Message{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	keep("first")
	for i := range 5000 { // many times the number of slots, after a message that stays
		id := fmt.Sprint(i)
		keep(id)
		if i%500 == 0 {
			continue
		}
		if err := b.Delete(ctx, "q", id); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"first"}
	for i := 0; i < 5000; i += 500 {
		want = append(want, fmt.Sprint(i))
	}
	for _, id := range want {
		d, err := s.Receive(ctx)
		if err != nil || d.Message().ID != id {
			t.Fatalf("received %v, %v; want %s", d.Message().ID, err, id)
		}
	}
	if st, err := b.Stats(ctx, "q"); err != nil || st.Ready != 0 {
		t.Errorf("Stats = %+v, %v; want an empty queue", st, err)
	}
}
