package prom_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	metrics "github.com/rcrowley/go-metrics"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/middleware/gometrics"
	"github.com/swarmiji/swarmiji/middleware/prom"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/task"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}

// scrape requests the page as a scraper does and parses it with Prometheus' own parser.
func scrape(t testing.TB, url string) map[string]*dto.MetricFamily {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(resp.Body)
		t.Fatalf("status %s: %s", resp.Status, body)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// values returns the values of all families except histograms, by name and label.
func values(families map[string]*dto.MetricFamily) map[string]float64 {
	vs := make(map[string]float64)
	for name, f := range families {
		for _, m := range f.GetMetric() {
			key := name
			for _, l := range m.GetLabel() {
				key += "{" + l.GetName() + "=" + l.GetValue() + "}"
			}
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				vs[key] = m.GetCounter().GetValue()
			case dto.MetricType_GAUGE:
				vs[key] = m.GetGauge().GetValue()
			}
		}
	}
	return vs
}

// TestScrapeAfterRuns runs tasks that succeed, are retried and fail, and leaves some in a queue.
// The scraped numbers must match.
// Promises: S74.
func TestScrapeAfterRuns(t *testing.T) {
	registry := metrics.NewRegistry()
	page := httptest.NewServer(prom.Handler(registry))
	defer page.Close()
	m := gometrics.NewMetrics(registry)
	server := membroker.NewServer(membroker.Config{})
	b, results := server.Connect(), memresults.New(memresults.Config{})
	p, err := producer.New(producer.Config{Broker: b, Results: results, Metrics: m})
	if err != nil {
		t.Fatal(err)
	}
	c, err := consumer.New(consumer.Config{
		Broker: b, Results: results, Metrics: m, Tuning: consumer.Tuning{QueueLook: time.Millisecond},
		Queues: map[string]consumer.QueueConfig{"default": {Workers: 2, Prefetch: 2}},
	})
	if err != nil {
		t.Fatal(err)
	}
	release := make(chan struct{})
	work := task.New[string, int]("work", task.WithMaxRetries(2), task.WithRetryDelay(time.Millisecond))
	if err := work.Handle(c, func(ctx context.Context, what string) (int, error) {
		r, _ := task.FromContext(ctx)
		switch {
		case what == "wait":
			<-release
		case what == "fail":
			return 0, errors.New("no")
		case what == "twice" && r.Retries == 0:
			return 0, task.Retry(errors.New("not yet"))
		}
		return 1, nil
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	running, stop := context.WithCancel(ctx)
	var run sync.WaitGroup
	run.Go(func() {
		if err := c.Run(running); err != nil {
			t.Error(err)
		}
	})
	submit := func(what ...string) []*task.Future[int] {
		futures, err := work.SubmitAll(ctx, p, what)
		if err != nil {
			t.Fatal(err)
		}
		return futures
	}
	for _, f := range submit("go", "go", "go", "twice", "fail", "fail") {
		<-f.Done()
	}
	// two run, the prefetch is full, three wait
	waiting := submit("wait", "wait", "wait", "wait", "wait")
	if err := broker.PublishAt(ctx, b, broker.Outgoing{Queue: "default", Message: &broker.Message{ID: "later"}, At: time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool {
		vs := values(scrape(t, page.URL))
		return vs["swarmiji_queue_ready_tasks{queue=default}"] == 3 && vs["swarmiji_active_runs"] == 2 && vs["swarmiji_queue_delayed_tasks{queue=default}"] == 1
	}, "the page never showed two runs, three waiting and one delayed task")
	// the two that failed
	if vs := values(scrape(t, page.URL)); vs["swarmiji_queue_length_tasks"] != 3 || vs["swarmiji_queue_dead_tasks{queue=default}"] != 2 {
		t.Errorf("the queues are shown as %v", vs)
	}
	close(release)
	for _, f := range waiting {
		<-f.Done()
	}
	stop()
	run.Wait()
	if err := errors.Join(p.Close(ctx), results.Close(ctx), b.Close(ctx)); err != nil {
		t.Fatal(err)
	}

	families := scrape(t, page.URL)
	got := values(families)
	for name, want := range map[string]float64{
		"swarmiji_sent_tasks_total": 11, "swarmiji_received_deliveries_total": 12, "swarmiji_started_runs_total": 12,
		"swarmiji_succeeded_tasks_total": 9, "swarmiji_failed_tasks_total": 2, "swarmiji_retried_runs_total": 1,
		"swarmiji_revoked_tasks_total": 0, "swarmiji_active_runs": 0, "swarmiji_events_dropped_events_total": 0,
		"swarmiji_queue_length_tasks": 0,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %g, want %g", name, v, want)
		}
	}
	if _, stale := got["swarmiji_queue_ready_tasks{queue=default}"]; stale {
		t.Error("the length of a queue that nobody looks at any more is still shown")
	}
	for name, h := range map[string]*middleware.Histogram{"swarmiji_runtime_seconds": &m.Runtime, "swarmiji_pool_seconds": &m.Pool} {
		if h.Count() != 12 {
			t.Errorf("%s: %d values were measured, want 12", name, h.Count())
		}
		checkHistogram(t, families[name], h, 1e6)
	}
	for name, f := range families {
		if f.GetHelp() == "" || f.GetType() == dto.MetricType_COUNTER != strings.HasSuffix(name, "_total") {
			t.Errorf("%s is a %s with the help %q", name, f.GetType(), f.GetHelp())
		}
	}
}

func until(t *testing.T, ok func() bool, what string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

// checkHistogram compares a scraped histogram with the original: each bucket, the count and the
// sum.
func checkHistogram(t testing.TB, f *dto.MetricFamily, h *middleware.Histogram, scale float64) {
	t.Helper()
	if f.GetType() != dto.MetricType_HISTOGRAM || len(f.GetMetric()) != 1 {
		t.Fatalf("%s is a %s of %d metrics", f.GetName(), f.GetType(), len(f.GetMetric()))
	}
	s := f.GetMetric()[0].GetHistogram()
	if s.GetSampleCount() != uint64(h.Count()) || s.GetSampleSum() != float64(h.Sum())/scale {
		t.Errorf("%s: count %d, sum %g; want %d and %g", f.GetName(), s.GetSampleCount(), s.GetSampleSum(), h.Count(), float64(h.Sum())/scale)
	}
	for _, b := range s.GetBucket() {
		var want uint64
		for top, n := range h.Buckets() {
			if float64(top)/scale <= b.GetUpperBound() {
				want += uint64(n)
			}
		}
		if b.GetCumulativeCount() != want {
			t.Errorf("%s: %d are at most %g, want %d", f.GetName(), b.GetCumulativeCount(), b.GetUpperBound(), want)
		}
	}
}

// TestBucketsAreExact shows that each exported bucket counts exactly the values up to its bound.
func TestBucketsAreExact(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		vs := rapid.SliceOfN(rapid.OneOf(rapid.Int64Range(0, 200), rapid.Int64Range(0, 1<<33), rapid.SampledFrom([]int64{63, 64, 127, 128, 1<<32 - 1, 1 << 32, math.MaxInt64})), 0, 50).Draw(rt, "values")
		registry := metrics.NewRegistry()
		m := gometrics.NewMetrics(registry)
		for _, v := range vs {
			m.Runtime.Update(v)
		}
		w := httptest.NewRecorder()
		prom.Handler(registry).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(w.Body)
		if err != nil {
			rt.Fatal(err)
		}
		h := families["swarmiji_runtime_seconds"].GetMetric()[0].GetHistogram()
		bounds := 0
		for _, b := range h.GetBucket() {
			if math.IsInf(b.GetUpperBound(), 1) {
				continue
			}
			bounds++
			limit := int64(math.Round(b.GetUpperBound() * 1e6))
			want := uint64(0)
			for _, v := range vs {
				if v <= limit {
					want++
				}
			}
			if b.GetCumulativeCount() != want {
				rt.Fatalf("%d of %v are at most %d, want %d", b.GetCumulativeCount(), vs, limit, want)
			}
		}
		if bounds != 27 || h.GetSampleCount() != uint64(len(vs)) {
			rt.Fatalf("%d bounds, %d values; want 27 and %d", bounds, h.GetSampleCount(), len(vs))
		}
	})
}

// TestOtherMetrics shows how other metrics of the registry are exported.
func TestOtherMetrics(t *testing.T) {
	registry := metrics.NewRegistry()
	gometrics.NewMetrics(registry).SetQueue("a.b", 4, -1, 2)
	falls := metrics.NewCounter()
	falls.Inc(5)
	falls.Dec(2)
	level, ratio := metrics.NewGauge(), metrics.NewGaugeFloat64()
	level.Update(7)
	ratio.Update(0.5)
	timer, sampled, whole := metrics.NewTimer(), metrics.NewHistogram(metrics.NewUniformSample(10)), new(middleware.Histogram)
	meter := metrics.NewMeter()
	defer meter.Stop()
	defer timer.Stop()
	timer.Update(time.Second)
	sampled.Update(9)
	sampled.Update(9)
	whole.Update(100)
	meter.Mark(3)
	for name, v := range map[string]any{
		"my.jobs": falls, "my jobs": metrics.NewGauge(), "2nd": level, "ratio": ratio, "t": timer, "s": sampled, "sizes": gometrics.Histogram{Histogram: whole}, "m": meter,
		"health": metrics.NewHealthcheck(func(metrics.Healthcheck) {}), "swarmiji.sent.more": level,
	} {
		if err := registry.Register(name, v); err != nil {
			t.Fatal(err)
		}
	}
	page := httptest.NewServer(prom.Handler(registry))
	defer page.Close()
	families := scrape(t, page.URL)
	got := values(families)
	for name, want := range map[string]float64{
		"my_jobs": 0, // "my jobs" comes first
		"_2nd":    7, "ratio": 0.5, "t_total": 1, "s_total": 2, "m_total": 3, "swarmiji_sent_more": 7,
		"swarmiji_queue_ready_tasks{queue=a.b}": 4, "swarmiji_queue_dead_tasks{queue=a.b}": 2,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %g, want %g; of %v", name, v, want, slices.Sorted(maps.Keys(got)))
		}
	}
	for _, name := range []string{"health", "swarmiji_queue_delayed_tasks{queue=a.b}"} {
		if _, there := got[name]; there {
			t.Errorf("%s is shown", name)
		}
	}
	checkHistogram(t, families["sizes"], whole, 1)
}

