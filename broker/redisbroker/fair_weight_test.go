package redisbroker_test

import (
	"testing"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/redisbroker"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// sharesOf receives and acknowledges n messages, and returns how many came of each fairness key.
func sharesOf(t *testing.T, s broker.Subscription, n int) map[string]int {
	t.Helper()
	got := map[string]int{}
	for range n {
		d := receive(t, s)
		got[d.Message().Key]++
		ack(t, d)
	}
	return got
}

// TestWeightOnEachLevel shows that a key keeps its weight on one level when it has no messages left
// on another.
func TestWeightOnEachLevel(t *testing.T) {
	t.Parallel()
	srv, ns := testserver.RequireRedis(t), testserver.Namespace()
	b := connect(t, redisbroker.Config{Namespace: ns})
	q := declaredFair(t, b, "q", 10, 200)
	urgent := of("heavy", 4, 2)
	for _, m := range urgent {
		m.ID, m.Priority = "u"+m.ID, 3
	}
	publishAll(t, b, q, of("heavy", 4, 80)...)
	publishAll(t, b, q, of("light", 0, 80)...)
	publishAll(t, b, q, urgent...)
	s := subscribe(t, b, q, 1)
	sharesOf(t, s, 2)
	if got := sharesOf(t, s, 50); got["light"] < 8 || got["light"] > 12 {
		t.Errorf("of 50 deliveries %v, want 4 of the heavy key for each of the light one", got)
	}
	sharesOf(t, s, 110)
	forgotten(t, srv, ns, q)
}

// TestUpdatedWeight shows that a waiting message has the weight of its update.
func TestUpdatedWeight(t *testing.T) {
	t.Parallel()
	srv, ns := testserver.RequireRedis(t), testserver.Namespace()
	b := connect(t, redisbroker.Config{Namespace: ns})
	q := declaredFair(t, b, "q")
	heavy := of("heavy", 0, 60)
	publishAll(t, b, q, heavy...)
	publishAll(t, b, q, of("light", 0, 60)...)
	for _, m := range heavy {
		m.Weight = 4
		if err := b.Update(testwait.Long(t), q, broker.Outgoing{Message: m}); err != nil {
			t.Fatalf("Update: %v", err)
		}
	}
	s := subscribe(t, b, q, 1)
	if got := sharesOf(t, s, 50); got["light"] < 8 || got["light"] > 12 {
		t.Errorf("of 50 deliveries %v, want 4 of the heavy key for each of the light one", got)
	}
	sharesOf(t, s, 70)
	forgotten(t, srv, ns, q)
}
