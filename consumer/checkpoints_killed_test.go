package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

const walkSteps = 10

var walking = task.New[int, int]("walking", task.WithRetryDelay(0), task.WithMaxRetries(-1))

// walkerStore is a result store that prints each call about checkpoints.
type walkerStore struct {
	resultstore.ResultStore
	to resultstore.Checkpointer
}

// Unwrap returns the store, for [capability.As].
func (s walkerStore) Unwrap() any { return s.ResultStore }

func (s walkerStore) SaveCheckpoint(ctx context.Context, a resultstore.Attempt, c resultstore.Checkpoint) error {
	begin := time.Now()
	err := s.to.SaveCheckpoint(ctx, a, c)
	say("stored", a, c.Name, begin, err)
	return err
}

func (s walkerStore) LoadCheckpoints(ctx context.Context, a resultstore.Attempt) ([]resultstore.Checkpoint, error) {
	begin := time.Now()
	all, err := s.to.LoadCheckpoints(ctx, a)
	say("loaded", a, "-", begin, err)
	return all, err
}

// say prints a step of an attempt that lasted from begin until now.
func say(what string, a resultstore.Attempt, step string, begin time.Time, err error) {
	if errors.Is(err, resultstore.ErrStale) {
		what += "-stale"
	} else if err != nil {
		what += "-failed"
	}
	fmt.Println(what, a.ID, step, a.Generation, a.Deliveries, begin.UnixNano(), time.Now().UnixNano())
}

// runWalker runs a consumer whose handler has ten checkpoints, and sometimes fails between them.
// Half of the tasks sleep after five of them.
func runWalker(ctx context.Context) error {
	quiet := slog.New(slog.DiscardHandler)
	s, err := open.Open(context.WithoutCancel(ctx), os.Getenv(memberURL), open.Options{Namespace: os.Getenv(memberNamespace), Logger: quiet})
	if err != nil {
		return err
	}
	to, ok := capability.As[resultstore.Checkpointer](s.Results)
	if !ok {
		return errors.New("the store keeps no checkpoints")
	}
	c, err := consumer.New(consumer.Config{
		Broker: s.Broker, Results: walkerStore{s.Results, to}, Logger: quiet, Tuning: consumer.Tuning{MaxCrashes: -1},
		Queues: map[string]consumer.QueueConfig{"default": {Workers: 8, Prefetch: 16, Lease: time.Second}},
	})
	if err != nil {
		return err
	}
	err = walking.Handle(c, func(ctx context.Context, i int) (int, error) {
		r, _ := task.FromContext(ctx)
		a := resultstore.Attempt{ID: r.ID, Generation: r.Generation, Deliveries: r.Deliveries}
		ctx = context.WithoutCancel(ctx) // a suspended process does not learn that it lost the task
		say("began", a, "-", time.Now(), nil)
		sum := 0
		for step := range walkSteps {
			if i%2 == 0 && step == walkSteps/2 {
				err := task.Sleep(ctx, "sleep", 20*time.Millisecond)
				if err != nil && task.VerdictOf(err) == nil {
					err = task.Retry(err)
				}
				if err != nil {
					return 0, err
				}
			}
			v, err := task.Checkpoint(ctx, fmt.Sprint("step-", step), func(context.Context) (int, error) {
				say("ran", a, fmt.Sprint("step-", step), time.Now(), nil)
				<-time.After(rand.N(2 * time.Millisecond))
				return i + step, nil
			})
			if err != nil {
				return 0, task.Retry(err)
			}
			sum += v
			if rand.N(100) == 0 {
				return 0, task.Retry(errors.New("bad luck"))
			}
		}
		say("done", a, "-", time.Now(), nil)
		return sum, nil
	})
	if err != nil {
		return err
	}
	return errors.Join(c.Run(ctx), s.Close(context.Background()))
}

// walkEvent is a line of say.
type walkEvent struct {
	what                   string
	generation, deliveries int
	begin, end             int64
}

// older reports whether the fencing token of e is older than that of o.
func (e walkEvent) older(o walkEvent) bool {
	return e.generation < o.generation || e.generation == o.generation && e.deliveries < o.deliveries
}

// walk holds the events of one task.
type walk struct {
	attempts map[[2]int]bool
	loads    []walkEvent
	steps    map[string][]walkEvent // stored and ran, by step
}

// walks are the tasks that the processes have named.
type walks struct {
	mu    sync.Mutex
	tasks map[string]*walk
	said  []string
	done  atomic.Int64
	stale atomic.Int64
}

// hear reads a line of a process.
func (ws *walks) hear(node, line string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	var e walkEvent
	var id, step string
	if _, err := fmt.Sscan(line, &e.what, &id, &step, &e.generation, &e.deliveries, &e.begin, &e.end); err != nil {
		ws.said = append(ws.said, node+": "+line)
		return
	}
	w := ws.tasks[id]
	if w == nil {
		w = &walk{attempts: make(map[[2]int]bool), steps: make(map[string][]walkEvent)}
		ws.tasks[id] = w
	}
	switch e.what {
	case "began":
		w.attempts[[2]int{e.generation, e.deliveries}] = true
	case "done":
		ws.done.Add(1)
	case "loaded":
		w.loads = append(w.loads, e)
	case "stored", "ran":
		w.steps[step] = append(w.steps[step], e)
	case "stored-stale", "loaded-stale":
		ws.stale.Add(1)
	default:
		ws.said = append(ws.said, node+": "+line)
	}
}

