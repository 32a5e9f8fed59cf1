package redisbroker_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/redisbroker"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// subscribeBounds subscribes with bounds.
func subscribeBounds(t testing.TB, b *redisbroker.Broker, queue string, prefetch int, bounds broker.Bounds) broker.Subscription {
	t.Helper()
	s, err := b.Subscribe(testwait.Long(t), queue, broker.SubscribeOptions{Prefetch: prefetch, Bounds: bounds})
	if err != nil {
		t.Fatalf("Subscribe: %v", err)
	}
	return s
}

// keysOf returns the keys of a queue, in pages of two.
func keysOf(t testing.TB, b *redisbroker.Broker, queue string) map[string]broker.KeyState {
	t.Helper()
	all := map[string]broker.KeyState{}
	last := ""
	for cursor, first := "", true; first || cursor != ""; first = false {
		p, err := b.ListKeys(testwait.Long(t), queue, cursor, 2)
		if err != nil {
			t.Fatalf("ListKeys: %v", err)
		}
		for _, k := range p.Keys {
			if k.Key <= last && len(all) > 0 {
				t.Errorf("the key %q comes after %q", k.Key, last)
			}
			all[k.Key], last = k, k.Key
		}
		cursor = p.Next
	}
	return all
}

// TestMaxOfKeys shows that two consumers together hold at most Max messages of a key. A place is
// used again at once, and nothing is left at the end.
func TestMaxOfKeys(t *testing.T) {
	t.Parallel()
	srv, ns := testserver.RequireRedis(t), testserver.Namespace()
	b := connect(t, redisbroker.Config{Namespace: ns, Poll: patient})
	q := declaredFair(t, b, "q", 50, 200)
	ms := slices.Concat(of("a", 0, 40), of("b", 3, 40), of("c", 0, 2))
	for i, m := range ms {
		m.Priority = []int{10, 100}[i%2]
	}
	publishAll(t, b, q, ms...)
	bounds := broker.Bounds{Key: broker.Bound{Max: 3}, Keys: map[string]broker.Bound{"b": {Max: 5}}}
	one, two := subscribeBounds(t, b, q, 20, bounds), subscribeBounds(t, b, q, 20, bounds)
	testwait.Until(t, "that 10 messages are held", func() bool { return stats(t, b, q).Held == 10 })
	for key, want := range map[string]int{"a": 3, "b": 5, "c": 2} {
		if got := keysOf(t, b, q)[key]; got.Held != want {
			t.Errorf("%+v, want %d held", got, want)
		}
	}
	done := make(chan string)
	for _, s := range []broker.Subscription{one, two} {
		go func() {
			for {
				d, err := s.Receive(testwait.Long(t))
				if err != nil {
					return
				}
				ack(t, d)
				done <- d.Message().ID
			}
		}()
	}
	for range ms {
		<-done
		for key, state := range keysOf(t, b, q) {
			if state.Held > bounds.Of(key).Max {
				t.Fatalf("%d messages of %s are held", state.Held, key)
			}
		}
	}
	forgotten(t, srv, ns, q)
	for _, s := range []broker.Subscription{one, two} {
		if err := s.Close(testwait.Long(t)); err != nil {
			t.Fatalf("Close: %v", err)
		}
	}
}

