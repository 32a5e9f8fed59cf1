package membroker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
)

// subscribed returns a Broker with the queue "q" and a subscription to it. Both are closed at the
// end of the test.
func subscribed(t *testing.T, c membroker.Config, prefetch int) (*membroker.Broker, broker.Subscription) {
	t.Helper()
	b := membroker.NewServer(c).Connect()
	s, err := b.Subscribe(context.Background(), "q", broker.SubscribeOptions{Prefetch: prefetch})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return b, s
}

func TestDelaysAreExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		b, s := subscribed(t, membroker.Config{}, 0)
		start := time.Now()
		// In random order, so that the timer is set back and forth, with many that are due together.
		const n = 500
		for _, i := range rand.Perm(n) {
			m := &broker.Message{ID: fmt.Sprint(i), Priority: i / 5}
			if err := b.PublishAt(ctx, "q", m, start.Add(time.Duration(i/5)*time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		for i := range n {
			d, err := s.Receive(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if after, want := time.Since(start), time.Duration(d.Message().Priority)*time.Hour; after != want || d.Message().Priority != i/5 {
				t.Fatalf("message %d, due after %v, came after %v", i, want, after)
			}
			if err := d.Ack(ctx); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestReleasedMessageComesAtItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		b, s := subscribed(t, membroker.Config{}, 1)
		if err := b.Publish(ctx, "q", &broker.Message{ID: "a"}); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		for i := range 3 {
			d, err := s.Receive(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if n, _ := d.Deliveries(); n != i+1 || time.Since(start) != time.Duration(i)*time.Minute {
				t.Fatalf("hand-out %d: Deliveries() = %d after %v", i+1, n, time.Since(start))
			}
			if err := d.Release(ctx, time.Minute); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestDeletedDelayIsNoLongerTimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		b, s := subscribed(t, membroker.Config{}, 0)
		now := time.Now()
		for i, id := range []string{"deleted", "moved", "kept"} {
			if err := b.PublishAt(ctx, "q", &broker.Message{ID: id}, now.Add(time.Duration(i+1)*time.Minute)); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Delete(ctx, "q", "deleted"); err != nil {
			t.Fatal(err)
		}
		if err := b.Update(ctx, "q", broker.Outgoing{Message: &broker.Message{ID: "moved"}, At: now.Add(time.Hour)}); err != nil {
			t.Fatal(err)
		}
		for _, want := range []struct {
			id    string
			after time.Duration
		}{{"kept", 3 * time.Minute}, {"moved", time.Hour}} {
			d, err := s.Receive(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if d.Message().ID != want.id || time.Since(now) != want.after {
				t.Errorf("%s came after %v, want %s after %v", d.Message().ID, time.Since(now), want.id, want.after)
			}
		}
	})
}