// check reports each task that breaks a promise, and returns how many ran in one attempt.
func (ws *walks) check(t *testing.T) (single, repeated int) {
	t.Helper()
	for id, w := range ws.tasks {
		if len(w.attempts) == 1 {
			single++
		}
		for _, e := range w.loads {
			if e.generation == 0 && e.deliveries <= 1 {
				t.Errorf("task %s: a first attempt read its checkpoints", id)
			}
		}
		for step, events := range w.steps {
			writes := make(map[[2]int]int)
			for _, stored := range events {
				if stored.what != "stored" {
					repeated++
					continue
				}
				if writes[[2]int{stored.generation, stored.deliveries}]++; writes[[2]int{stored.generation, stored.deliveries}] > 1 {
					t.Errorf("task %s: an attempt stored %s twice", id, step)
				}
				for _, other := range events {
					// a suspended attempt may continue, but its store is refused
					if other.what == "ran" && other.begin > stored.end && !other.older(stored) {
						t.Errorf("task %s: %s ran in attempt %+v after %+v had stored it", id, step, other, stored)
					}
				}
				for _, e := range append(events, w.loads...) {
					if e.what != "ran" && stored.older(e) && stored.begin > e.end {
						t.Errorf("task %s: attempt %+v stored %s after the newer attempt %+v had used the store", id, stored, step, e)
					}
				}
			}
		}
	}
	return single, repeated - walkSteps*len(ws.tasks)
}

// TestCheckpointsKilled kills consumers with SIGKILL, and suspends some for longer than their
// leases. No stored checkpoint runs again, and no stale attempt stores one. A task that runs in one
// attempt reads nothing and writes once for each checkpoint.
func TestCheckpointsKilled(t *testing.T) {
	t.Parallel() // it mostly waits for leases to end
	kills, tasks := 4, 100
	if testserver.IsThorough() {
		kills, tasks = 50, 1000
	}
	dir, err := os.MkdirTemp("/dev/shm", "walk") //nolint:usetesting // commits on a disk are slow
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for name, url := range map[string]func(t *testing.T) string{
		"sqlite":   func(*testing.T) string { return "sqlite://" + filepath.Join(dir, "app.db") },
		"postgres": func(t *testing.T) string { return testserver.RequirePostgres(t).URL() },
		"redis":    func(t *testing.T) string { return testserver.RequireRedis(t).URL() },
		"nats":     func(t *testing.T) string { return testserver.RequireNATS(t).URL() },
	} {
		t.Run(name, func(t *testing.T) { walkersKilled(t, url(t), name != "sqlite", kills, tasks) })
	}
}

// walkersKilled is TestCheckpointsKilled on one server. Without suspends no process is suspended:
// on SQLite it may hold the lock for which all others wait.
func walkersKilled(t *testing.T, url string, suspends bool, kills, tasks int) {
	ns, quiet := testserver.Namespace(), slog.New(slog.DiscardHandler)
	s, err := open.Open(t.Context(), url, open.Options{Namespace: ns, Logger: quiet})
	must0(t, err)
	p, err := producer.New(producer.Config{Broker: s.Broker, Results: s.Results, Logger: quiet})
	must0(t, err)
	t.Cleanup(func() {
		ctx := context.Background()
		if err := errors.Join(p.Close(ctx), s.Close(ctx)); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	id := func(i int) task.ID { return task.ID(fmt.Sprint("walk-", i)) }
	for i := range tasks {
		_, err := walking.Submit(t.Context(), p, i, task.WithID(id(i)))
		must0(t, err)
	}
	ws := &walks{tasks: make(map[string]*walk)}
	processes := suite.NewProcesses(t, ws.hear, memberURL+"="+url, memberNamespace+"="+ns, memberWalk+"=1")
	alive := []*suite.Process{processes.Start(), processes.Start()}
	for i := range kills {
		target := int64((i + 1) * tasks / (kills + 2))
		testwait.Until(t, "tasks are done", func() bool { return ws.done.Load() >= target })
		if suspends && i%5 == 2 {
			must0(t, alive[i%2].Signal(syscall.SIGSTOP))
			<-time.After(3 * time.Second) // longer than the lease
			must0(t, alive[i%2].Signal(syscall.SIGCONT))
			continue
		}
		<-time.After(rand.N(10 * time.Millisecond))
		alive[i%2].Kill()
		alive[i%2] = processes.Start()
	}
	inspector, _ := capability.As[broker.Inspector](s.Broker)
	testwait.Until(t, "all tasks have ended", func() bool {
		st, err := inspector.Stats(t.Context(), "default")
		return err == nil && st.Ready+st.Held+st.Delayed == 0
	})
	for _, process := range alive {
		if err := process.Stop(); err != nil {
			t.Errorf("%s: %v", process.Node, err)
		}
	}
	for i := range tasks {
		want := walkSteps*i + walkSteps*(walkSteps-1)/2
		if got, err := task.FutureOf[int](p.Pending(id(i))).Get(testwait.Long(t)); got != want || err != nil {
			t.Errorf("task %d ended with %d, %v; want %d", i, got, err, want)
		}
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if len(ws.said) > 0 {
		t.Errorf("the consumers say %q", strings.Join(ws.said, "\n"))
	}
	single, repeated := ws.check(t)
	if single == tasks || len(ws.tasks) != tasks {
		t.Errorf("%d of %d tasks were heard of, %d ran in one attempt: the test shows nothing", len(ws.tasks), tasks, single)
	}
	t.Logf("%d tasks, %d in one attempt, %d kills, %d calls of stale attempts refused, %d runs of checkpoints that were not stored",
		tasks, single, kills, ws.stale.Load(), repeated)
}