// TestMaxOfQueue shows that consumers together hold at most the Max of the queue, and use it.
func TestMaxOfQueue(t *testing.T) {
	t.Parallel()
	srv, ns := testserver.RequireRedis(t), testserver.Namespace()
	b := connect(t, redisbroker.Config{Namespace: ns, Poll: patient})
	q := declaredFair(t, b, "q")
	publishAll(t, b, q, slices.Concat(of("a", 0, 20), of("b", 0, 20))...)
	bounds := broker.Bounds{All: broker.Bound{Max: 4}}
	one, two := subscribeBounds(t, b, q, 3, bounds), subscribeBounds(t, b, q, 3, bounds)
	for range 15 {
		testwait.Until(t, "that 4 messages are held", func() bool { return stats(t, b, q).Held >= 4 })
		if held := stats(t, b, q).Held; held != 4 {
			t.Fatalf("%d messages are held, want 4", held)
		}
		for _, s := range []broker.Subscription{one, two} {
			d, err := s.Receive(testwait.Brief(t))
			if err == nil {
				err = broker.AckSync(testwait.Long(t), d)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = one.Close(testwait.Long(t))
	_ = two.Close(testwait.Long(t))
	if _, err := b.Purge(testwait.Long(t), q); err != nil {
		t.Fatalf("Purge: %v", err)
	}
	forgotten(t, srv, ns, q)
}

// TestRates shows that no more messages of a key and of a queue come than a rate allows. A waiting
// consumer continues when the time has come.
func TestRates(t *testing.T) {
	t.Parallel()
	srv, ns := testserver.RequireRedis(t), testserver.Namespace()
	b := connect(t, redisbroker.Config{Namespace: ns, Poll: patient})
	for name, bounds := range map[string]broker.Bounds{
		"key": {Key: broker.Bound{Rate: 4, Per: 400 * time.Millisecond}},
		"all": {All: broker.Bound{Rate: 4, Per: 400 * time.Millisecond}},
	} {
		q := declaredFair(t, b, name)
		publishAll(t, b, q, of("a", 0, 12)...)
		began := time.Now()
		s := subscribeBounds(t, b, q, 100, bounds)
		for i := range 12 {
			d := receive(t, s)
			if early := time.Duration(i-3)*100*time.Millisecond - time.Since(began); early > 2*time.Millisecond {
				t.Errorf("%s: message %d came %v too early", name, i, early)
			}
			ack(t, d)
		}
		p, err := b.ListKeys(testwait.Long(t), q, "", 0)
		if err != nil || name == "all" && p.Used.IsZero() || name == "key" && (len(p.Keys) != 1 || p.Keys[0].Used.IsZero()) {
			t.Errorf("%s: ListKeys: %+v, %v", name, p, err)
		}
		forgotten(t, srv, ns, q)
	}
}

// TestBoundsChange shows that parked keys return when the bounds of the claims change, and for a
// consumer without bounds.
func TestBoundsChange(t *testing.T) {
	t.Parallel()
	b := connect(t, redisbroker.Config{Poll: patient})
	q := declaredFair(t, b, "q")
	publishAll(t, b, q, slices.Concat(of("a", 0, 20), of("b", 0, 20))...)
	s := subscribeBounds(t, b, q, 100, broker.Bounds{Key: broker.Bound{Max: 1}})
	held := func(n int) {
		t.Helper()
		testwait.Until(t, fmt.Sprint("that ", n, " messages are held"), func() bool { return stats(t, b, q).Held == n })
	}
	held(2)
	if err := broker.SetBounds(s, broker.Bounds{Key: broker.Bound{Max: 3}}); err != nil {
		t.Fatalf("SetBounds: %v", err)
	}
	held(6)
	other := subscribeBounds(t, b, q, 10, broker.Bounds{})
	held(16)
	if err := broker.SetBounds(s, broker.Bounds{}); err != nil {
		t.Fatalf("SetBounds: %v", err)
	}
	held(40)
	_ = other.Close(testwait.Long(t))
	held(40)
	plain := declared(t, b, "plain")
	if _, err := b.Subscribe(testwait.Long(t), plain, broker.SubscribeOptions{Bounds: broker.Bounds{All: broker.Bound{Max: 1}}}); !errors.Is(err, broker.ErrMalformed) {
		t.Errorf("bounds of a plain queue: %v", err)
	}
	if err := broker.SetBounds(subscribe(t, b, plain, 1), broker.Bounds{All: broker.Bound{Max: 1}}); !errors.Is(err, broker.ErrMalformed) {
		t.Errorf("SetBounds on a plain queue: %v", err)
	}
	if _, err := b.ListKeys(testwait.Long(t), plain, "", 0); !errors.Is(err, broker.ErrMalformed) {
		t.Errorf("ListKeys of a plain queue: %v", err)
	}
}

// TestBoundsOfLostConsumers shows that the places of a consumer whose lease ended become free.
func TestBoundsOfLostConsumers(t *testing.T) {
	t.Parallel()
	srv, ns := testserver.RequireRedis(t), testserver.Namespace()
	b := connect(t, redisbroker.Config{Namespace: ns, Poll: 50 * time.Millisecond})
	dead, l := overLine(t, redisbroker.Config{Namespace: ns, Lease: 500 * time.Millisecond}, srv)
	q := declaredFair(t, b, "q")
	publishAll(t, b, q, slices.Concat(of("a", 0, 5), of("b", 0, 5))...)
	bounds := broker.Bounds{Key: broker.Bound{Max: 2}}
	subscribeBounds(t, dead, q, 8, bounds)
	testwait.Until(t, "that the consumer holds 4", func() bool { return stats(t, b, q).Held == 4 })
	l.set(true)
	defer l.set(false)
	s := subscribeBounds(t, b, q, 8, bounds)
	for range 10 {
		ack(t, receive(t, s))
	}
	forgotten(t, srv, ns, q)
}

// TestParkedKeysAreListed shows that messages of parked keys are listed, found, deleted and purged.
func TestParkedKeysAreListed(t *testing.T) {
	t.Parallel()
	srv, ns := testserver.RequireRedis(t), testserver.Namespace()
	b := connect(t, redisbroker.Config{Namespace: ns, Poll: patient})
	q := declaredFair(t, b, "q", 50, 200)
	ms := slices.Concat(of("a", 0, 20), of("b", 0, 20), of("c", 0, 20))
	for i, m := range ms {
		m.Priority = []int{10, 100}[i%2]
	}
	publishAll(t, b, q, ms...)
	s := subscribeBounds(t, b, q, 100, broker.Bounds{Key: broker.Bound{Max: 2}})
	testwait.Until(t, "that 6 messages are held", func() bool { return stats(t, b, q).Held == 6 })
	for _, limit := range []int{5, 100} {
		seen := map[string]bool{}
		for cursor, first := "", true; first || cursor != ""; first = false {
			p, err := b.List(testwait.Long(t), q, broker.ListQuery{Place: broker.PlaceWaiting, Limit: limit, Cursor: cursor})
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range p.Messages {
				if seen[l.Message.ID] {
					t.Errorf("%s is listed twice", l.Message.ID)
				}
				seen[l.Message.ID] = true
			}
			cursor = p.Next
		}
		if len(seen) != 54 {
			t.Errorf("%d messages are listed, want 54", len(seen))
		}
	}
	for _, m := range ms[50:] {
		if err := b.Delete(testwait.Long(t), q, m.ID); err != nil && !errors.Is(err, broker.ErrNotFound) {
			t.Fatalf("Delete: %v", err)
		}
	}
	if n, err := b.Purge(testwait.Long(t), q); err != nil || n < 40 || stats(t, b, q).Ready != 0 {
		t.Errorf("Purge: %d, %v", n, err)
	}
	for range 6 {
		ack(t, receive(t, s))
	}
	forgotten(t, srv, ns, q)
}

// TestBoundsBesideOlderVersion shows that no key stays blocked after a process of an earlier
// version ended a message, which it does not count.
func TestBoundsBesideOlderVersion(t *testing.T) {
	t.Parallel()
	srv, ns := testserver.RequireRedis(t), testserver.Namespace()
	b := connect(t, redisbroker.Config{Namespace: ns, Poll: patient})
	q := declaredFair(t, b, "q")
	publishAll(t, b, q, of("a", 0, 3)...)
	prefix := "swj:{" + ns + "." + q + "}:"
	s := subscribeBounds(t, b, q, 8, broker.Bounds{Key: broker.Bound{Max: 1}, All: broker.Bound{Max: 1}})
	first := receive(t, s)
	// as the acknowledgement of an earlier version, which does not count
	do(t, srv, "HDEL", prefix+"l", first.Message().ID)
	do(t, srv, "HDEL", prefix+"t", first.Message().ID)
	publish(t, b, q, of("b", 0, 1)...) // notifies the consumer
	for range 3 {
		ack(t, receive(t, s))
	}
	forgotten(t, srv, ns, q)
}

// TestPlacesOfOneKey shows that several consumers get the places of one key that become free at
// once.
func TestPlacesOfOneKey(t *testing.T) {
	t.Parallel()
	ns := testserver.Namespace()
	b := connect(t, redisbroker.Config{Namespace: ns, Poll: patient})
	q := declaredFair(t, b, "q")
	publishAll(t, b, q, of("a", 0, 12)...)
	bounds := broker.Bounds{Key: broker.Bound{Max: 4}}
	first := subscribeBounds(t, b, q, 4, bounds)
	testwait.Until(t, "that 4 messages are held", func() bool { return stats(t, b, q).Held == 4 })
	for range 4 {
		subscribeBounds(t, b, q, 1, bounds)
	}
	srv := testserver.RequireRedis(t)
	testwait.Until(t, "that 4 consumers wait", func() bool { return fmt.Sprint(do(t, srv, "ZCARD", "swj:{"+ns+"."+q+"}:h")) == "4" })
	var ds []broker.Delivery
	for range 4 {
		ds = append(ds, receive(t, first))
	}
	if err := first.Close(testwait.Long(t)); err != nil {
		t.Fatalf("Close: %v", err)
	}
	for _, d := range ds {
		ack(t, d)
	}
	testwait.Until(t, "that 4 messages are held again", func() bool { return stats(t, b, q).Held == 4 && stats(t, b, q).Ready == 4 })
}

// TestBoundsAfterClose shows that no key stays blocked for a consumer of an earlier version when
// the consumers with bounds have closed.
func TestBoundsAfterClose(t *testing.T) {
	t.Parallel()
	srv, ns := testserver.RequireRedis(t), testserver.Namespace()
	b := connect(t, redisbroker.Config{Namespace: ns, Poll: patient})
	q := declaredFair(t, b, "q")
	publishAll(t, b, q, of("a", 0, 3)...)
	old := subscribe(t, b, q, 1)
	d := receive(t, old)
	s := subscribeBounds(t, b, q, 8, broker.Bounds{Key: broker.Bound{Max: 1}})
	parked := "swj:{" + ns + "." + q + "}:q"
	testwait.Until(t, "that the key is parked", func() bool { return fmt.Sprint(do(t, srv, "HLEN", parked)) == "1" })
	if err := s.Close(testwait.Long(t)); err != nil {
		t.Fatalf("Close: %v", err)
	}
	testwait.Until(t, "that no key is parked", func() bool { return fmt.Sprint(do(t, srv, "HLEN", parked)) == "0" })
	ack(t, d)
}
