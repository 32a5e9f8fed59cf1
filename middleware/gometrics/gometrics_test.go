package gometrics_test

import (
	"maps"
	"slices"
	"testing"

	metrics "github.com/rcrowley/go-metrics"
	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/middleware/gometrics"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestMetricsShareARegistry shows that all users of a registry count together, and that a registry
// with a prefix counts apart.
// Promises: S74.
func TestMetricsShareARegistry(t *testing.T) {
	r := metrics.NewRegistry()
	a, b := gometrics.NewMetrics(r), gometrics.NewMetrics(r)
	a.Sent.Inc(2)
	a.Runtime.Update(7)
	a.SetQueue("q", 1, 2, 3)
	b.SetQueue("r", 4, -1, -1)
	if b.Sent.Count() != 2 || b.Runtime.Sum() != 7 || b.Waiting.Value() != 5 {
		t.Errorf("two users of one registry count apart: %d sent, %d µs, %d wait", b.Sent.Count(), b.Runtime.Sum(), b.Waiting.Value())
	}
	apart := gometrics.NewMetrics(metrics.NewPrefixedChildRegistry(r, "other."))
	apart.Sent.Inc(1)
	all := r.GetAll()
	for name, want := range map[string]any{
		"swarmiji.sent": int64(2), "other.swarmiji.sent": int64(1), "swarmiji.queue.length": int64(5), "swarmiji.queue.ready.q": int64(1),
		"swarmiji.queue.delayed.q": int64(2), "swarmiji.queue.dead.q": int64(3), "swarmiji.queue.ready.r": int64(4), "swarmiji.runtime.us": int64(1),
	} {
		if got := all[name]; got["count"] != want && got["value"] != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	b.ForgetQueue("q")
	if r.Get("swarmiji.queue.ready.q") != nil || r.Get("swarmiji.queue.dead.q") != nil || a.Waiting.Value() != 4 {
		t.Errorf("a forgotten queue is shown; %d wait", a.Waiting.Value())
	}
}

// TestTakenNames shows that a name of another type stays as it is, and that its metric still
// counts.
func TestTakenNames(t *testing.T) {
	r := metrics.NewRegistry()
	own := metrics.NewGauge()
	if err := r.Register("swarmiji.failed", own); err != nil {
		t.Fatal(err)
	}
	m := gometrics.NewMetrics(r)
	m.Failed.Inc(1)
	if m.Failed.Count() != 1 || own.Value() != 0 || r.Get("swarmiji.failed") != own {
		t.Errorf("counted %d, and %d in the gauge of the program", m.Failed.Count(), own.Value())
	}
	names := map[string]bool{}
	for d := range m.All() {
		names[d.Name] = r.Get(d.Name) != nil
	}
	if len(names) != 28 || slices.Contains(slices.Collect(maps.Values(names)), false) {
		t.Errorf("registered are %v", names)
	}
}

// TestSnapshots shows that a snapshot does not change, and that a metric can be cleared.
func TestSnapshots(t *testing.T) {
	r := metrics.NewRegistry()
	m := gometrics.NewMetrics(r)
	sent, length := r.Get("swarmiji.sent").(metrics.Counter), r.Get("swarmiji.queue.length").(metrics.Gauge)
	h := r.Get("swarmiji.runtime.us").(metrics.Histogram)
	count := func() {
		m.Sent.Inc(2)
		m.Waiting.Update(3)
		m.Runtime.Update(4)
	}
	count()
	c, g, s := sent.Snapshot(), length.Snapshot(), h.Snapshot()
	count()
	if c.Count() != 2 || g.Value() != 3 || s.Count() != 1 || s.Sample().Count() != 0 {
		t.Errorf("the copies changed: %d, %d, %d", c.Count(), g.Value(), s.Count())
	}
	sent.Clear()
	h.Clear()
	if m.Sent.Count() != 0 || m.Runtime.Count() != 0 {
		t.Errorf("after Clear: %d, %d", m.Sent.Count(), m.Runtime.Count())
	}
	var _ metrics.Histogram = gometrics.Histogram{Histogram: new(middleware.Histogram)}
}