// TestEveryMetricIsDescribed shows that each metric has a distinct name for Prometheus, a unit and
// a help text.
func TestEveryMetricIsDescribed(t *testing.T) {
	registry := metrics.NewRegistry()
	m := gometrics.NewMetrics(registry)
	m.SetQueue("q", 0, 0, 0)
	m.SetOldest("q", 1, time.Now())
	m.OfTask("a.task").Wait.Update(1_000_000)
	n := 0
	registry.Each(func(string, any) { n++ })
	page := httptest.NewServer(prom.Handler(registry))
	defer page.Close()
	families := scrape(t, page.URL)
	if len(families) != n || n != len(middleware.Descriptions()) {
		t.Errorf("%d metrics, %d on the page, %d descriptions", n, len(families), len(middleware.Descriptions()))
	}
	waits := families["swarmiji_task_wait_seconds"].GetMetric()
	if len(waits) != 1 || waits[0].GetLabel()[0].GetName() != "task" || waits[0].GetLabel()[0].GetValue() != "a.task" || waits[0].GetHistogram().GetSampleSum() != 1 {
		t.Errorf("the waits of a task are %v", waits)
	}
	m.SetOldest("q", 1, time.Now().Add(-time.Hour))
	if age := values(scrape(t, page.URL))["swarmiji_queue_oldest_seconds{queue=q}"]; age < 3600 || age > 7200 {
		t.Errorf("the age is shown as %g seconds, want about 3600", age)
	}
	for _, d := range middleware.Descriptions() {
		if d.Unit == "" || !strings.HasSuffix(d.Help, ".") || !strings.HasPrefix(d.Name, middleware.Prefix) {
			t.Errorf("%+v", d)
		}
	}
}
