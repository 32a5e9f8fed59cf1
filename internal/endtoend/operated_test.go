package endtoend_test

import (
	"context"
	"errors"
	"hash/maphash"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/deadletter"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/internal/graphs"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/task"
)

// site opens the connections of one round of workflows.
type site struct {
	name        string
	broker      func(t *testing.T) broker.Broker
	results     func(t *testing.T) resultstore.ResultStore
	revocations func(t *testing.T) events.EventBus
	rounds      int
}

// sites returns memory, Redis, SQLite, and RabbitMQ with results in Redis.
func sites(t *testing.T) []site {
	rabbit, redis := testserver.RequireRabbit(t), testserver.RequireRedis(t)
	file := "sqlite://" + t.TempDir() + "/app.db"
	memory, onRedis, onFile := inMemory(), at(redis.URL()), at(file)
	bus := memevents.New(memevents.Config{Retain: revoke.Retention()})
	o := open.Options{Namespace: testserver.Namespace(), Logger: quiet()}
	on := func(url string) func(t *testing.T) events.EventBus {
		return func(t *testing.T) events.EventBus { return opened(t, url, o, open.Revocations) }
	}
	rounds, few := 2, 1
	if os.Getenv("SWARMIJI_THOROUGH") != "" {
		rounds, few = 60, 10
	}
	return []site{
		{"memory", memory.broker, memory.results, func(*testing.T) events.EventBus { return bus }, rounds},
		{"Redis", onRedis.broker, onRedis.results, on(redis.URL()), few},
		{"SQLite", onFile.broker, onFile.results, on(file), few},
		{"RabbitMQ", at(rabbit.URL()).broker, onRedis.results, on(rabbit.URL()), few},
	}
}

// TestCanceledWorkflows cancels random workflows at random moments while consumers die. No step
// starts in a consumer that has obeyed, or that started after the cancel, and all futures end.
func TestCanceledWorkflows(t *testing.T) {
	for _, s := range sites(t) {
		t.Run(s.name, func(t *testing.T) {
			for i := range s.rounds {
				o := newOperated(t, &s, uint64(i))
				o.cancelRound()
				if t.Failed() {
					t.Fatalf("round %d", i)
				}
			}
		})
	}
}

// TestRetriedWorkflows breaks random steps of random workflows, repairs them, and retries the
// workflows again and again while consumers die and retries are interrupted. Each workflow ends
// with its result, and no step that has succeeded runs again unless its consumer was killed.
func TestRetriedWorkflows(t *testing.T) {
	for _, s := range sites(t) {
		t.Run(s.name, func(t *testing.T) {
			for i := range s.rounds {
				o := newOperated(t, &s, uint64(i))
				o.retryRound()
				if t.Failed() {
					t.Fatalf("round %d", i)
				}
			}
		})
	}
}

// operated is one round: workflows, consumers that die, and an operator.
type operated struct {
	t        *testing.T
	site     *site
	random   *rand.Rand
	queue    string
	seed     maphash.Seed
	producer *producer.Producer
	broken   atomic.Bool // some steps fail

	starts           atomic.Int64
	consumersStarted atomic.Int64

	mu       sync.Mutex
	runs     map[task.ID][]operatedRun
	canceled map[string]*cancel // by graph
}

// operatedRun is one start of a step's handler.
type operatedRun struct {
	graph  string
	life   *life
	failed bool
}

// cancel is a confirmed cancel.
type cancel struct {
	nodes []string
	at    int64 // the number of consumers that had started
}

const operatedGraphs = 8

func newOperated(t *testing.T, s *site, round uint64) *operated {
	return &operated{
		t: t, site: s, random: rand.New(rand.NewPCG(7, round)), queue: "operated-" + testserver.Namespace(), seed: maphash.MakeSeed(),
		runs: make(map[task.ID][]operatedRun), canceled: make(map[string]*cancel),
	}
}

// run declares the queue, starts the consumers, and calls do.
func (o *operated) run(do func(ctx context.Context, s resultstore.ResultStore)) {
	ctx, cancel := context.WithTimeout(o.t.Context(), 2*time.Minute)
	defer cancel()
	b, s := o.site.broker(o.t), o.site.results(o.t)
	if err := broker.Declare(ctx, b, broker.Queue{Name: o.queue}); err != nil {
		o.t.Fatal(err)
	}
	var err error
	if o.producer, err = producer.New(producer.Config{Broker: b, Results: s, Router: router.Static(o.queue), Logger: quiet()}); err != nil {
		o.t.Fatal(err)
	}
	stop := o.consumers(ctx)
	defer func() {
		stop()
		for _, part := range []closer{o.producer, s, b} {
			if err := part.Close(context.WithoutCancel(ctx)); err != nil {
				o.t.Errorf("close %T: %v", part, err)
			}
		}
	}()
	do(ctx, s)
}

