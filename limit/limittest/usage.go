package limittest

import (
	"context"
	"errors"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/limit"
)

// testUsage expects that a limiter shows what its holders hold, those first whose leases end first,
// and the used part of a rate. Ended leases and released permits do not count.
func testUsage(w *world) {
	reader, ok := capability.As[limit.Reader](w.l)
	if !ok {
		w.Fatal("the limiter is no limit.Reader")
	}
	usage := func(key string) limit.Usage {
		w.Helper()
		u, err := reader.Usage(w.ctx(), key)
		if err != nil {
			w.Fatalf("Usage: %v", err)
		}
		return u
	}
	if u := usage("nobody's"); u.Held != 0 || u.Holders != nil || u.Ahead != 0 {
		w.Errorf("a limit that nobody uses: %+v", u)
	}
	p, key := limit.Permit{Key: "a \x00\xffé", Max: 5, Weight: 2, Rate: 60, Per: time.Hour, Burst: 4}, "a \x00\xffé"
	w.granted(true, "second/\x00", p)
	w.acquireFor(lease/2, "first", p)
	u := usage(key)
	if u.Held != 4 || len(u.Holders) != 2 || u.Holders[0].Name != "first" || u.Holders[1].Name != "second/\x00" {
		w.Fatalf("two holders: %+v", u)
	}
	for _, h := range u.Holders {
		if h.Weight != 2 || h.Lease <= 0 || h.Lease > lease {
			w.Errorf("a holder: %+v", h)
		}
	}
	if u.Ahead <= 3*time.Minute || u.Ahead > 4*time.Minute {
		w.Errorf("four units of a minute are used %v ahead", u.Ahead)
	}
	asks, err := limit.Check("x", limit.MinLease, []limit.Permit{p})
	if err != nil {
		w.Fatal(err)
	}
	if wait := asks[0].Wait(u.Ahead); wait <= time.Minute || wait > 2*time.Minute {
		w.Errorf("the rate admits two units in %v, want 2 min", wait)
	}
	w.release("first", p)
	if w.acquireFor(short, "brief", limit.Permit{Key: key, Max: 5}); usage(key).Held != 3 {
		w.Errorf("one was released and one added: %+v", usage(key))
	}
	w.eventually("the ended lease is not shown", func() bool { return usage(key).Held == 2 })
	if diff := cmp.Diff(usage(key).Holders[0].Name, "second/\x00"); diff != "" {
		w.Error(diff)
	}
	ended, cancel := context.WithCancel(w.ctx())
	cancel()
	if _, err := reader.Usage(ended, key); !errors.Is(err, context.Canceled) {
		w.Errorf("an ended ctx: %v", err)
	}
}
