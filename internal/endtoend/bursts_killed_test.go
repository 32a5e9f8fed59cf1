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
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/task"
)

// change is the argument of a task in a burst: the n-th submission of a key.
type change struct{ Key, N int }

var latestChange = task.New[change, int]("change")

// mortalSwapper is the store of bursts of a process that may die.
type mortalSwapper struct {
	resultstore.Swapper
	life *life
}

func (s mortalSwapper) Value(ctx context.Context, key string) (value []byte, err error) {
	err = s.life.step(func() (err error) { value, err = s.Swapper.Value(ctx, key); return err })
	return value, err
}

func (s mortalSwapper) Swap(ctx context.Context, key string, old, next []byte, ttl time.Duration) (now []byte, err error) {
	err = s.life.step(func() (err error) { now, err = s.Swapper.Swap(ctx, key, old, next, ttl); return err })
	return now, err
}

// changes is one run: producers that submit changes of keys, and consumers that die meanwhile.
type changes struct {
	t      *testing.T
	random *rand.Rand
	broker func(t *testing.T) broker.Broker
	store  func(t *testing.T) resultstore.ResultStore
	queue  string

	mu     sync.Mutex
	active map[int]map[*life]int // tasks that run, by key
	last   map[int]int           // the newest N that ran last, by key
	bursts map[task.ID]bool      // bursts of confirmed submissions
	others int                   // submissions without an answer, each perhaps a burst
	runs   int
}

// heldByOne is the number of tasks that a consumer may hold, and of which it may lose the end.
const heldByOne = 6

// TestBurstsUnderKills submits changes of many keys by 8 producers while consumers die. Never two
// tasks of a key run at once, the last confirmed change of each key runs last, and its future gets
// the result. Thorough runs have 1,000 keys, and producers die too.
func TestBurstsUnderKills(t *testing.T) {
	rabbit, redis, nats, postgres := testserver.RequireRabbit(t), testserver.RequireRedis(t), testserver.RequireNATS(t), testserver.RequirePostgres(t)
	memory, onRedis, onNATS, onPostgres := inMemory(), at(redis.URL()), at(nats.URL()), at(postgres.URL())
	for i, c := range []struct {
		name   string
		broker func(t *testing.T) broker.Broker
		store  func(t *testing.T) resultstore.ResultStore
	}{
		{"memory", memory.broker, memory.results},
		{"Redis", onRedis.broker, onRedis.results},
		{"RabbitMQ", at(rabbit.URL()).broker, onRedis.results},
		{"NATS", onNATS.broker, onNATS.results},
		{"PostgreSQL", onPostgres.broker, onPostgres.results},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &changes{t: t, random: rand.New(rand.NewPCG(1, uint64(i))), broker: c.broker, store: c.store, active: make(map[int]map[*life]int), last: make(map[int]int), bursts: make(map[task.ID]bool)}
			if testserver.IsThorough() {
				w.run(1000, 100, 50, 20)
			} else {
				w.run(20, 10, 8, 0)
			}
		})
	}
}

// run submits each change of keys by one of 8 producers, and then a last one of each key. each is a
// multiple of 10. killed is the number of consumers that die, deadProducers that of producers.
func (w *changes) run(keys, each, killed, deadProducers int) {
	w.queue = "changes-" + testserver.Namespace()
	ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Minute)
	defer cancel()
	b, s := w.broker(w.t), w.store(w.t)
	if err := broker.Declare(ctx, b, broker.Queue{Name: w.queue}); err != nil {
		w.t.Fatal(err)
	}
	stop := w.consumers(ctx, killed)
	var all sync.WaitGroup
	work := make(chan change, keys*each)
	for from := 0; from < each; from += 10 {
		for key := range keys { // a burst of 10 submissions
			for n := from; n < from+10; n++ {
				work <- change{key, n}
			}
		}
	}
	close(work)
	lives := make(chan *life, deadProducers)
	for range deadProducers {
		lives <- newLife(1+w.random.Int64N(60), w.random.IntN(2) == 0)
	}
	for range 8 {
		all.Go(func() {
			for w.submitAll(ctx, b, s, work, lives) {
			}
		})
	}
	all.Wait()
	p, err := producer.New(producer.Config{Broker: b, Results: s, Router: router.Static(w.queue), Logger: quiet()})
	if err != nil {
		w.t.Fatal(err)
	}
	last := make([]*task.Future[int], keys)
	for key := range last {
		long, cancel := context.WithTimeout(ctx, time.Minute) // a dead producer keeps a key for 30 s
		if last[key], err = latestChange.Submit(long, p, change{key, each}, task.WithLatest(fmt.Sprint(key))); err != nil {
			w.t.Errorf("the last submission of key %d: %v", key, err)
		}
		cancel()
	}
	for key, f := range last {
		if f == nil {
			continue
		}
		waiting, cancel := context.WithTimeout(ctx, time.Minute)
		if n, err := f.Get(waiting); err != nil || n != each {
			w.t.Errorf("the future of the last change of key %d: %d, %v", key, n, err)
		}
		cancel()
	}
	stop()
	for key := range keys {
		if w.last[key] != each {
			w.t.Errorf("change %d of key %d ran last, want %d", w.last[key], key, each)
		}
	}
	for _, f := range last {
		if f != nil {
			w.bursts[f.ID()] = true
		}
	}
	if most := len(w.bursts) + w.others + killed*heldByOne; w.runs > most {
		w.t.Errorf("%d runs for %d bursts, %d submissions without an answer and %d killed consumers: want at most %d", w.runs, len(w.bursts), w.others, killed, most)
	}
	if len(w.bursts) >= keys*each+keys {
		w.t.Errorf("%d submissions are as many bursts: none has joined another", len(w.bursts))
	}
	w.t.Logf("%d runs for %d submissions in %d bursts, %d submissions without an answer", w.runs, keys*each+keys, len(w.bursts), w.others)
	for _, part := range []closer{p, s, b} {
		if err := part.Close(context.WithoutCancel(ctx)); err != nil {
			w.t.Errorf("close %T: %v", part, err)
		}
	}
}

