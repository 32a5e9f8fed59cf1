package endtoend

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/task"
)

// RunUnique runs the cases that need a store of claims. It is for stores that do not belong to a
// broker.
func RunUnique(t *testing.T, open Open) {
	t.Run("Unique", func(t *testing.T) { testUnique(t, open) })
	t.Run("UniqueBatch", func(t *testing.T) { testUniqueBatch(t, open) })
	t.Run("UniqueOutcomes", func(t *testing.T) { testUniqueOutcomes(t, open) })
}

// uniques is a road with a second producer, whose broker may lose messages.
type uniques struct {
	*road
	claims resultstore.Claimer
	other  *producer.Producer
	lossy  *lossy
	runs   sync.Map // by a task's arguments: *atomic.Int64
}

var once = task.New[int, int]("once")

// lossy is a broker that publishes no message while lost is true and returns ErrIndeterminate
// instead.
type lossy struct {
	broker.Broker
	lost atomic.Bool
}

func (l *lossy) Publish(ctx context.Context, queue string, m *broker.Message) error {
	if l.lost.Load() {
		return broker.ErrIndeterminate
	}
	return l.Broker.Publish(ctx, queue, m)
}

func newUniques(t *testing.T, open Open) *uniques {
	t.Helper()
	u := &uniques{}
	var second producer.Config
	u.road = newRoad(t, open, func(p *producer.Config, _ *consumer.Config) {
		if u.claims = resultstore.ClaimerOf(nil, p.Results); u.claims == nil {
			m := memresults.New(memresults.Config{})
			t.Cleanup(func() { _ = m.Close(context.Background()) })
			u.claims, p.Claimer = m, m
		}
		second = *p
	})
	u.lossy = &lossy{Broker: u.h.Broker(t)}
	results := u.h.Results(t)
	second.Broker, second.Results = u.lossy, results
	var err error
	if u.other, err = producer.New(second); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), u.h.Patience)
		defer cancel()
		if err := errors.Join(u.other.Close(ctx), results.Close(ctx), u.lossy.Close(ctx)); err != nil {
			t.Error(err)
		}
	})
	handle(u.road, once, func(_ context.Context, i int) (int, error) {
		n, _ := u.runs.LoadOrStore(i, new(atomic.Int64))
		return int(n.(*atomic.Int64).Add(1)), nil
	})
	handle(u.road, add, func(_ context.Context, p pair) (int, error) { return p.A + p.B, nil })
	u.start()
	want(u.road, submit(u.road, once, -1), 1) // the consumer now listens
	return u
}

// wantRuns waits until the tasks with these arguments ran n times, and fails the test if they run
// more often. It submits further tasks after that: an unwanted copy was queued before them.
func (u *uniques) wantRuns(arg, n int) {
	u.t.Helper()
	u.eventually(fmt.Sprintf("the task of %d ran %d times", arg, n), func() bool { return u.ran(arg) >= n })
	for range 20 {
		want(u.road, submit(u.road, add, pair{1, 2}), 3)
	}
	if ran := u.ran(arg); ran != n {
		u.t.Errorf("the task of %d ran %d times, want %d", arg, ran, n)
	}
}

// ran returns how often tasks with these arguments ran.
func (u *uniques) ran(arg int) int {
	if v, ok := u.runs.Load(arg); ok {
		return int(v.(*atomic.Int64).Load())
	}
	return 0
}

// testUnique: of many submissions of one key by two producers at a time, one runs. When the key's
// time ends, another one runs.
func testUnique(t *testing.T, open Open) {
	u := newUniques(t, open)
	var ids sync.Map
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			f, err := once.Submit(u.ctx(), []*producer.Producer{u.producer, u.other}[i%2], 1, task.WithUnique("key", time.Hour))
			if err != nil {
				t.Error(err)
				return
			}
			ids.Store(f.ID(), f)
		})
	}
	wg.Wait()
	n := 0
	ids.Range(func(_, f any) bool {
		n++
		return true
	})
	if n != 1 {
		t.Errorf("100 submissions of one key are %d tasks", n)
	}
	u.wantRuns(1, 1)

	short := task.WithUnique("short", 300*time.Millisecond)
	first := submit(u.road, once, 2, short)
	want(u.road, first, 1)
	var next *task.Future[int]
	u.eventually("the key is free", func() bool {
		next = submit(u.road, once, 2, short)
		return next.ID() != first.ID()
	})
	want(u.road, next, 2)
	u.wantRuns(2, 2)
}

// testUniqueBatch: two batches with the same keys, each in a different order, run each key once.
func testUniqueBatch(t *testing.T, open Open) {
	u := newUniques(t, open)
	const n = 100
	calls := make([][]task.Call, 2)
	for i := range n {
		c := once.Call(i, task.WithUnique(string(rune('a'+i)), time.Hour))
		calls[0] = append(calls[0], c)
		calls[1] = append([]task.Call{c}, calls[1]...)
	}
	ids := make([][]task.Pending, 2)
	var wg sync.WaitGroup
	for i, p := range []*producer.Producer{u.producer, u.other} {
		wg.Go(func() {
			var err error
			if ids[i], err = p.SubmitAll(u.ctx(), calls[i]); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	for i := range n {
		if one, two := ids[0][i].ID(), ids[1][n-1-i].ID(); one != two {
			t.Errorf("key %d is the tasks %s and %s", i, one, two)
		}
	}
	u.eventually("all keys ran", func() bool {
		for i := range n {
			if _, ran := u.runs.Load(i); !ran {
				return false
			}
		}
		return true
	})
	for _, i := range []int{0, 1, n - 1} {
		u.wantRuns(i, 1)
	}
}

// testUniqueOutcomes: a submission with an unknown outcome keeps the key, and only that submission
// may be repeated. The key of a dead producer's submission is released after its time.
func testUniqueOutcomes(t *testing.T, open Open) {
	u := newUniques(t, open)
	unique := task.WithUnique("key", time.Hour)
	u.lossy.lost.Store(true)
	_, err := once.Submit(u.ctx(), u.other, 1, unique)
	first, ok := errors.AsType[*producer.UniqueError](err)
	if !ok || !errors.Is(err, broker.ErrIndeterminate) || first.Task == "" {
		t.Fatalf("a submission whose confirm is lost: %v", err)
	}
	_, err = once.Submit(u.ctx(), u.producer, 1, unique)
	if second, ok := errors.AsType[*producer.UniqueError](err); !ok || !errors.Is(err, broker.ErrIndeterminate) || second.Task != first.Task {
		t.Fatalf("another submission: %v, want one that names task %s", err, first.Task)
	}
	u.wantRuns(1, 0)
	again := submit(u.road, once, 1, unique, task.WithID(first.Task))
	want(u.road, again, 1)
	for _, p := range []*producer.Producer{u.other, u.producer} {
		f, err := once.Submit(u.ctx(), p, 1, unique)
		if err != nil || f.ID() != first.Task {
			t.Fatalf("after the confirm another submission is %v, %v; want task %s", f, err, first.Task)
		}
	}
	u.wantRuns(1, 1)

	// A producer that died after its claim. Its time is shorter here.
	if winner, err := u.claims.Claim(u.ctx(), "unique/once/dead", "?dead 1", 300*time.Millisecond); err != nil || winner != "?dead 1" {
		t.Fatal(winner, err)
	}
	f := submit(u.road, once, 3, task.WithUnique("dead", time.Hour))
	want(u.road, f, 1)
	if f.ID() == "dead" {
		t.Error("a task that was never sent is the answer")
	}
	u.wantRuns(3, 1)
}
