package consumer

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestDecide: whatever is seen, the number stays within the bounds, grows only while tasks wait or all are busy and the machine is
// not, at most twofold at a time, and shrinks only after KeepAlive of fewer having been enough, to no less than what runs.
func TestDecide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Autoscale{Min: rapid.IntRange(1, 5).Draw(t, "min"), KeepAlive: 30 * time.Second}
		c.Max = c.Min + rapid.IntRange(0, 30).Draw(t, "span")
		a, err := c.complete()
		if err != nil {
			t.Fatal(err)
		}
		now := time.Unix(1e9, 0)
		workers := rapid.IntRange(a.Min, a.Max).Draw(t, "workers")
		var idle, enough time.Time // enough: since when fewer have been, by this test's own account
		for range rapid.IntRange(1, 60).Draw(t, "looks") {
			now = now.Add(time.Duration(rapid.IntRange(1, 20).Draw(t, "gap")) * time.Second)
			l := look{
				at: now, workers: workers, active: rapid.IntRange(0, workers).Draw(t, "active"),
				ready: rapid.IntRange(-1, 20).Draw(t, "ready"), load: rapid.Float64Range(0, 1).Draw(t, "load"),
			}
			var n int
			n, idle = a.decide(l, idle)
			need := min(max(l.active+max(l.ready, 0), a.Min), a.Max)
			fewer := need < workers && l.active < workers
			if !fewer {
				enough = time.Time{}
			} else if enough.IsZero() {
				enough = now
			}
			switch {
			case n < a.Min || n > a.Max:
				t.Fatalf("%d workers, from %d to %d are allowed", n, a.Min, a.Max)
			case n > workers && (l.load > a.MaxLoad || l.active < workers && need <= workers || n > 2*workers):
				t.Fatalf("%d became %d: %+v", workers, n, l)
			case n < workers && (!fewer || now.Sub(enough) < a.KeepAlive || n < need):
				t.Fatalf("%d became %d after fewer had been enough for %s: %+v", workers, n, now.Sub(enough), l)
			case n == workers && need > workers && l.load <= a.MaxLoad:
				t.Fatalf("%d stay although %d are needed: %+v", n, need, l)
			}
			if n < workers {
				enough = time.Time{}
			}
			workers = n
		}
	})
}
