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
// Never more tasks of a key run in consumers that live than its bound allows, all tasks run, and no
// key stays blocked.
func TestBoundsUnderKills(t *testing.T) {
	redis, postgres := testserver.RequireRedis(t), testserver.RequirePostgres(t)
	for name, place := range map[string]place{
		"memory": inMemory(), "Redis": at(redis.URL()), "PostgreSQL": at(postgres.URL()), "SQLite": at("sqlite://" + t.TempDir() + "/bounds.db"),
	} {
		t.Run(name, func(t *testing.T) {
			r := &boundRun{t: t, place: place, random: rand.New(rand.NewPCG(1, 2)), running: map[boundPlace]int{}, ran: map[int]int{}}
			r.run()
		})
	}
}

const (
	boundKeys  = 100
	boundMost  = 3
	boundTasks = 1000
	boundKills = 10
	boundAlive = 3 // consumers
)

// boundRun is one round: tasks of many keys, and consumers that die meanwhile.
type boundRun struct {
	t      *testing.T
	place  place
	random *rand.Rand
	queue  string

	mu      sync.Mutex
	running map[boundPlace]int
	lives   []*life
	ran     map[int]int // runs of each task
	over    int         // number of starts above the bound
}

// boundPlace is a key in a consumer.
type boundPlace struct {
	life *life
	key  string
}

var bound = task.New[int, int]("bound")

// processBroker is a mortalBroker that declares queues.
type processBroker struct{ mortalBroker }

func (b processBroker) Declare(ctx context.Context, qs ...broker.Queue) error {
	return broker.Declare(ctx, b.Broker, qs...)
}

func (r *boundRun) run() {
	r.queue = "bounds-" + testserver.Namespace()
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*time.Minute)
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
	var futures []*task.Future[int]
	for i := range boundTasks {
		f, err := bound.Submit(ctx, p, i, task.WithFairnessKey(boundKey(i)))
		if err != nil {
			r.t.Fatal(err)
		}
		futures = append(futures, f)
	}
	stop := r.consumers(ctx)
	defer stop()
	for i, f := range futures {
		if _, err := f.Get(ctx); err != nil {
			r.t.Fatalf("task %d of the key %s: %v", i, boundKey(i), err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	again := 0
	for _, n := range r.ran {
		again += n - 1
	}
	r.t.Logf("%d tasks, %d runs again after kills", len(r.ran), again)
	if r.over > 0 {
		r.t.Errorf("%d starts were above the bound of %d", r.over, boundMost)
	}
}

// boundKey returns the key of task i. The first key has a tenth of the tasks.
func boundKey(i int) string {
	if i%10 == 0 {
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
	next := make(chan *life, boundKills)
	for range boundKills {
		next <- newLife(20+r.random.Int64N(100), r.random.IntN(2) == 0)
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
		Broker: processBroker{mortalBroker{b, l}}, Results: mortalStore{s, l}, Logger: quiet(), ShutdownTimeout: time.Second,
		Tuning: consumer.Tuning{MaxCrashes: -1, KillGrace: 50 * time.Millisecond, StoreRetry: 10 * time.Second},
		Queues: map[string]consumer.QueueConfig{r.queue: {Workers: 16, Fair: true, Bounds: broker.Bounds{Key: broker.Bound{Max: boundMost}}}},
	})
	if err == nil {
		r.mu.Lock()
		r.lives = append(r.lives, l)
		r.mu.Unlock()
		err = bound.Handle(c, func(ctx context.Context, i int) (int, error) {
			defer r.starts(l, i)()
			select { // the tasks of a key overlap
			case <-time.After(2 * time.Millisecond):
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

// starts counts the start of a task, and compares the tasks of its key in living consumers with the
// bound. The result counts the end.
func (r *boundRun) starts(l *life, i int) (ends func()) {
	key := boundKey(i)
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.over() {
		return func() {}
	}
	r.running[boundPlace{l, key}]++
	r.ran[i]++
	n := 0
	for _, other := range r.lives {
		if !other.over() {
			n += r.running[boundPlace{other, key}]
		}
	}
	if n > boundMost {
		r.over++
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.running[boundPlace{l, key}]--
	}
}
