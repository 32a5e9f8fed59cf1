package report

import (
	"context"
	"log/slog"
	"math"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/events"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bus stores the events that it gets. It may block or panic unless prompt is true.
type bus struct {
	events.EventBus
	prompt bool
	block  chan struct{} // non-nil: Publish waits until it is closed
	panics atomic.Bool

	mu      sync.Mutex
	got     []events.Event
	dropped uint64
}

// promptBus is a bus that implements events.PromptPublisher.
type promptBus struct{ *bus }

func (b promptBus) PublishNow(e events.Event) error { return b.Publish(context.Background(), e) }

func (b *bus) Dropped() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dropped
}

func (b *bus) Publish(_ context.Context, e events.Event) error {
	if b.block != nil {
		<-b.block
	}
	if b.panics.Load() {
		panic("a bus with a mistake")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.got = append(b.got, e)
	return nil
}

func (b *bus) types() (ts []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.got {
		ts = append(ts, e.Type)
	}
	return ts
}

func config(b *bus) Config {
	c := Config{Bus: b, Report: events.Report{NodeID: "n-1"}, Role: events.RoleConsumer, Logger: slog.New(slog.DiscardHandler)}
	if b.prompt {
		c.Bus = promptBus{b}
	}
	return c
}

func TestNothingWithoutABus(t *testing.T) {
	r := New(Config{})
	if r != nil {
		t.Fatal("a Reporter without a bus")
	}
	r.Start()
	r.Publish(&events.Event{Type: events.TaskSent})
	r.Stop(t.Context())
}

func TestEventsOfANode(t *testing.T) {
	for _, prompt := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := &bus{prompt: prompt, dropped: 5}
			c := config(b)
			active, busLost := 0, uint64(0)
			c.Counts = func() Counts { active++; return Counts{Active: active, Processed: int64(10 * active)} }
			c.Report.HeartbeatFields = func() map[string]any { return map[string]any{"zone": "b", "active": 99} }
			c.BusLost = func(n uint64) { busLost = n }
			r := New(c)
			begin := time.Now()
			r.Start()
			r.Start()
			time.Sleep(5 * time.Second)
			r.Publish(&events.Event{Type: events.TaskStarted, NodeID: "somebody else"})
			r.Stop(t.Context())
			r.Stop(t.Context())
			r.Start()
			time.Sleep(time.Minute)
			want := []string{events.WorkerOnline, events.WorkerHeartbeat, events.WorkerHeartbeat, events.TaskStarted, events.WorkerOffline}
			if diff := cmp.Diff(want, b.types()); diff != "" {
				t.Fatalf("prompt %v (-want +got):\n%s", prompt, diff)
			}
			host, _ := os.Hostname()
			for i, at := range []time.Duration{0, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second} {
				e := b.got[i]
				if e.NodeID != "n-1" || !e.Time.Equal(begin.Add(at)) {
					t.Errorf("%s is of %s at %v, want n-1 at %v", e.Type, e.NodeID, e.Time.Sub(begin), at)
				}
				if e.Type == events.TaskStarted {
					continue
				}
				w := *e.Worker
				if e.Type != events.WorkerOffline && runtime.GOOS == "linux" && (!(w.Load >= 0 && w.Load <= 1) || !(w.Mem > 0 && w.Mem <= 1)) {
					t.Errorf("load %v, mem %v", w.Load, w.Mem)
				}
				w.Load, w.Mem = 0, 0
				n := int(w.Processed / 10)
				want := events.Worker{
					Hostname: host, Role: events.RoleConsumer, Freq: 2 * time.Second, Ident: "swarmiji", Version: w.Version,
					System: runtime.GOOS + "/" + runtime.GOARCH, Active: n, Processed: int64(10 * n),
				}
				if diff := cmp.Diff(want, w); diff != "" || n == 0 || w.Version == "" {
					t.Errorf("%s (-want +got):\n%s", e.Type, diff)
				}
				sent := e
				if err := events.Normalize(&sent); err != nil || sent.Worker.Active != n || e.Type == events.WorkerHeartbeat && sent.Fields["zone"] != "b" || sent.Fields["active"] != nil {
					t.Errorf("%s arrives as %+v, %v: its own fields are to win", e.Type, sent, err)
				}
			}
			if busLost != 5 {
				t.Errorf("the bus dropped %d, want 5", busLost)
			}
		})
	}
}

func TestNoHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bus{prompt: true}
		c := config(b)
		c.Report.HeartbeatEvery = -1
		r := New(c)
		r.Start()
		r.Publish(&events.Event{Type: events.TaskStarted})
		time.Sleep(time.Hour)
		r.Stop(t.Context())
		if diff := cmp.Diff([]string{events.TaskStarted}, b.types()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

// TestStuckBus shows that callers do not wait for a bus that blocks. Memory is bounded, the oldest
// events are dropped, and all lost events are counted.
func TestStuckBus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bus{block: make(chan struct{})}
		c := config(b)
		var lost atomic.Int64
		c.Lost = func(n int64) { lost.Add(n) }
		r := New(c)
		r.Start()
		begin := time.Now()
		synctest.Wait() // the bus holds worker-online
		const n = capacity + 1000
		for range n {
			r.Publish(&events.Event{Type: events.TaskStarted})
		}
		if got := lost.Load(); got != n-capacity {
			t.Errorf("%d counted as lost, want %d", got, n-capacity)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r.Stop(ctx)
		if took := time.Since(begin); took != time.Second {
			t.Errorf("Stop took %v, want its ctx's second", took)
		}
		// the last is worker-offline; the bus still holds worker-online
		if got := lost.Load(); got != n+1 {
			t.Errorf("%d counted as lost after Stop, want %d", got, n+1)
		}
		r.Publish(&events.Event{Type: events.TaskStarted})
		if got := lost.Load(); got != n+2 {
			t.Errorf("%d counted as lost after a Publish after Stop, want %d", got, n+2)
		}
		close(b.block)
		synctest.Wait()
		if diff := cmp.Diff([]string{events.WorkerOnline}, b.types()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

func TestPanickingBus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bus{}
		b.panics.Store(true)
		c := config(b)
		var log strings.Builder
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		var lost atomic.Int64
		c.Lost = func(n int64) { lost.Add(n) }
		r := New(c)
		r.Publish(&events.Event{Type: events.TaskSent})
		r.Publish(&events.Event{Type: events.TaskSent})
		synctest.Wait()
		b.panics.Store(false)
		r.Publish(&events.Event{Type: events.TaskStarted})
		r.Stop(t.Context())
		if diff := cmp.Diff([]string{events.TaskStarted}, b.types()); diff != "" || lost.Load() != 2 {
			t.Errorf("%d lost (-want +got):\n%s", lost.Load(), diff)
		}
		if n := strings.Count(log.String(), "a bus with a mistake"); n != 1 {
			t.Errorf("logged %d times: %s", n, &log)
		}
	})
}

// TestFieldsThatMisbehave shows that a HeartbeatFields function that panics or hangs costs fields
// or heartbeats, but does not delay Stop.
func TestFieldsThatMisbehave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bus{prompt: true}
		c := config(b)
		release := make(chan struct{})
		calls := 0
		c.Report.HeartbeatFields = func() map[string]any {
			if calls++; calls == 1 {
				panic("no fields")
			}
			<-release
			return nil
		}
		r := New(c)
		r.Start()
		time.Sleep(10 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r.Stop(ctx)
		close(release)
		synctest.Wait()
		want := []string{events.WorkerOnline, events.WorkerHeartbeat, events.WorkerOffline}
		if diff := cmp.Diff(want, b.types()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

// The texts come from real machines.
func TestLoadAndMemory(t *testing.T) {
	for s, want := range map[string]float64{
		"0.50 0.28 0.20 1/345 12345\n": 0.125, "9.00 8 7 1/2 3": 1, "0.00 0 0 1/1 1": 0, "": -1, "x": -1, "NaN 0": -1, "-1 0": -1,
	} {
		if got := parseLoad(s, 4); got != want {
			t.Errorf("load of %q is %v, want %v", s, got, want)
		}
	}
	for s, want := range map[string]float64{
		"MemTotal:       16000000 kB\nMemFree:         1000000 kB\nMemAvailable:   12000000 kB\nBuffers: 1 kB\n": 0.25,
		"MemTotal: 10 kB\nMemAvailable: 20 kB\n": 0,
		"MemTotal: 0 kB\nMemAvailable: 0 kB\n":   -1,
		"MemTotal: 10 kB\n":                      -1, "": -1, "MemTotal:\nMemAvailable:": -1,
	} {
		if got := parseMemory(s); math.Abs(got-want) > 1e-9 {
			t.Errorf("memory of %q is %v, want %v", s, got, want)
		}
	}
}
