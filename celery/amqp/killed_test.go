package amqp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/celery"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// The environment of a worker's process.
const (
	workerURL     = "SWARMIJI_CELERY_TEST_URL"
	workerQueue   = "SWARMIJI_CELERY_TEST_QUEUE"
	workerResults = "SWARMIJI_CELERY_TEST_RESULTS"
)

// summands are the arguments of the task that adds.
type summands struct {
	X int `celery:"0,x"`
	Y int `celery:"1,y"`
}

var (
	adding   = task.New[summands, int]("killed.add")
	totaling = task.New[[]int, int]("killed.total")
)

// openSwarm returns a swarm whose default queue is queue.
func openSwarm(ctx context.Context, url, results, queue string) (*celery.Swarm, error) {
	return celery.Open(ctx, url, celery.Options{Results: results, Queue: queue, Logger: slog.New(slog.DiscardHandler)})
}

// work runs a worker until its standard input ends. It prints a line when a task starts: its name,
// its id, and how often its message was delivered, "1" or "more".
func work(ctx context.Context) error {
	s, err := openSwarm(ctx, os.Getenv(workerURL), os.Getenv(workerResults), os.Getenv(workerQueue))
	if err != nil {
		return err
	}
	c, err := s.Consumer(consumer.Config{Queues: map[string]consumer.QueueConfig{os.Getenv(workerQueue): {Workers: 4}}})
	if err != nil {
		return err
	}
	tell := func(ctx context.Context) {
		deliveries := "1"
		r, _ := task.FromContext(ctx)
		if r.Deliveries > 1 {
			deliveries = "more"
		}
		fmt.Println(r.Name, r.ID, deliveries)
	}
	err = errors.Join(
		adding.Handle(c, func(ctx context.Context, s summands) (int, error) {
			tell(ctx)
			return s.X + s.Y, nil
		}),
		totaling.Handle(c, func(ctx context.Context, ns []int) (sum int, err error) {
			tell(ctx)
			for _, n := range ns {
				sum += n
			}
			return sum, nil
		}),
	)
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		c.Stop()
	}()
	return errors.Join(c.Run(ctx), s.Close(ctx))
}

// killing has a queue, a producer of it, and workers that are killed.
type killing struct {
	t         *testing.T
	queue     string
	swarm     *celery.Swarm
	p         *producer.Producer
	processes *suite.Processes

	mu      sync.Mutex
	said    []string
	started map[string]int // starts of a task, by "name id"
	first   map[string]int // the starts among them by the first delivery of a message
	runs    int            // all starts
}

// newKilling returns a killing whose results are in the given backend. It starts no worker.
func newKilling(t *testing.T, results string) *killing {
	url := testserver.RequireRabbit(t).URL()
	k := &killing{t: t, queue: testserver.Namespace(), started: map[string]int{}, first: map[string]int{}}
	var err error
	if k.swarm, err = openSwarm(t.Context(), url, results, k.queue); err != nil {
		t.Fatal(err)
	}
	if k.p, err = k.swarm.Producer(producer.Config{Queues: []broker.Queue{{Name: k.queue}}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(k.p.Close(testwait.Long(t)), k.swarm.Close(testwait.Long(t))); err != nil {
			t.Error(err)
		}
	})
	k.processes = suite.NewProcesses(t, k.hear, workerURL+"="+url, workerQueue+"="+k.queue, workerResults+"="+results)
	return k
}

// hear records a line of a worker.
func (k *killing) hear(node, line string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	name, deliveries, ok := cutLast(line)
	if !ok || !strings.HasPrefix(line, "killed.") {
		k.said = append(k.said, node+": "+line)
		return
	}
	k.runs++
	k.started[name]++
	if deliveries == "1" {
		k.first[name]++
	}
}