func (o *operated) cancelRound() {
	o.run(func(ctx context.Context, _ resultstore.ResultStore) {
		drawn, inputs, results := o.submit(ctx, graphs.Random)
		bus := o.site.revocations(o.t)
		r, err := revoke.NewRevoker(revoke.RevokerConfig{Events: bus})
		if err != nil {
			o.t.Fatal(err)
		}
		var all sync.WaitGroup
		for i := range drawn {
			if i%2 == 1 {
				continue
			}
			graph, after := strconv.Itoa(i), o.starts.Load()+o.random.Int64N(20)
			testwait.Until(o.t, "enough steps have started", func() bool { return o.starts.Load() >= after || o.over(results) })
			all.Go(func() {
				nodes, err := r.Cancel(ctx, revoke.Options{}, results[i].ID())
				if err != nil && !errors.Is(err, revoke.ErrUnheard) {
					o.t.Errorf("cancel: %v", err)
				}
				o.mu.Lock()
				defer o.mu.Unlock()
				o.canceled[graph] = &cancel{nodes, o.consumersStarted.Load()}
			})
		}
		all.Wait()
		for i, g := range drawn {
			want, ok, e := g.Eval(inputs[i])
			got, err := results[i].Get(ctx)
			switch {
			case errors.Is(err, task.ErrRevoked) && i%2 == 0:
			case ok && (err != nil || got != want):
				o.t.Errorf("graph %d gave %d, %v; want %d", i, got, err, want)
			case !ok && (err == nil || !graphs.IsFailure(&e, err)):
				o.t.Errorf("graph %d gave %d, %v; want one of the failures %q", i, got, err, e.Failures)
			}
		}
		if bus, ok := bus.(closer); ok && o.site.name != "memory" {
			_ = bus.Close(ctx)
		}
	})
}

// over reports whether all workflows have ended.
func (o *operated) over(results []*task.Run[int]) bool {
	return !slices.ContainsFunc(results, func(r *task.Run[int]) bool {
		select {
		case <-r.Done():
			return false
		default:
			return true
		}
	})
}

func (o *operated) retryRound() {
	o.broken.Store(true)
	o.run(func(ctx context.Context, s resultstore.ResultStore) {
		drawn, inputs, results := o.submit(ctx, graphs.Strict)
		b := o.site.broker(o.t)
		defer func() { _ = b.Close(ctx) }()
		l, err := deadletter.New(deadletter.Config{Broker: b, Results: s})
		if err != nil {
			o.t.Fatal(err)
		}
		repairAfter := o.random.Int64N(60)
		for i, g := range drawn {
			want, _, e := g.Eval(inputs[i])
			testwait.Until(o.t, "graph "+strconv.Itoa(i)+" succeeds", func() bool {
				if o.starts.Load() >= repairAfter || o.over(results) {
					o.broken.Store(false)
				}
				return o.retry(ctx, l, s, results[i].ID()) == task.StateSucceeded
			})
			if got, err := task.FutureOf[int](o.producer.Pending(results[i].ID())).Get(ctx); err != nil || got != want {
				o.t.Errorf("graph %d gave %d, %v; want %d", i, got, err, want)
			}
			o.checkRuns(strconv.Itoa(i), &e)
		}
	})
}

// retry retries a workflow, sometimes with a context that ends soon, and returns its state.
func (o *operated) retry(ctx context.Context, l *deadletter.Letters, s resultstore.ResultStore, root task.ID) task.State {
	short := ctx
	interrupted := o.random.IntN(3) == 0
	if interrupted {
		var cancel context.CancelFunc
		short, cancel = context.WithTimeout(ctx, time.Duration(o.random.IntN(5000))*time.Microsecond)
		defer cancel()
	}
	_, err := l.Retry(short, root, o.queue)
	if err != nil && !interrupted && !errors.Is(err, deadletter.ErrNoRetry) {
		o.t.Errorf("retry: %v", err)
	}
	rec, err := s.Load(ctx, root)
	if err != nil && !errors.Is(err, resultstore.ErrNotFound) {
		o.t.Errorf("load: %v", err)
	}
	return rec.State
}

