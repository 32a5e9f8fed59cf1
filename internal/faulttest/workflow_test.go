package faulttest

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/graphs"
	"github.com/swarmiji/swarmiji/internal/ledger"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/task"
)

const (
	workflows     = 16
	workflowKills = 4
	flowConsumers = 3
)

// Random workflows survive the processes that run them. Each workflow ends as expected, with
// results in order. No step is lost, each step has one id, and a step runs again only because a
// process was killed.
func TestKilledConsumersBreakNoWorkflow(t *testing.T) {
	redis := testserver.RequireRedis(t)
	each(t, func(t *testing.T, e *engine) {
		f := newFleet(t, e.require(t).URL())
		w := &flows{fleet: f, engine: e, random: rand.New(rand.NewPCG(1, uint64(len(e.name))))}
		// RabbitMQ's replies have one receiver and cannot be collected by another process
		if e.name == "rabbit" {
			w.results = redis.URL()
		}
		w.run()
	})
}

// flows runs workflows over a fleet. Each consumer has its own ledger, so that the test knows which
// consumer ran which step.
type flows struct {
	fleet   *fleet
	engine  *engine
	random  *rand.Rand
	results string // URL of the result store; "" for the broker's own

	all, alive []*program
	killed     map[*program]bool
}

func (w *flows) run() {
	t, f := w.fleet.t, w.fleet
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	swarm, err := open.Open(ctx, f.url, open.Options{Results: w.results, Logger: quiet()})
	must(t, err)
	defer func() { must(t, swarm.Close(context.WithoutCancel(ctx))) }()
	p, err := producer.New(producer.Config{Broker: swarm.Broker, Results: swarm.Results, Router: router.Static(f.queue), Logger: quiet()})
	must(t, err)
	defer func() { must(t, p.Close(context.WithoutCancel(ctx))) }()

	w.killed = make(map[*program]bool)
	for range flowConsumers {
		w.consumer()
	}
	drawn, inputs, runs := make([]graphs.Graph, workflows), make([]int, workflows), make([]*task.Run[int], workflows)
	for i := range drawn {
		drawn[i], inputs[i] = graphs.Random(w.random, 2+w.random.IntN(2)), w.random.IntN(graphs.Range)
		runs[i], err = drawn[i].Part.Part().Submit(ctx, p, inputs[i], task.WithCorrelation(strconv.Itoa(i)))
		must(t, err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for _, r := range runs {
			select {
			case <-r.Done():
			case <-ctx.Done():
			}
		}
	}()
	w.killSome(ended)
	expected := make(map[string]graphs.Expected)
	for i, g := range drawn {
		want, ok, e := g.Eval(inputs[i])
		got, err := runs[i].Get(ctx)
		switch {
		case ok && (err != nil || got != want):
			t.Errorf("workflow %d gave %d, %v; want %d", i, got, err, want)
		case !ok && (err == nil || !graphs.IsFailure(&e, err)):
			t.Errorf("workflow %d gave %d, %v; want one of the failures %q", i, got, err, e.Failures)
		}
		expected[strconv.Itoa(i)] = e
	}
	// failed steps are dead letters
	f.awaitStats(swarm.Broker, "an empty queue", func(s broker.Stats) bool { return s.Ready == 0 })
	for _, c := range w.alive {
		c.terminate()
	}
	w.check(expected)
}

// consumer starts another consumer. The limit of crashes is so high that a task held by several
// killed consumers is not treated as poison.
func (w *flows) consumer() {
	path := filepath.Join(w.fleet.t.TempDir(), "ledger-"+strconv.Itoa(len(w.all)))
	c := w.fleet.consumer(w.engine.quick(settings{
		"TASK_MS": 40, "CONCURRENCY": 3, "PREFETCH": 6, "RESULTS": 1, "RESULTS_URL": w.results, "CRASHES": 1000, "LEDGER": path,
	}))
	c.ledger = path
	w.all, w.alive = append(w.all, c), append(w.alive, c)
}

// killSome kills busy consumers at random numbers of started steps and starts a consumer for each
// killed one. It returns after workflowKills kills or when ended is closed.
func (w *flows) killSome(ended <-chan struct{}) {
	started, _ := w.look()
	for range workflowKills {
		until := started + 1 + w.random.IntN(12)
		var busy []*program
		w.fleet.await("progress", func(ledger.History) bool {
			select {
			case <-ended:
				busy = nil
				return true
			default:
			}
			started, busy = w.look()
			return started >= until && len(busy) > 0
		})
		if len(busy) == 0 {
			return
		}
		victim := busy[w.random.IntN(len(busy))]
		victim.kill()
		w.killed[victim] = true
		w.alive = slices.DeleteFunc(w.alive, func(c *program) bool { return c == victim })
		w.consumer()
	}
}

// look returns the number of steps that each consumer started, summed over the consumers, and the
// living consumers that run a step.
func (w *flows) look() (started int, busy []*program) {
	for _, c := range w.all {
		h, err := ledger.Load(c.ledger)
		must(w.fleet.t, err)
		started += len(h.Tasks(ledger.Started))
		if !w.killed[c] && len(h.Open()) > 0 {
			busy = append(busy, c)
		}
	}
	return started, busy
}

// check compares the steps that the consumers ran with the expected steps of each workflow.
func (w *flows) check(expected map[string]graphs.Expected) {
	t := w.fleet.t
	runs := make(map[string]int) // number of starts of each step
	for _, c := range w.all {
		h, err := ledger.Load(c.ledger)
		must(t, err)
		for _, step := range h.Tasks(ledger.Started) {
			runs[step.ID] += step.Count(ledger.Started)
		}
	}
	again, ran := 0, make(map[string]int)
	for step, n := range runs {
		workflow, _, _ := strings.Cut(step, "/")
		ran[workflow]++
		// A process may be killed after it has sent a step and before it has acknowledged the previous
		// one. The step is then sent again, and copies may run in parallel, also in one surviving
		// process.
		if n > 1+len(w.killed) {
			t.Errorf("step %s ran %d times, although only %d processes were killed", step, n, len(w.killed))
		}
		if n > 1 {
			again++
		}
	}
	for workflow, e := range expected {
		if n := ran[workflow]; n > e.Steps || !e.Fails && n != e.Steps {
			t.Errorf("workflow %s: %d steps ran, want %d", workflow, n, e.Steps)
		}
	}
	t.Logf("%d steps ran, %d of them again, with %d processes killed", len(runs), again, len(w.killed))
	if again == 0 {
		t.Error("no step was in the middle of its run when its process was killed: the test shows nothing")
	}
}
