package middleware_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/task"
)

// ran returns the request of an attempt that started at the given time.
func ran(name string, sent, started time.Time, change ...func(r *task.Request)) *task.Request {
	e := &task.Envelope{ID: "1", Name: name, SentAt: sent}
	r := task.NewRequest(e, nil)
	r.Queue, r.StartedAt, r.Deliveries = "mail", started, 1
	for _, f := range change {
		f(r)
	}
	return r
}

func TestObserveRun(t *testing.T) {
	start := time.Now()
	sent := start.Add(-5 * time.Second)
	due := func(ago time.Duration) func(*task.Request) {
		return func(r *task.Request) { r.Meta.NotBefore = task.Set(start.Add(-ago)) }
	}
	generation := func(r *task.Request) { r.Generation = 1 }
	for _, c := range []struct {
		what   string
		r      *task.Request
		known  bool
		waited time.Duration
	}{
		{"a first attempt", ran("a", sent, start), true, 5 * time.Second},
		{"a delayed task", ran("a", sent, start, due(time.Second)), true, time.Second},
		{"a task for a time before its submission", ran("a", sent, start, due(time.Hour)), true, 5 * time.Second},
		{"a retry after a delay", ran("a", sent, start, generation, due(2*time.Second)), true, 2 * time.Second},
		{"a retry at once", ran("a", sent, start, generation), false, 0},
		{"a second delivery", ran("a", sent, start, func(r *task.Request) { r.Deliveries = 2 }), false, 0},
		{"a task without a time", ran("a", time.Time{}, start), false, 0},
		{"a clock that is late", ran("a", start.Add(time.Minute), start), true, 0},
	} {
		var m middleware.Metrics
		m.ObserveRun(c.r, start.Add(time.Millisecond))
		for what, times := range map[string]*middleware.Times{"queue": m.OfQueue("mail"), "task": m.OfTask("a")} {
			if n := times.Run.Count(); n != 1 || times.Run.Sum() != 1000 {
				t.Errorf("%s: the %s has %d runs of %d microseconds", c.what, what, n, times.Run.Sum())
			}
			if n := times.Wait.Count(); (n == 1) != c.known || times.Wait.Sum() != c.waited.Microseconds() {
				t.Errorf("%s: the %s has %d waits of %d microseconds, want %v", c.what, what, n, times.Wait.Sum(), c.waited)
			}
		}
		if m.Runtime.Count() != 1 {
			t.Errorf("%s: Runtime has %d values", c.what, m.Runtime.Count())
		}
	}
}

// TestNamesAreBounded shows that the names of tasks have at most MaxTaskNames metrics, also if many
// goroutines add them at once.
func TestNamesAreBounded(t *testing.T) {
	told := map[string]int{} // OnLabel is not called by two goroutines at once
	m := &middleware.Metrics{OnLabel: func(d middleware.Description, value string, _ any) {
		if d.Name == middleware.TaskRuntime {
			told[value]++
		}
	}}
	var all sync.WaitGroup
	const lanes, each = 4, 2 * middleware.MaxTaskNames
	for range lanes {
		all.Go(func() {
			for i := range each {
				m.OfTask(fmt.Sprint("task-", i)).Run.Update(1)
			}
		})
	}
	all.Wait()
	if n := len(told); n != middleware.MaxTaskNames+1 {
		t.Errorf("%d names are told, want %d and %q", n, middleware.MaxTaskNames, middleware.OtherTasks)
	}
	for name, n := range told {
		if n != 1 {
			t.Errorf("%q is told %d times", name, n)
		}
	}
	named := int64(0)
	for name := range told {
		if name != middleware.OtherTasks {
			named += m.OfTask(name).Run.Count()
		}
	}
	if named != lanes*middleware.MaxTaskNames {
		t.Errorf("the names have %d runs, want %d", named, lanes*middleware.MaxTaskNames)
	}
	if n := m.OfTask("a new one").Run.Count(); n != lanes*(each-middleware.MaxTaskNames) {
		t.Errorf("%q has %d runs, want %d", middleware.OtherTasks, n, lanes*(each-middleware.MaxTaskNames))
	}
}

func TestSetOldest(t *testing.T) {
	gauges := map[string]*middleware.Gauge{}
	m := &middleware.Metrics{OnLabel: func(d middleware.Description, value string, metric any) {
		if g, ok := metric.(*middleware.Gauge); ok {
			gauges[d.Name+"."+value] = g
		}
	}}
	m.SetOldest("rabbit", 0, time.Time{})
	m.SetOldest("rabbit", 3, time.Time{})
	if gauges[middleware.QueueOldest+".rabbit"] != nil {
		t.Error("an age is shown that the broker does not know")
	}
	if gauges[middleware.QueueLastWait+".rabbit"] == nil {
		t.Error("there is no wait of the last task")
	}
	m.SetOldest("mail", 3, time.Now().Add(-time.Hour))
	g := gauges[middleware.QueueOldest+".mail"]
	if g == nil || g.Value() < time.Hour.Microseconds() {
		t.Fatalf("the age is %v", g)
	}
	m.SetOldest("mail", 0, time.Time{})
	if g.Value() != 0 {
		t.Errorf("the age of an empty queue is %d", g.Value())
	}
	m.ObserveRun(ran("a", time.Now().Add(-time.Minute), time.Now()), time.Now())
	if w := gauges[middleware.QueueLastWait+".mail"].Value(); w < time.Minute.Microseconds() {
		t.Errorf("the wait of the last task is %d", w)
	}
}

// TestObserveRunAllocates shows that the metrics of a known queue and name cost no allocation.
func TestObserveRunAllocates(t *testing.T) {
	var m middleware.Metrics
	r := ran("a", time.Now(), time.Now())
	end := time.Now()
	if n := testing.AllocsPerRun(100, func() { m.ObserveRun(r, end) }); n != 0 {
		t.Errorf("%v allocations for each run", n)
	}
}
