package sqloutbox_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/outbox"
	"github.com/swarmiji/swarmiji/outbox/sqloutbox"
)

// TestShares shows that relays have fair shares after each has renewed twice, however they came and
// left. No bucket has two owners.
func TestShares(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		s, ctx := d.open(t), testwait.Long(t)
		held := make(map[string][]int)
		renew := func(name string) outbox.Share {
			t.Helper()
			share, err := s.Lease(ctx, name, time.Hour)
			must(t, err)
			held[name] = share.Buckets
			owned := slices.Concat(slices.Collect(maps.Values(held))...)
			slices.Sort(owned)
			if n := len(owned); len(slices.Compact(owned)) != n {
				t.Fatalf("a bucket has two owners: %v", held)
			}
			return share
		}
		for range 15 {
			for range 1 + rand.N(6) {
				name := fmt.Sprint("relay", rand.N(5))
				if rand.N(2) == 0 {
					renew(name)
				} else {
					must(t, s.Leave(ctx, name))
					delete(held, name)
				}
			}
			for range 2 {
				for name := range held {
					renew(name)
				}
			}
			for name := range held {
				share := renew(name)
				if got, fair := len(share.Buckets), outbox.Buckets/len(held); share.Missing != 0 || got < fair || got > fair+1 {
					t.Fatalf("one of %d relays has %d buckets and misses %d", len(held), got, share.Missing)
				}
			}
		}
	})
}

// TestTakeover shows that the buckets of a silent relay are free when its lease has ended, and not
// earlier.
func TestTakeover(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		s, ctx := d.open(t), testwait.Long(t)
		const lease = 300 * time.Millisecond
		begun := time.Now()
		_, err := s.Lease(ctx, "silent", lease)
		must(t, err)
		var share outbox.Share
		testwait.Until(t, "the other relay has all buckets", func() bool {
			share, err = s.Lease(ctx, "other", time.Hour)
			must(t, err)
			if len(share.Buckets) > 0 && time.Since(begun) < lease {
				t.Error("buckets are taken before the lease has ended")
			}
			return len(share.Buckets) == outbox.Buckets
		})
		if st, err := s.Stats(ctx); st.Relays != 1 || err != nil {
			t.Errorf("%d relays are alive, %v", st.Relays, err)
		}
	})
}

// TestNamespaces shows that outboxes in one database do not see each other.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		ctx := testwait.Long(t)
		one, other := d.open(t), d.open(t, func(c *sqloutbox.Config) { c.Namespace = "other" })
		d.submit(t, one, numbered("m", "", 2)...)
		d.submit(t, other, numbered("m", "", 1)...)
		for _, s := range []*sqloutbox.Store{one, other} {
			share, err := s.Lease(ctx, "relay", time.Hour)
			must(t, err)
			if len(share.Buckets) != outbox.Buckets {
				t.Errorf("the only relay of a namespace has %d buckets", len(share.Buckets))
			}
		}
		rows := waiting(t, one)
		must(t, other.Settle(ctx, outbox.Settlement{
			Sent: []outbox.Ref{rows[0].Ref()}, Dead: []outbox.Failure{{Ref: rows[1].Ref()}}, Failed: []outbox.Failure{{Ref: rows[1].Ref(), After: time.Hour}},
		}))
		if a, b := len(waiting(t, one)), len(waiting(t, other)); a != 2 || b != 1 {
			t.Errorf("%d and %d messages wait, want 2 and 1", a, b)
		}
	})
}