// submitAll submits the changes of work by one producer, until there are no more or the producer
// dies. It returns true in the second case.
func (w *changes) submitAll(ctx context.Context, b broker.Broker, s resultstore.ResultStore, work <-chan change, lives <-chan *life) (died bool) {
	l := newLife(0, false)
	select {
	case l = <-lives:
	default:
	}
	values, _ := capability.As[resultstore.Swapper](s)
	p, err := producer.New(producer.Config{Broker: mortalBroker{b, l}, Results: s, Bursts: mortalSwapper{values, l}, Router: router.Static(w.queue), Logger: quiet()})
	if err != nil {
		w.t.Error(err)
		return false
	}
	defer func() { _ = p.Close(context.WithoutCancel(ctx)) }()
	for c := range work {
		long, cancel := context.WithTimeout(ctx, time.Minute)
		f, err := latestChange.Submit(long, p, c, task.WithLatest(fmt.Sprint(c.Key)), task.WithIgnoreResult(c.N%2 == 0))
		cancel()
		w.mu.Lock()
		if err == nil {
			w.bursts[f.ID()] = true
		} else {
			w.others++
		}
		w.mu.Unlock()
		if l.over() {
			return true
		}
		if err != nil && !errors.Is(err, broker.ErrIndeterminate) {
			w.t.Errorf("submit %+v: %v", c, err)
			return false
		}
	}
	return false
}

// consumers runs three consumers at a time, of which killed die.
func (w *changes) consumers(ctx context.Context, killed int) (stop func()) {
	stopping, end := context.WithCancel(ctx)
	next := make(chan *life, killed)
	for range killed {
		next <- newLife(1+w.random.Int64N(60), w.random.IntN(2) == 0)
	}
	var all sync.WaitGroup
	for range 3 {
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
func (w *changes) consumer(ctx context.Context, l *life) {
	b, s := w.broker(w.t), w.store(w.t)
	values, _ := capability.As[resultstore.Swapper](s)
	c, err := consumer.New(consumer.Config{
		Broker: mortalBroker{b, l}, Results: mortalStore{s, l}, Bursts: mortalSwapper{values, l}, Logger: quiet(),
		Tuning:          consumer.Tuning{MaxCrashes: -1, KillGrace: 50 * time.Millisecond, StoreRetry: 10 * time.Second},
		ShutdownTimeout: time.Second,
		Queues:          map[string]consumer.QueueConfig{w.queue: {Workers: 3, Prefetch: heldByOne}},
	})
	if err == nil {
		err = latestChange.Handle(c, func(_ context.Context, c change) (int, error) {
			if w.begin(c, l) {
				w.end(c, l)
			}
			return c.N, nil
		})
	}
	if err != nil {
		w.t.Error(err)
		return
	}
	runMortal(ctx, w.t, c, l, b, b, s)
}

// begin notes the start of a task, unless its process is dead. It fails the test if another task of
// the key runs in a living process.
func (w *changes) begin(c change, l *life) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.over() {
		return false
	}
	if w.active[c.Key] == nil {
		w.active[c.Key] = make(map[*life]int)
	}
	for other, n := range w.active[c.Key] {
		if n > 0 && !other.over() {
			w.t.Errorf("two tasks of key %d run at once", c.Key)
		}
	}
	w.active[c.Key][l]++
	w.last[c.Key] = c.N
	w.runs++
	return true
}

// end notes the end of a task.
func (w *changes) end(c change, l *life) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.active[c.Key][l]--
}