// cutLast cuts s around its last space.
func cutLast(s string) (before, after string, found bool) {
	i := strings.LastIndexByte(s, ' ')
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

// kill runs two workers and kills one of them whenever a part of the runs is over. n is the number
// of tasks. It returns the workers that live.
func (k *killing) kill(n, kills int) []*suite.Process {
	alive := []*suite.Process{k.processes.Start(), k.processes.Start()}
	for i := range kills {
		target := (i + 1) * n / (kills + 2)
		testwait.Until(k.t, "tasks have run", func() bool {
			k.mu.Lock()
			defer k.mu.Unlock()
			return len(k.started) >= target
		})
		alive[i%2].Kill()
		alive[i%2] = k.processes.Start()
	}
	return alive
}

// end stops the workers and fails the test if something is left.
func (k *killing) end(alive []*suite.Process) {
	for _, p := range alive {
		if err := p.Stop(); err != nil {
			k.t.Errorf("%s: %v", p.Node, err)
		}
	}
	inspector, ok := capability.As[broker.Inspector](k.swarm.Broker)
	if !ok {
		k.t.Fatal("the broker does not count its messages")
	}
	if st, err := inspector.Stats(testwait.Long(k.t), k.queue); err != nil || st.Ready != 0 || st.Dead != 0 {
		k.t.Errorf("the queue has %+v, error %v; want neither tasks nor dead letters", st, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.said) > 0 {
		k.t.Errorf("the workers say %q", k.said)
	}
}

// TestKilledWorkersLoseNothing kills workers of Celery's queue under load. Every task has its
// result, and nothing is left.
func TestKilledWorkersLoseNothing(t *testing.T) {
	const tasks, kills = 2000, 10
	k := newKilling(t, "rpc://")
	args := make([]summands, tasks)
	for i := range args {
		args[i] = summands{X: 1, Y: i}
	}
	futures, err := adding.SubmitAll(testwait.Long(t), k.p, args)
	if err != nil {
		t.Fatalf("SubmitAll: %v", err)
	}
	alive := k.kill(tasks, kills)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for i, f := range futures {
		if sum, err := f.Get(ctx); err != nil || sum != i+1 {
			t.Fatalf("task %d: result %d, error %v; want %d", i, sum, err, i+1)
		}
	}
	k.end(alive)
	if n := len(k.started); n != tasks {
		t.Errorf("%d of %d tasks have run", n, tasks)
	}
	t.Logf("%d tasks, %d runs, %d kills", tasks, k.runs, kills)
}

// TestKilledWorkersCompleteChordsOnce kills workers that run the members and the bodies of chords.
// Every body gets the results of all members. No body is sent twice: of its deliveries, only one is
// the first of a message.
func TestKilledWorkersCompleteChordsOnce(t *testing.T) {
	const chords, members, kills = 60, 20, 10
	redis := testserver.RequireRedis(t)
	_, server, _ := strings.Cut(redis.URL(), "@")
	k := newKilling(t, "redis://:"+redis.Password()+"@"+server)
	var runs []*task.Run[int]
	for i := range chords {
		steps := make([]task.Part[task.None, int], members)
		for j := range steps {
			steps[j] = adding.Bound(summands{X: i, Y: j})
		}
		run, err := task.Chord(task.Group(steps...), totaling).Submit(testwait.Long(t), k.p, task.None{})
		if err != nil {
			t.Fatalf("submitting chord %d: %v", i, err)
		}
		runs = append(runs, run)
	}
	alive := k.kill(chords*(members+1), kills)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for i, r := range runs {
		want := members*i + members*(members-1)/2
		if sum, err := r.Get(ctx); err != nil || sum != want {
			t.Fatalf("chord %d: result %d, error %v; want %d", i, sum, err, want)
		}
	}
	k.end(alive)
	bodies := 0
	for name := range k.started {
		if strings.HasPrefix(name, totaling.Name()) {
			bodies++
			if n := k.first[name]; n > 1 {
				t.Errorf("%s: %d messages have started, want 1", name, n)
			}
		}
	}
	if bodies != chords {
		t.Errorf("%d bodies of %d chords have run", bodies, chords)
	}
	t.Logf("%d chords of %d members, %d runs, %d kills", chords, members, k.runs, kills)
}
