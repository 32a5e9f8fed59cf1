package endtoend_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/internal/graphs"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/task"
)

// TestWorkflowsUnderKills runs random workflows whose consumers die at steps chosen beforehand.
// Each workflow ends as expected, with results in order. Each step has one id, and it runs again
// only if the consumer that ran it was killed. With SWARMIJI_SOAK, a duration, it runs for that
// time with changing seeds.
func TestWorkflowsUnderKills(t *testing.T) {
	rabbit, redis, nats := testserver.RequireRabbit(t), testserver.RequireRedis(t), testserver.RequireNATS(t)
	memory, onRedis, onNATS := inMemory(), at(redis.URL()), at(nats.URL())
	for _, c := range []struct {
		name   string
		broker func(t *testing.T) broker.Broker
		store  func(t *testing.T) resultstore.ResultStore
		rounds int
	}{
		{"memory", memory.broker, memory.results, 12},
		{"Redis", onRedis.broker, onRedis.results, 3},
		{"RabbitMQ", at(rabbit.URL()).broker, onRedis.results, 3},
		{"NATS", onNATS.broker, onNATS.results, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			seed, until := uint64(1), time.Time{}
			if length, err := time.ParseDuration(os.Getenv("SWARMIJI_SOAK")); err == nil {
				seed, until = uint64(time.Now().UnixNano()), time.Now().Add(length/4)
			}
			for i := 0; i < c.rounds || time.Now().Before(until); i++ {
				w := &workflows{t: t, random: rand.New(rand.NewPCG(seed, uint64(i))), broker: c.broker, store: c.store}
				if w.run(); t.Failed() {
					t.Fatalf("seed %d, round %d", seed, i)
				}
			}
		})
	}
}

// workflows is one round: several graphs at a time, and consumers that die meanwhile.
type workflows struct {
	t      *testing.T
	random *rand.Rand
	broker func(t *testing.T) broker.Broker
	store  func(t *testing.T) resultstore.ResultStore
	queue  string

	mu   sync.Mutex
	runs map[task.ID][]stepRun
}

// stepRun is one start of a step's handler.
type stepRun struct {
	graph string
	name  string
	life  *life
	how   string // describes the message from which it was started
}

const (
	graphsAtOnce = 12
	consumersNow = 3
	kills        = 8
)

func (w *workflows) run() {
	w.queue = "graphs-" + testserver.Namespace()
	w.runs = make(map[task.ID][]stepRun)
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	b, s := w.broker(w.t), w.store(w.t)
	if err := broker.Declare(ctx, b, broker.Queue{Name: w.queue}); err != nil {
		w.t.Fatal(err)
	}
	p, err := producer.New(producer.Config{Broker: b, Results: s, Router: router.Static(w.queue), Logger: quiet()})
	if err != nil {
		w.t.Fatal(err)
	}
	stop := w.consumers(ctx)
	defer func() {
		stop()
		for _, part := range []closer{p, s, b} {
			if err := part.Close(context.WithoutCancel(ctx)); err != nil {
				w.t.Errorf("close %T: %v", part, err)
			}
		}
	}()
	drawn := make([]graphs.Graph, graphsAtOnce)
	inputs := make([]int, graphsAtOnce)
	results := make([]*task.Run[int], graphsAtOnce)
	for i := range drawn {
		drawn[i], inputs[i] = graphs.Random(w.random, 1+w.random.IntN(3)), w.random.IntN(graphs.Range)
		if results[i], err = drawn[i].Part.Part().Submit(ctx, p, inputs[i], task.WithCorrelation(strconv.Itoa(i))); err != nil {
			w.t.Fatalf("submit: %v", err)
		}
	}
	for i, g := range drawn {
		want, ok, e := g.Eval(inputs[i])
		got, err := results[i].Get(ctx)
		switch {
		case ok && (err != nil || got != want):
			w.t.Errorf("graph %d gave %d, %v; want %d", i, got, err, want)
		case !ok && (err == nil || !graphs.IsFailure(&e, err)):
			w.t.Errorf("graph %d gave %d, %v; want one of the failures %q", i, got, err, e.Failures)
		}
		w.check(strconv.Itoa(i), &e)
	}
}

// check checks the runs of the steps of one graph whose workflow has ended.
func (w *workflows) check(graph string, e *graphs.Expected) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids := 0
	for id, runs := range w.runs {
		if runs[0].graph != graph {
			continue
		}
		ids++
		for _, r := range runs[:len(runs)-1] {
			if !r.life.over() {
				w.t.Errorf("graph %s: step %s %s ran again although its consumer lives: %+v", graph, r.name, id, runs)
			}
		}
	}
	if ids > e.Steps || !e.Fails && ids != e.Steps {
		w.t.Errorf("graph %s: %d steps ran, want %d", graph, ids, e.Steps)
	}
}

// consumers keeps a number of consumers running and replaces each one that dies. stop ends them.
func (w *workflows) consumers(ctx context.Context) (stop func()) {
	stopping, end := context.WithCancel(ctx)
	var lives []*life
	for range kills {
		lives = append(lives, newLife(1+w.random.Int64N(60), w.random.IntN(2) == 0))
	}
	next := make(chan *life, kills+consumersNow)
	for _, l := range lives {
		next <- l
	}
	var all sync.WaitGroup
	for range consumersNow {
		all.Go(func() {
			for stopping.Err() == nil {
				var l *life
				select {
				case l = <-next:
				default:
					l = newLife(0, false)
				}
				w.consumer(stopping, l)
			}
		})
	}
	return func() {
		end()
		all.Wait()
	}
}

// consumer runs one consumer until it dies or ctx ends.
func (w *workflows) consumer(ctx context.Context, l *life) {
	b, s := w.broker(w.t), w.store(w.t)
	c, err := consumer.New(consumer.Config{
		Broker: mortalBroker{b, l}, Results: mortalStore{s, l}, Logger: quiet(), Tuning: consumer.Tuning{MaxCrashes: -1, KillGrace: 50 * time.Millisecond, StoreRetry: 10 * time.Second},
		ShutdownTimeout: time.Second,
		Queues:          map[string]consumer.QueueConfig{w.queue: {Workers: 3, Prefetch: 6}},
	})
	if err == nil {
		err = graphs.Handle(c, func(ctx context.Context) error {
			r, _ := task.FromContext(ctx)
			w.mu.Lock()
			defer w.mu.Unlock()
			if l.over() { // with the lock held, so that a start is recorded before its repetition
				return nil // a dead process records no start
			}
			w.runs[r.ID] = append(w.runs[r.ID], stepRun{r.Correlation, r.Name, l, fmt.Sprintf("%s generation %d, delivery %d, copy %s, sent by %s, on %s", time.Now().Format("05.000"), r.Generation, r.Deliveries, r.Copy, r.Parent, r.NodeID)})
			return nil
		})
	}
	if err != nil {
		w.t.Error(err)
		return
	}
	runMortal(ctx, w.t, c, l, b, b, s)
}
