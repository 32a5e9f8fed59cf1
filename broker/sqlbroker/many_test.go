package sqlbroker_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/sqlbroker"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// TestClaimBesideMany shows that a claim takes at most twice as long beside 1,000,000 waiting
// messages as beside 10,000. It compares medians of alternating claims.
func TestClaimBesideMany(t *testing.T) {
	testserver.Thorough(t)
	const few, many, claims, prefetch = 10_000, 1_000_000, 41, 100
	database := map[string]func(i int) string{
		"sqlite": func(i int) string { return "sqlite://" + filepath.Join(memoryDir(t), fmt.Sprint(i, ".db")) },
		"postgres": func(int) string {
			url, err := testserver.RequirePostgres(t).Database(testwait.Long(t), testserver.Namespace())
			if err != nil {
				t.Fatal(err)
			}
			return url
		},
	}
	for name, url := range database {
		t.Run(name, func(t *testing.T) {
			ctx := context.WithoutCancel(t.Context())
			var brokers [2]*sqlbroker.Broker
			for i, n := range []int{few, many} {
				brokers[i] = open(t, config(t, url(i), "n"))
				fill(ctx, t, brokers[i], n)
			}
			var times [2][]time.Duration
			for range claims {
				for i, b := range brokers {
					times[i] = append(times[i], claimed(ctx, t, b, prefetch))
				}
			}
			for i, b := range brokers {
				slices.Sort(times[i])
				if err := b.Close(ctx); err != nil {
					t.Error(err)
				}
			}
			small, large := times[0][claims/2], times[1][claims/2]
			t.Logf("median of a claim of %d: %v beside %d, %v beside %d: %.2f", prefetch, small, few, large, many, float64(large)/float64(small))
			if large > 2*small {
				t.Errorf("a claim takes %v beside %d messages, and %v beside %d", large, many, small, few)
			}
		})
	}
}

// fill publishes n messages.
func fill(ctx context.Context, t *testing.T, b *sqlbroker.Broker, n int) {
	t.Helper()
	if err := b.Declare(ctx, broker.Queue{Name: "q"}); err != nil {
		t.Fatal(err)
	}
	out := make([]broker.Outgoing, 1000)
	for i := 0; i < n; i += len(out) {
		for k := range out {
			out[k] = broker.Outgoing{Queue: "q", Message: &broker.Message{ID: fmt.Sprint("m", i+k), Body: make([]byte, 100)}}
		}
		if err := b.PublishBatch(ctx, out); err != nil {
			t.Fatal(err)
		}
	}
}

// claimed returns the time in which a new subscription gets n messages. They go back to the queue.
func claimed(ctx context.Context, t *testing.T, b *sqlbroker.Broker, n int) time.Duration {
	t.Helper()
	begun := time.Now()
	s := subscribed(ctx, t, b, "q", n)
	all := make([]broker.Delivery, n)
	for i := range all {
		all[i] = received(ctx, t, s)
	}
	took := time.Since(begun)
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		if err := d.Release(ctx, 0); err != nil {
			t.Fatal(err)
		}
	}
	return took
}
