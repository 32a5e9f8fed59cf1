package browsertest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
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
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/dashboard"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// The size of the load.
const (
	loadPast    = 1_000_000 // tasks in the history
	loadQueues  = 1000
	loadWorkers = 200
	loadPages   = 50
	loadRate    = 125 // tasks per second; each sends four events
	loadTime    = 30 * time.Second
	loadRounds  = 3
	loadVisit   = 200 * time.Millisecond // after the last visit
)

// Settings of the process with the workers.
const (
	loadURL       = "SWARMIJI_LOAD_TEST_URL"
	loadNamespace = "SWARMIJI_LOAD_TEST_NAMESPACE"
)

var loadTask = task.New[int, int]("load.add")

func loadQueue(i int) string  { return fmt.Sprintf("load-%04d", i) }
func loadWorker(i int) string { return fmt.Sprintf("load-%03d", i) }

// loadProcess runs the workers and a producer until it is told to stop. Each second it prints its
// processor time and the number of its tasks.
func loadProcess() error {
	ctx, stop := suite.UntilStopped()
	defer stop()
	swarm, err := open.Open(ctx, os.Getenv(loadURL), open.Options{Control: true, Namespace: os.Getenv(loadNamespace), Logger: quiet()})
	if err != nil {
		return err
	}
	queues := make([]broker.Queue, loadQueues)
	for i := range queues {
		queues[i].Name = loadQueue(i)
	}
	p, err := swarm.Producer(producer.Config{Queues: queues, Logger: quiet()})
	if err != nil {
		return err
	}
	var ran atomic.Int64
	var workers sync.WaitGroup
	ended := make(chan error, loadWorkers)
	for i := range loadWorkers {
		serves := make(map[string]consumer.QueueConfig)
		for q := i; q < loadQueues; q += loadWorkers {
			serves[loadQueue(q)] = consumer.QueueConfig{Workers: 2}
		}
		c, err := swarm.Consumer(consumer.Config{
			Report: events.Report{NodeID: loadWorker(i)}, Control: &control.Config{Logger: quiet()}, Queues: serves, Logger: quiet(),
		})
		if err != nil {
			return err
		}
		err = loadTask.Handle(c, func(_ context.Context, n int) (int, error) {
			ran.Add(1)
			return n + 1, nil
		})
		if err != nil {
			return err
		}
		workers.Go(func() { ended <- c.Run(ctx) })
	}
	tick := time.NewTicker(time.Second / loadRate)
	defer tick.Stop()
	for n := 0; ctx.Err() == nil; n++ {
		<-tick.C
		if _, err := loadTask.Submit(ctx, p, n, task.WithQueue(loadQueue(rand.IntN(loadQueues)))); err != nil && ctx.Err() == nil {
			return err
		}
		if n%loadRate == 0 {
			var used syscall.Rusage
			if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
				return err
			}
			fmt.Println(used.Utime.Nano()+used.Stime.Nano(), ran.Load())
		}
	}
	workers.Wait()
	close(ended)
	for e := range ended {
		err = errors.Join(err, e)
	}
	return errors.Join(err, p.Close(context.Background()), swarm.Close(context.Background()))
}

// TestLoad opens pages of a large system: a million past tasks, 1,000 queues and 200 workers on
// Redis, which send 500 events per second. It prints the time of each page and the memory of this
// process. It also prints the processor time of the workers for each task, with and without pages.
func TestLoad(t *testing.T) {
	testserver.Thorough(t)
	l := newLoad(t)
	var without, with []time.Duration
	for range loadRounds {
		without = append(without, l.cost())
		with = append(with, l.watched(func() time.Duration { return l.cost() }))
	}
	slices.Sort(without)
	slices.Sort(with)
	a, b := without[loadRounds/2], with[loadRounds/2]
	t.Logf("processor time of the workers for each task, medians of %d: %v without open pages, %v with %d (%+.1f %%)", loadRounds, a, b, loadPages, 100*(float64(b)/float64(a)-1))
	t.Logf("without: %v; with: %v", without, with)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, page := range slices.Sorted(maps.Keys(l.first)) {
		for what, all := range map[string][]time.Duration{"all at once": l.first[page], "loads": l.times[page], "visits": l.visits[page]} {
			if len(all) == 0 {
				continue // this page does not load itself again
			}
			slices.Sort(all)
			t.Logf("%-45s %5d %s, median %6v, p95 %6v, longest %6v", "/"+page, len(all), what, all[len(all)/2].Round(time.Millisecond),
				all[len(all)*95/100].Round(time.Millisecond), all[len(all)-1].Round(time.Millisecond))
		}
	}
	t.Logf("the heap after each round: %d MiB", l.heaps)
}

