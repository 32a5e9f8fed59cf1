package endtoend

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/task"
)

// note is a task in bursts. It returns its argument.
var note = task.New[int, int]("note", task.WithMaxRetries(3), task.WithRetryDelay(time.Millisecond))

// notes is a road whose handler of note records its runs.
type notes struct {
	*road
	active, most atomic.Int32
	step         chan struct{} // each run takes one value, if it is not nil

	mu   sync.Mutex
	runs []int
}

// newNotes returns a road with a store of bursts: that of the results, or else one in
// memory. broken decides whether a run of an argument fails.
func newNotes(t *testing.T, open Open, broken func(arg, attempt int) error) *notes {
	t.Helper()
	n := &notes{step: make(chan struct{}, 1000)}
	n.road = newRoad(t, open, func(p *producer.Config, c *consumer.Config) {
		if resultstore.SwapperOf(nil, p.Results) == nil {
			m := memresults.New(memresults.Config{})
			t.Cleanup(func() { _ = m.Close(context.Background()) })
			p.Bursts, c.Bursts = m, m
		}
	})
	handle(n.road, note, func(ctx context.Context, i int) (int, error) {
		n.mu.Lock()
		n.runs = append(n.runs, i)
		n.mu.Unlock()
		n.most.Store(max(n.most.Load(), n.active.Add(1)))
		defer n.active.Add(-1)
		select {
		case <-n.step:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
		req, _ := task.FromContext(ctx)
		return i, broken(i, req.Retries)
	})
	return n
}

func sound(int, int) error { return nil }

// ran returns the arguments of the runs so far.
func (n *notes) ran() []int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.runs)
}

// wantRuns waits until these arguments have run, and fails the test if others run.
func (n *notes) wantRuns(args ...int) {
	n.t.Helper()
	n.eventually("the runs", func() bool { return len(n.ran()) >= len(args) })
	if got := n.ran(); !slices.Equal(got, args) {
		n.t.Fatalf("the arguments of the runs are %v, want %v", got, args)
	}
}

// testDebounce: submissions of one burst are one task, which runs once with the newest arguments.
// The next submission begins another burst.
func testDebounce(t *testing.T, open Open) {
	n := newNotes(t, open, sound)
	close(n.step)
	n.start()
	burst := task.WithDebounce("page", time.Second, 0)
	var all []*task.Future[int]
	for i := range 10 {
		all = append(all, submit(n.road, note, i, burst))
	}
	other := submit(n.road, note, 100, task.WithDebounce("other page", time.Millisecond, time.Millisecond))
	for i, f := range all {
		if f.ID() != all[0].ID() {
			t.Fatalf("submission %d is task %s, the first one %s", i, f.ID(), all[0].ID())
		}
		want(n.road, f, 9)
	}
	want(n.road, other, 100)
	n.wantRuns(100, 9)
	next := submit(n.road, note, 10, task.WithDebounce("page", 10*time.Millisecond, 0))
	if next.ID() == all[0].ID() {
		t.Error("a submission after the run joined its burst")
	}
	want(n.road, next, 10)
	n.wantRuns(100, 9, 10)
}

// testLatest: one task of a key runs, and at most one waits, with the newest arguments. A retry of
// the running task comes first. A failed task blocks no other one.
func testLatest(t *testing.T, open Open) {
	n := newNotes(t, open, func(arg, attempt int) error {
		switch {
		case arg == 3 && attempt == 0:
			return task.Retry(errBroken)
		case arg == 3, arg == 4:
			return task.Fail(errBroken)
		}
		return nil
	})
	if n.h.NoQueues {
		t.Skip("a task runs inside its Publish: nothing is submitted meanwhile")
	}
	latest := task.WithLatest("account")
	// the one that waits in the queue gets newer arguments
	one, two := submit(n.road, note, -1, latest), submit(n.road, note, 0, latest)
	if one.ID() != two.ID() {
		t.Errorf("two submissions before the run are the tasks %s and %s", one.ID(), two.ID())
	}
	n.start()
	n.wantRuns(0)
	var waiting []*task.Future[int]
	for i := 1; i <= 3; i++ {
		waiting = append(waiting, submit(n.road, note, i, latest))
	}
	if waiting[0].ID() != waiting[2].ID() {
		t.Errorf("two submissions during the run are the tasks %s and %s", waiting[0].ID(), waiting[2].ID())
	}
	n.step <- struct{}{}
	n.wantRuns(0, 3)
	last := submit(n.road, note, 4, latest)
	n.step <- struct{}{}
	n.wantRuns(0, 3, 3)
	n.step <- struct{}{}
	for _, f := range waiting {
		wantError(n.road, f, nil)
	}
	n.wantRuns(0, 3, 3, 4)
	end := submit(n.road, note, 5, latest)
	close(n.step)
	wantError(n.road, last, nil)
	want(n.road, end, 5)
	n.wantRuns(0, 3, 3, 4, 5)
	if most := n.most.Load(); most != 1 {
		t.Errorf("%d tasks of the key ran at once", most)
	}
}

// testBurstRequeued: the dead letter of a burst has the newest arguments, and runs again.
func testBurstRequeued(t *testing.T, open Open) {
	for name, burst := range map[string]task.Option{"debounce": task.WithDebounce("k", 300*time.Millisecond, 0), "latest": task.WithLatest("k")} {
		t.Run(name, func(t *testing.T) {
			var repaired atomic.Bool
			n := newNotes(t, open, func(int, int) error {
				if repaired.Load() {
					return nil
				}
				return task.Fail(errBroken)
			})
			close(n.step)
			submit(n.road, note, 1, burst)
			f := submit(n.road, note, 2, burst)
			n.start()
			wantError(n.road, f, nil)
			n.wantRuns(2)
			repaired.Store(true)
			l, _ := n.letters(n.broker, nil)
			n.eventually("the dead letter is requeued", func() bool { return n.requeue(l, f.ID()).Done == 1 })
			n.wantRuns(2, 2)
			n.wantElsewhere(f.ID(), 2)
			want(n.road, submit(n.road, note, 3, burst), 3)
			n.wantRuns(2, 2, 3)
		})
	}
}

// testBurstAtMostOnce: a task of a burst that runs at most once runs with the newest arguments.
func testBurstAtMostOnce(t *testing.T, open Open) {
	n := newNotes(t, open, sound)
	n.start()
	once := []task.Option{task.WithLatest("k"), task.WithIdempotent(false)}
	first := submit(n.road, note, 1, once...)
	n.wantRuns(1)
	submit(n.road, note, 2, once...)
	last := submit(n.road, note, 3, once...)
	close(n.step)
	want(n.road, first, 1)
	want(n.road, last, 3)
	n.wantRuns(1, 3)
	if most := n.most.Load(); most != 1 {
		t.Errorf("%d tasks of the key ran at once", most)
	}
	quiet := []task.Option{task.WithDebounce("k", 500*time.Millisecond, 0), task.WithIdempotent(false)}
	submit(n.road, note, 4, quiet...)
	want(n.road, submit(n.road, note, 5, quiet...), 5)
	n.wantRuns(1, 3, 5)
}
