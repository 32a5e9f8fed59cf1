package browsertest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/dashboard"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/task"
)

// The load.
const (
	loadEnv     = "SWARMIJI_LOAD"
	loadTasks   = 1_000_000
	loadQueues  = 1000
	loadWorkers = 200
	loadStreams = 50
	loadEvents  = 500 // per second
	loadReads   = 40  // of each page
	loadRuns    = 2000
	// heapBound limits the memory of the test process, which has all parts of the system and the
	// readers of the streams.
	heapBound = 512 << 20
)

// TestLoad measures the dashboard with much data and many readers, and prints the figures. Times
// depend on the machine, so only statuses, lost streams and memory can fail the test.
func TestLoad(t *testing.T) {
	if os.Getenv(loadEnv) == "" {
		t.Skip(loadEnv + " is not set; make browser runs this")
	}
	w := startWorld(t, sqlite(t))
	began := time.Now()
	w.seed(loadTasks, 5000)
	w.queues()
	t.Logf("%d tasks of history and %d queues were stored in %v", loadTasks, loadQueues, time.Since(began).Round(time.Second))

	alone := w.cost("recorder alone", func() {})
	w.inspect()
	base := w.serve(dashboard.Config{}, "/", nil)
	w.cost("with a dashboard without readers", func() {})
	w.cost("with a dashboard and one page", func() { w.fetch(base + "queues") })
	_ = alone

	w.run("workers", w.beat)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	defer cancel()
	var (
		streams  sync.WaitGroup
		received atomic.Int64
		broken   atomic.Int64
	)
	for i := range loadStreams {
		streams.Go(func() {
			path := "live"
			if i%2 == 0 {
				path = "live?all=1"
			}
			if err := follow(ctx, base+path, &received); err != nil && ctx.Err() == nil {
				t.Errorf("a stream has ended: %v", err)
				broken.Add(1)
			}
		})
	}
	w.until("the streams are open", func() bool { return received.Load() >= loadStreams })
	var sent atomic.Int64
	w.run("events", func(ctx context.Context) error { return w.publish(ctx, &sent) })

	first := used()
	since := time.Now()
	for _, path := range []string{
		"", "queues", "queue?name=load-0500", "tasks", "tasks?query=state%3Afailed+since%3A24h", "tasks?query=name%3Apast.kind7+queue%3Apast-7", "tasks?query=error~%22row+5%22+state%3Afailed",
		"task?id=past-0500000", "dead", "dead?queue=load-0500", "workers", "worker?node=load-100", "events", "schedules", "jobs", "settings", "audit",
	} {
		times := make([]time.Duration, loadReads)
		for i := range times {
			began := time.Now()
			w.fetch(base + path)
			times[i] = time.Since(began)
		}
		initial := times[0]
		slices.Sort(times)
		t.Logf("%-45s first %6s  median %6s  p95 %6s", "/"+path, ms(initial), ms(times[loadReads/2]), ms(times[loadReads*95/100]))
	}
	took := time.Since(since)
	t.Logf("%d streams got %d lines; %.0f events per second were sent; the process used %.0f %% of a processor", loadStreams, received.Load(),
		float64(sent.Load())/took.Seconds(), 100*(used()-first).Seconds()/took.Seconds())
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	t.Logf("heap %d MiB in use, %d MiB from the system", m.HeapInuse>>20, m.Sys>>20)
	if m.HeapInuse > heapBound {
		t.Errorf("the heap has %d MiB", m.HeapInuse>>20)
	}
	cancel()
	streams.Wait()
	if broken.Load() > 0 {
		t.Errorf("%d streams have ended", broken.Load())
	}
}

func ms(d time.Duration) string { return fmt.Sprintf("%.0f ms", float64(d)/float64(time.Millisecond)) }

// used returns the time that the processors have worked for this process.
func used() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// queues makes the queues, every tenth with a task.
func (w *world) queues() {
	w.Helper()
	d, ok := capability.As[broker.Declarer](w.swarm.Broker)
	if !ok {
		w.Fatal("the broker declares no queues")
	}
	var all []broker.Queue
	for i := range loadQueues {
		all = append(all, broker.Queue{Name: fmt.Sprintf("load-%04d", i)})
	}
	w.no(d.Declare(w.ctx(), all...))
	for i := 0; i < loadQueues; i += 10 {
		submit(w, spareTask, i, task.WithQueue(all[i].Name))
	}
}

// cost runs tasks and returns the time of processors for one, the least of three rounds.
func (w *world) cost(what string, between func()) (least time.Duration) {
	w.Helper()
	for range 3 {
		before := used()
		var last task.ID
		for range loadRuns {
			last = submit(w, addTask, 1)
		}
		between()
		w.until("all tasks are recorded", func() bool {
			r, err := w.history.Get(w.ctx(), last)
			return err == nil && !r.Ended.IsZero()
		})
		if one := (used() - before) / loadRuns; least == 0 || one < least {
			least = one
		}
	}
	w.Logf("%s: %v of a processor for each task, from submission to history", what, least.Round(time.Microsecond))
	return least
}

// fetch gets a page, which must be there.
func (w *world) fetch(url string) {
	w.Helper()
	r, err := http.NewRequestWithContext(w.Context(), http.MethodGet, url, nil)
	w.no(err)
	resp, err := http.DefaultClient.Do(r)
	w.no(err)
	defer func() { _ = resp.Body.Close() }()
	n, err := io.Copy(io.Discard, resp.Body)
	w.no(err)
	if resp.StatusCode != http.StatusOK || n < 1000 {
		w.Errorf("%s: status %d, %d bytes", url, resp.StatusCode, n)
	}
}

// follow reads a stream until ctx ends, and counts its lines.
func follow(ctx context.Context, url string, lines *atomic.Int64) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	s := bufio.NewScanner(resp.Body)
	for s.Scan() {
		if strings.HasPrefix(s.Text(), "event: lost") {
			return fmt.Errorf("%s: events are lost", url)
		}
		lines.Add(1)
	}
	if err := s.Err(); err != nil {
		return err
	}
	return io.ErrUnexpectedEOF
}

// beat sends the heartbeats of the workers until ctx ends.
func (w *world) beat(ctx context.Context) error {
	const every = 2 * time.Second
	tick := time.NewTicker(every / loadWorkers)
	defer tick.Stop()
	for i := 0; ; i++ {
		n := i % loadWorkers
		e := events.Event{Type: events.WorkerHeartbeat, NodeID: fmt.Sprintf("load-%03d", n), Time: time.Now(), Worker: &events.Worker{
			Hostname: "host", Role: events.RoleConsumer, Freq: every, Active: n % 5, Processed: int64(i), Queues: []string{fmt.Sprintf("load-%04d", n)},
		}}
		if err := w.swarm.Events.Publish(ctx, e); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// publish sends the events of tasks until ctx ends.
func (w *world) publish(ctx context.Context, sent *atomic.Int64) error {
	tick := time.NewTicker(time.Second / 20)
	defer tick.Stop()
	for i := 0; ; {
		for range loadEvents / 20 {
			id := task.ID(fmt.Sprintf("live-%07d", i/2))
			e := events.Event{Type: events.TaskSent, TaskID: id, NodeID: "load-001", Time: time.Now(), Name: "live.task", Queue: "load-0500"}
			if i%2 == 1 {
				e = events.Event{Type: events.TaskSucceeded, TaskID: id, NodeID: "load-001", Time: time.Now(), Runtime: time.Millisecond, Result: "1"}
			}
			if err := w.swarm.Events.Publish(ctx, e); err != nil {
				return err
			}
			i++
			sent.Add(1)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