// load is the large system, seen from a process with a recorder and a dashboard.
type load struct {
	*testing.T
	swarm   *open.Swarm
	history open.HistoryStore

	mu    sync.Mutex
	used  time.Duration // processor time of the workers
	tasks int64         // that have run
	heaps []uint64      // in MiB

	first  map[string][]time.Duration // of the loads with which the pages open, all at once
	times  map[string][]time.Duration // of the later loads of these pages
	visits map[string][]time.Duration // of further pages that are opened one after the other
}

// newLoad fills a history and starts the workers. They end with the test.
func newLoad(t *testing.T) *load {
	t.Helper()
	url, namespace := testserver.RequireRedis(t).URL(), testserver.Namespace()
	w := &world{T: t}
	var err error
	w.history, err = open.History(t.Context(), sqlite(t), open.HistoryOptions{Logger: quiet()})
	w.no(err)
	t.Cleanup(func() { w.closed("history", w.history.Close) })
	w.seed(loadPast, 60_000)
	w.swarm, err = open.Open(t.Context(), url, open.Options{Control: true, Namespace: namespace, Logger: quiet()})
	w.no(err)
	t.Cleanup(func() { w.closed("swarm", w.swarm.Close) })
	recorder, err := history.NewRecorder(history.RecorderConfig{Bus: w.swarm.Events, Store: w.history, MaxRecords: -1, Logger: quiet()})
	w.no(err)
	w.run("recorder", recorder.Run)
	l := &load{
		T: t, swarm: w.swarm, history: w.history,
		first: make(map[string][]time.Duration), times: make(map[string][]time.Duration), visits: make(map[string][]time.Duration),
	}
	suite.NewProcesses(t, l.heard, loadURL+"="+url, loadNamespace+"="+namespace).Start()
	testwait.Until(t, "tasks run", func() bool { _, n := l.now(); return n > 5*loadRate })
	return l
}

// heard reads a line of the process with the workers.
func (l *load) heard(_, line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := fmt.Sscan(line, &l.used, &l.tasks); err != nil {
		l.Errorf("%q: %v", line, err)
	}
}

// now returns the processor time and the number of tasks in the last line of the workers.
func (l *load) now() (used time.Duration, tasks int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.used, l.tasks
}

// cost returns the processor time of the workers for each task, over loadTime.
func (l *load) cost() time.Duration {
	l.Helper()
	used, tasks := l.now()
	testwait.Until(l.T, "tasks run", func() bool { _, n := l.now(); return n >= tasks+int64(loadRate*loadTime.Seconds()) })
	usedLater, tasksLater := l.now()
	return (usedLater - used) / time.Duration(tasksLater-tasks)
}

