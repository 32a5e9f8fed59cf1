package endtoend_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/task"
)

// TestBoundsUnderKills runs tasks of many keys in consumers that die at steps chosen beforehand.
// Consumers that live never hold more tasks of a key than its bound allows. All tasks run, no
// message is copied, and no key stays blocked. A thorough run has 100,000 tasks and 50 deaths, and
// the permitted places are busy.
func TestBoundsUnderKills(t *testing.T) {
	redis, postgres := testserver.RequireRedis(t), testserver.RequirePostgres(t)
	size := boundSize{tasks: 1000, kills: 10, workers: 16, lasts: 2 * time.Millisecond}
	if testserver.IsThorough() {
		// docs/benchmarks.md has the measured parts; on a busy machine they are smaller
		size = boundSize{tasks: 100_000, kills: 50, workers: 128, lasts: time.Second, busy: 0.5}
	}
	for name, place := range map[string]place{
		"memory": inMemory(), "Redis": at(redis.URL()), "PostgreSQL": at(postgres.URL()), "SQLite": at("sqlite://" + t.TempDir() + "/bounds.db"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it mostly waits
			r := &boundRun{boundSize: size, t: t, place: place, random: rand.New(rand.NewPCG(1, 2)), places: newPlaces(size), ran: make(map[int]int)}
			r.run()
		})
	}
}

const (
	boundKeys  = 100
	boundMost  = 3
	boundAlive = 3 // consumers
)

// boundSize is the size of a run. Each task lasts for a while, so that the tasks of a key overlap.
type boundSize struct {
	tasks, kills, workers int // workers of each consumer
	lasts                 time.Duration
	busy                  float64 // the least part of the permitted places that must be busy
}

// boundRun is one run: tasks of many keys, and consumers that die meanwhile.
type boundRun struct {
	boundSize
	t      *testing.T
	place  place
	random *rand.Rand
	queue  string
	places *boundPlaces

	mu  sync.Mutex
	ran map[int]int // runs of each task
}

var bound = task.New[int, int]("bound")

func (r *boundRun) run() {
	r.queue = "bounds-" + testserver.Namespace()
	ctx, cancel := context.WithTimeout(r.t.Context(), 15*time.Minute)
	defer cancel()
	b, s := r.place.broker(r.t), r.place.results(r.t)
	p, err := producer.New(producer.Config{Broker: b, Results: s, Router: router.Static(r.queue), Queues: []broker.Queue{{Name: r.queue, Fair: true}}, Logger: quiet()})
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() {
		for _, part := range []closer{p, s, b} {
			if err := part.Close(context.WithoutCancel(ctx)); err != nil {
				r.t.Errorf("close %T: %v", part, err)
			}
		}
	}()
	if r.refused(ctx, b) {
		r.t.Skip("this broker has no bounds at the claim")
	}
	calls := make([]task.Call, r.tasks)
	for i := range calls {
		calls[i] = bound.Call(i, task.WithFairnessKey(boundKey(i)))
		r.places.open[boundKey(i)]++
	}
	futures, err := p.SubmitAll(ctx, calls)
	if err != nil {
		r.t.Fatal(err)
	}
	stop := r.consumers(ctx)
	defer stop()
	for i, f := range futures {
		if err := f.Result(ctx, nil); err != nil {
			r.t.Fatalf("task %d of the key %s: %v", i, boundKey(i), err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	again := 0
	for _, n := range r.ran {
		again += n - 1
	}
	r.places.check(r.t)
	r.t.Logf("%d tasks, %d runs again after kills", len(r.ran), again)
	if most := r.kills * r.workers; again > most {
		r.t.Errorf("%d runs again, while the killed consumers had at most %d tasks", again, most)
	}
}

// boundKey returns the key of task i. The first key has a tenth of the first 1,000 tasks.
func boundKey(i int) string {
	if i < 1000 && i%10 == 0 {
		return "key 0"
	}
	return fmt.Sprint("key ", i%boundKeys)
}

// refused declares the queue and reports whether the broker refuses bounds.
func (r *boundRun) refused(ctx context.Context, b broker.Broker) bool {
	if err := broker.Declare(ctx, b, broker.Queue{Name: r.queue, Fair: true}); err != nil {
		r.t.Fatal(err)
	}
	s, err := b.Subscribe(ctx, r.queue, broker.SubscribeOptions{Prefetch: 1, Bounds: broker.Bounds{Key: broker.Bound{Max: boundMost}}})
	if errors.Is(err, broker.ErrUnsupported) {
		return true
	}
	if err == nil {
		err = s.Close(ctx)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return false
}

// consumers keeps consumers running and replaces each one that dies. stop ends them.
func (r *boundRun) consumers(ctx context.Context) (stop func()) {
	stopping, end := context.WithCancel(ctx)
	next, each := make(chan *life, r.kills), int64(r.tasks/r.kills)
	for range r.kills {
		next <- newLife(each/5+r.random.Int64N(each), r.random.IntN(2) == 0)
	}
	var all sync.WaitGroup
	for range boundAlive {
		all.Go(func() {
			for stopping.Err() == nil {
				l := newLife(0, false)
				select {
				case l = <-next:
				default:
				}
				r.consumer(stopping, l)
			}
		})
	}
	return func() {
		end()
		all.Wait()
	}
}

// consumer runs one consumer until it dies or ctx ends.
func (r *boundRun) consumer(ctx context.Context, l *life) {
	b, s := r.place.broker(r.t), r.place.results(r.t)
	c, err := consumer.New(consumer.Config{
		Broker: boundBroker{mortalBroker{b, l}, r.places}, Results: mortalStore{s, l}, Logger: quiet(), ShutdownTimeout: time.Second,
		Tuning: consumer.Tuning{MaxCrashes: -1, KillGrace: 50 * time.Millisecond, StoreRetry: 10 * time.Second},
		Queues: map[string]consumer.QueueConfig{r.queue: {Workers: r.workers, Fair: true, Bounds: broker.Bounds{Key: broker.Bound{Max: boundMost}}}},
	})
	if err == nil {
		err = bound.Handle(c, func(ctx context.Context, i int) (int, error) {
			if !l.over() {
				r.mu.Lock()
				r.ran[i]++
				r.mu.Unlock()
			}
			select {
			case <-time.After(r.lasts):
			case <-ctx.Done():
			}
			return i, ctx.Err()
		})
	}
	if err != nil {
		r.t.Error(err)
		return
	}
	runMortal(ctx, r.t, c, l, b, b, s)
}
