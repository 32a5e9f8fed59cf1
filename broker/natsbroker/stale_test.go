package natsbroker_test

import (
	"errors"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/natsbroker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/connect/natsconnect"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// TestSettlementsOfALostStreamTouchNoOther loses the stream while a consumer is cut off. The
// consumer's settlements belong to the old stream. The new stream counts from 1 again, so other
// messages have the same sequences. They must not be settled.
func TestSettlementsOfALostStreamTouchNoOther(t *testing.T) {
	t.Parallel()
	srv := testserver.RequireNATS(t)
	r := testserver.NewRelay(t, srv.Addr())
	ns := testserver.Namespace()
	b := connect(t, natsbroker.Config{Connect: natsconnect.Config{URLs: []string{r.URL(srv.URL())}}, Namespace: ns})
	declare(t, b)
	s := subscribe(t, b, broker.SubscribeOptions{Prefetch: 8})
	publish(t, b, ids("old", 8)...)
	for range 4 {
		ack(t, receive(t, s))
	}
	held, late, released := receive(t, s), receive(t, s), receive(t, s)
	receive(t, s)
	testwait.Until(t, "the acknowledgements", func() bool {
		st, err := b.Stats(testwait.Long(t), "q")
		return err == nil && st.Held == 4
	})
	r.SetDown(true)
	testwait.Until(t, "the loss", func() bool {
		return late.Ack(testwait.Long(t)) == nil || errors.Is(late.Ack(testwait.Long(t)), broker.ErrSettled)
	})
	if err := bare(t, srv.URL()).DeleteStream(testwait.Long(t), "SWJ_"+ns); err != nil {
		t.Fatal(err)
	}
	other := connect(t, natsbroker.Config{Namespace: ns})
	declare(t, other)
	const n = 12
	so := subscribe(t, other, broker.SubscribeOptions{Prefetch: n})
	publish(t, other, ids("new", n)...)
	for range n {
		receive(t, so) // the other consumer holds it
	}
	r.SetDown(false)
	publishAll(t, b, []string{"probe"})
	d := receive(t, s)
	if id := d.Message().ID; id != "probe" {
		t.Errorf("received %s, which another consumer holds", id)
	}
	if err := held.Ack(testwait.Long(t)); !errors.Is(err, broker.ErrLeaseLost) {
		t.Errorf("Ack of what lay in the old stream: %v, want ErrLeaseLost", err)
	}
	if err := released.Release(testwait.Long(t), 0); !errors.Is(err, broker.ErrLeaseLost) {
		t.Errorf("Release of what lay in the old stream: %v, want ErrLeaseLost", err)
	}
	select {
	case <-held.Lost():
	case <-time.After(2 * time.Minute):
		t.Error("Lost is not closed")
	}
	if sync, ok := capability.As[broker.SyncAcker](d); !ok || sync.AckSync(testwait.Long(t)) != nil {
		t.Error("AckSync failed")
	}
	if st, err := other.Stats(testwait.Long(t), "q"); err != nil || st != (broker.Stats{Held: n}) {
		t.Errorf("the new stream has %+v, %v, want %d held: the old acknowledgements hit others", st, err, n)
	}
}

// TestPurgeGoesOnBehindANotice purges a queue that contains the notice of a moved message.
func TestPurgeGoesOnBehindANotice(t *testing.T) {
	t.Parallel()
	b := connect(t, natsbroker.Config{})
	declare(t, b)
	if err := b.Declare(testwait.Long(t), broker.Queue{Name: "other"}); err != nil {
		t.Fatal(err)
	}
	s := subscribe(t, b, broker.SubscribeOptions{Prefetch: 1})
	publish(t, b, "moved")
	d := receive(t, s)
	if err := s.Close(testwait.Long(t)); err != nil {
		t.Fatal(err)
	}
	var ms []broker.Outgoing
	for _, id := range ids("m", 400) {
		ms = append(ms, broker.Outgoing{Queue: "q", Message: message(id)})
	}
	next := message("moved")
	next.Generation = 1
	if err := b.Retry(testwait.Long(t), d, broker.Outgoing{Queue: "other", Message: next}); err != nil {
		t.Fatal(err)
	}
	if err := b.PublishBatch(testwait.Long(t), ms); err != nil {
		t.Fatal(err)
	}
	if n, err := b.Purge(testwait.Long(t), "q"); err != nil || n != len(ms) {
		t.Errorf("Purge: %d, %v, want %d", n, err, len(ms))
	}
	if st, err := b.Stats(testwait.Long(t), "q"); err != nil || st.Ready+st.Held != 0 {
		t.Errorf("Stats after Purge: %+v, %v", st, err)
	}
}

// TestHeldWhenTheStreamIsMadeAgain holds messages while the stream is deleted and created again
// during one connection.
func TestHeldWhenTheStreamIsMadeAgain(t *testing.T) {
	t.Parallel()
	srv := testserver.RequireNATS(t)
	ns := testserver.Namespace()
	b := connect(t, natsbroker.Config{Namespace: ns})
	declare(t, b)
	s := subscribe(t, b, broker.SubscribeOptions{Prefetch: 8})
	publish(t, b, ids("old", 4)...)
	var held []broker.Delivery
	for range 4 {
		held = append(held, receive(t, s))
	}
	if err := bare(t, srv.URL()).DeleteStream(testwait.Long(t), "SWJ_"+ns); err != nil {
		t.Fatal(err)
	}
	select {
	case <-held[0].Lost():
	case <-time.After(2 * time.Minute):
		t.Fatal("Lost is not closed")
	}
	const n = 6
	publish(t, b, ids("new", n)...)
	for range n {
		receive(t, s)
	}
	for _, d := range held {
		if err := d.Ack(testwait.Long(t)); !errors.Is(err, broker.ErrLeaseLost) {
			t.Errorf("Ack of what lay in the old stream: %v, want ErrLeaseLost", err)
		}
	}
	if st, err := b.Stats(testwait.Long(t), "q"); err != nil || st != (broker.Stats{Held: n}) {
		t.Errorf("the new stream has %+v, %v, want %d held", st, err, n)
	}
}

// TestPausedWhileAnotherShortensTheLease pauses a subscription without messages, so that the
// consumer looks unused to another subscription with a shorter lease.
func TestPausedWhileAnotherShortensTheLease(t *testing.T) {
	t.Parallel()
	b := connect(t, natsbroker.Config{})
	declare(t, b)
	s := subscribe(t, b, broker.SubscribeOptions{Prefetch: 1, Lease: 6 * time.Second})
	publish(t, b, "a")
	d := receive(t, s)
	r, ok := capability.As[broker.Resizer](s)
	if !ok || r.SetPrefetch(testwait.Long(t), 0) != nil {
		t.Fatal("SetPrefetch(0) failed")
	}
	ack(t, d)
	testwait.Until(t, "the acknowledgement", func() bool {
		st, err := b.Stats(testwait.Long(t), "q")
		return err == nil && st == broker.Stats{}
	})
	if err := subscribe(t, b, broker.SubscribeOptions{Prefetch: 1, Lease: 200 * time.Millisecond}).Close(testwait.Long(t)); err != nil {
		t.Fatal(err)
	}
	if err := r.SetPrefetch(testwait.Long(t), 2); err != nil {
		t.Fatal(err)
	}
	publish(t, b, "b")
	d = receive(t, s)
	nothing(t, s, time.Second) // it is renewed only every 2 s
	ack(t, d)
}