// watched runs f while loadPages pages of a dashboard are open.
func (l *load) watched(f func() time.Duration) time.Duration {
	l.Helper()
	w := &world{T: l.T, swarm: l.swarm, history: l.history}
	commands, err := control.NewClient(control.ClientConfig{Bus: w.swarm.Control, Replies: w.swarm.Replies})
	w.no(err)
	w.api, err = open.Inspector(w.swarm, inspect.Config{Control: commands, History: w.history, Logger: quiet()})
	w.no(err)
	d, err := dashboard.New(dashboard.Config{API: w.api, Logger: quiet()})
	w.no(err)
	ctx, cancel := context.WithCancel(l.Context())
	var open sync.WaitGroup
	open.Go(func() {
		if err := w.api.Run(ctx); err != nil && ctx.Err() == nil {
			l.Errorf("api: %v", err)
		}
	})
	w.until("all workers and queues are known", func() bool {
		workers, err1 := w.api.ListWorkers(w.ctx(), inspect.WorkerQuery{Limit: inspect.MaxLimit})
		queues, err2 := w.api.ListQueues(w.ctx(), inspect.QueueQuery{Limit: inspect.MaxLimit})
		return err1 == nil && err2 == nil && len(workers.Workers) >= loadWorkers && len(queues.Queues) == min(inspect.MaxLimit, loadQueues)
	})
	s := httptest.NewServer(d)
	defer s.Close()
	paths := []string{
		"", "queues", "queue?name=" + loadQueue(7), "tasks", "tasks?query=state%3Afailed", "task?id=past-0060000", "dead", "workflows", "schedules", "workers",
		"worker?node=" + loadWorker(7), "events", "settings", "audit",
	}
	var opened sync.WaitGroup
	opened.Add(loadPages)
	for i := range loadPages {
		open.Go(func() { l.page(ctx, s.URL+"/", paths[i%len(paths)], opened.Done) })
	}
	opened.Wait()
	open.Go(func() { l.visit(ctx, s.URL+"/", paths) })
	cost := f()
	cancel()
	open.Wait()
	if err := d.Close(context.Background()); err != nil {
		l.Errorf("closing the dashboard: %v", err)
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heaps = append(l.heaps, m.HeapAlloc>>20)
	return cost
}

// page behaves as a page in a browser until ctx ends. It loads the page, keeps its stream, and
// loads the page again whenever the stream says that something has changed.
func (l *load) page(ctx context.Context, base, path string, opened func()) {
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	l.show(ctx, client, base, path, l.first)
	opened()
	all := ""
	if path == "events" {
		all = "?all=1"
	}
	res, err := get(ctx, client, base+"live"+all)
	if err != nil {
		if ctx.Err() == nil {
			l.Errorf("/live: %v", err)
		}
		return
	}
	defer func() { _ = res.Body.Close() }() // ctx has ended
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		switch strings.TrimPrefix(lines.Text(), "event: ") {
		case "changed":
			l.show(ctx, client, base, path, l.times)
		case "lost":
			l.Errorf("/%s: the stream has lost events", path)
		}
	}
	if ctx.Err() == nil {
		l.Errorf("/%s: the stream has ended", path)
	}
}

// visit opens the pages in turn, like a further user, until ctx ends.
func (l *load) visit(ctx context.Context, base string, paths []string) {
	tick := time.NewTicker(loadVisit)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		client := &http.Client{Transport: &http.Transport{}}
		l.show(ctx, client, base, paths[i%len(paths)], l.visits)
		client.CloseIdleConnections()
	}
}

// show loads a page and adds the time that it took to times.
func (l *load) show(ctx context.Context, client *http.Client, base, path string, times map[string][]time.Duration) {
	began := time.Now()
	res, err := get(ctx, client, base+path)
	if err != nil {
		if ctx.Err() == nil {
			l.Errorf("/%s: %v", path, err)
		}
		return
	}
	body, err := io.ReadAll(res.Body)
	_ = res.Body.Close() // it was read
	took := time.Since(began)
	if ctx.Err() != nil {
		return
	}
	if err != nil || res.StatusCode != http.StatusOK {
		_, main, _ := strings.Cut(string(body), "<main")
		l.Errorf("/%s after %v: %s, %v\n%.700s", path, took, res.Status, err, main)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	times[path] = append(times[path], took)
}

// get requests an address with a client.
func get(ctx context.Context, client *http.Client, address string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, err
	}
	return client.Do(req)
}