// checkRuns checks the runs of the steps of a graph that has succeeded.
func (o *operated) checkRuns(graph string, e *graphs.Expected) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ids := 0
	for id, runs := range o.runs {
		if runs[0].graph != graph {
			continue
		}
		ids++
		for i, r := range runs[:len(runs)-1] {
			if !r.failed && !r.life.over() {
				o.t.Errorf("graph %s: run %d of step %s succeeded in a consumer that lives, and the step ran again: %+v", graph, i, id, runs)
			}
		}
	}
	if ids != e.Steps {
		o.t.Errorf("graph %s: %d steps ran, want %d", graph, ids, e.Steps)
	}
}

// submit submits random workflows.
func (o *operated) submit(ctx context.Context, draw func(*rand.Rand, int) graphs.Graph) (drawn []graphs.Graph, inputs []int, results []*task.Run[int]) {
	for i := range operatedGraphs {
		g, n := draw(o.random, 1+o.random.IntN(3)), o.random.IntN(graphs.Range)
		run, err := g.Part.Part().Submit(ctx, o.producer, n, task.WithCorrelation(strconv.Itoa(i)))
		if err != nil {
			o.t.Fatalf("submit: %v", err)
		}
		drawn, inputs, results = append(drawn, g), append(inputs, n), append(results, run)
	}
	return drawn, inputs, results
}

// consumers keeps three consumers running, of which several die.
func (o *operated) consumers(ctx context.Context) (stop func()) {
	stopping, end := context.WithCancel(ctx)
	next := make(chan *life, kills)
	for range kills {
		next <- newLife(1+o.random.Int64N(60), o.random.IntN(2) == 0)
	}
	var all sync.WaitGroup
	for range consumersNow {
		all.Go(func() {
			for stopping.Err() == nil {
				l := newLife(0, false)
				select {
				case l = <-next:
				default:
				}
				o.consumer(stopping, l)
			}
		})
	}
	return func() {
		end()
		all.Wait()
	}
}

// consumer runs one consumer until it dies or ctx ends.
func (o *operated) consumer(ctx context.Context, l *life) {
	b, s, bus := o.site.broker(o.t), o.site.results(o.t), o.site.revocations(o.t)
	number := o.consumersStarted.Add(1)
	node := o.queue + "-" + strconv.FormatInt(number, 10)
	list, err := revoke.New(revoke.Config{Events: bus, NodeID: node, Logger: quiet()})
	if err != nil {
		o.t.Error(err)
		return
	}
	c, err := consumer.New(consumer.Config{
		Broker: mortalBroker{b, l}, Results: mortalStore{s, l}, Revocations: list, Logger: quiet(),
		Tuning:          consumer.Tuning{MaxCrashes: -1, KillGrace: 50 * time.Millisecond, StoreRetry: 10 * time.Second},
		ShutdownTimeout: time.Second,
		Queues:          map[string]consumer.QueueConfig{o.queue: {Workers: 3, Prefetch: 6}},
	})
	if err == nil {
		err = graphs.Handle(c, func(ctx context.Context) error { return o.during(ctx, l, number, node) })
	}
	if err != nil {
		o.t.Error(err)
		return
	}
	parts := []closer{list, b, s}
	if o.site.name != "memory" { // there all connections share the bus
		parts = append(parts, bus)
	}
	runMortal(ctx, o.t, c, l, b, parts...)
}

var errDeploy = errors.New("a broken deploy")

// during records the start of a step, and fails a broken step.
func (o *operated) during(ctx context.Context, l *life, number int64, node string) error {
	r, _ := task.FromContext(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	if l.over() { // with the lock held, so that a start is recorded before its repetition
		return nil // a dead process records no start
	}
	o.starts.Add(1)
	if c := o.canceled[r.Correlation]; c != nil && ctx.Err() == nil && (slices.Contains(c.nodes, node) || number > c.at) {
		o.t.Errorf("graph %s: step %s %s started on %s after its cancel, which %q obey", r.Correlation, r.Name, r.ID, node, c.nodes)
	}
	var err error
	if o.broken.Load() && maphash.String(o.seed, string(r.ID))%3 == 0 {
		err = errDeploy
	}
	o.runs[r.ID] = append(o.runs[r.ID], operatedRun{r.Correlation, l, err != nil})
	return err
}
