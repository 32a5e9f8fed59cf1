package intake

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestDecide shows that the number of workers stays within its limits for any samples. It grows at
// most twofold, and only while tasks wait or all workers are busy and the load is low. It shrinks
// only after KeepAlive, and never below the running handlers.
func TestDecide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := Scaling{Min: rapid.IntRange(1, 5).Draw(t, "min"), KeepAlive: 30 * time.Second, MaxLoad: 0.9}
		a.Max = a.Min + rapid.IntRange(0, 30).Draw(t, "span")
		now := time.Unix(1e9, 0)
		workers := rapid.IntRange(a.Min, a.Max).Draw(t, "workers")
		// enough: since when fewer workers would be enough, as this test computes it
		var idle, enough time.Time
		for range rapid.IntRange(1, 60).Draw(t, "looks") {
			now = now.Add(time.Duration(rapid.IntRange(1, 20).Draw(t, "gap")) * time.Second)
			l := Sample{
				At: now, Workers: workers, Active: rapid.IntRange(0, workers).Draw(t, "active"),
				Ready: rapid.IntRange(-1, 20).Draw(t, "ready"), Load: rapid.Float64Range(0, 1).Draw(t, "load"),
			}
			var n int
			n, idle = a.Decide(l, idle)
			need := min(max(l.Active+max(l.Ready, 0), a.Min), a.Max)
			fewer := need < workers && l.Active < workers
			if !fewer {
				enough = time.Time{}
			} else if enough.IsZero() {
				enough = now
			}
			switch {
			case n < a.Min || n > a.Max:
				t.Fatalf("%d workers, from %d to %d are allowed", n, a.Min, a.Max)
			case n > workers && (l.Load > a.MaxLoad || l.Active < workers && need <= workers || n > 2*workers):
				t.Fatalf("%d became %d: %+v", workers, n, l)
			case n < workers && (!fewer || now.Sub(enough) < a.KeepAlive || n < need):
				t.Fatalf("%d became %d after fewer had been enough for %s: %+v", workers, n, now.Sub(enough), l)
			case n == workers && need > workers && l.Load <= a.MaxLoad:
				t.Fatalf("%d stay although %d are needed: %+v", n, need, l)
			}
			if n < workers {
				enough = time.Time{}
			}
			workers = n
		}
	})
}
