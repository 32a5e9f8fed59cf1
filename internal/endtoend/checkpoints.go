package endtoend

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// walk is a task with checkpoints. It fails as its argument says, and returns the names of its
// checkpoints.
var walk = task.New[string, []string]("walk", task.WithMaxRetries(5), task.WithRetryDelay(time.Millisecond))

// walked counts the runs of checkpoints.
type walked struct {
	mu   sync.Mutex
	runs map[string]int
	n    map[task.ID]int // attempts
}

// run returns the function of a checkpoint, which adds its name to a list.
func (w *walked) run(id task.ID, name string, list []string) func(context.Context) ([]string, error) {
	return func(context.Context) ([]string, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.runs[string(id)+" "+name]++
		return append(list, name), nil
	}
}

// handle is the handler of walk. Its first attempt ends between two checkpoints.
func (w *walked) handle(ctx context.Context, how string) ([]string, error) {
	r, _ := task.FromContext(ctx)
	w.mu.Lock()
	w.n[r.ID]++
	attempt := w.n[r.ID]
	w.mu.Unlock()
	list, err := task.Checkpoint(ctx, "first", w.run(r.ID, "first", nil))
	if err != nil {
		return nil, err
	}
	at, found, err := task.Load[int](ctx, "cursor")
	if err != nil {
		return nil, err
	}
	if found != (attempt > 1) || found && at != attempt-1 {
		return nil, task.Fail(fmt.Errorf("attempt %d found the cursor %d, %v", attempt, at, found))
	}
	if err := task.Save(ctx, "cursor", attempt); err != nil {
		return nil, err
	}
	if attempt == 1 {
		switch how {
		case "retry":
			return nil, task.Retry(errors.New("not yet"))
		case "snooze":
			return nil, task.Snooze(time.Millisecond)
		case "fail":
			return nil, task.Fail(errors.New("broken"))
		}
	}
	return task.Checkpoint(ctx, "second", w.run(r.ID, "second", list))
}

// once fails the test unless each checkpoint of a task has run once, in this number of attempts.
func (w *walked) once(t *testing.T, id task.ID, attempts int) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.n[id] != attempts || w.runs[string(id)+" first"] != 1 || w.runs[string(id)+" second"] != 1 {
		t.Errorf("task %s: %d attempts, want %d; runs of checkpoints: %v", id, w.n[id], attempts, w.runs)
	}
}

// newWalk returns a road with the handler of walk, and whether its store keeps checkpoints.
func newWalk(t *testing.T, open Open, change ...func(*producer.Config, *consumer.Config)) (*road, *walked, bool) {
	r := newRoad(t, open, change...)
	w := &walked{runs: make(map[string]int), n: make(map[task.ID]int)}
	handle(r, walk, w.handle)
	r.start()
	_, keeps := capability.As[resultstore.Checkpointer](r.results)
	return r, w, keeps
}

// wantWalked waits for the result of walk.
func wantWalked(r *road, f *task.Future[[]string]) {
	r.t.Helper()
	got, err := f.Get(r.ctx())
	if err != nil || fmt.Sprint(got) != "[first second]" {
		r.t.Errorf("task %s returned %v, %v", f.ID(), got, err)
	}
}

// testCheckpoints: a stored checkpoint does not run again after a retry and a snooze. A store that
// keeps none refuses before the function runs, and says what to use.
func testCheckpoints(t *testing.T, open Open) {
	r, w, keeps := newWalk(t, open)
	if !keeps {
		f := submit(r, walk, "")
		failed := failure(r, f, nil)
		if !strings.Contains(failed.Message, "keep no checkpoints") || len(w.runs) != 0 {
			t.Errorf("without a store that keeps checkpoints the task ended with %+v after %v", failed, w.runs)
		}
		return
	}
	for _, how := range []string{"", "retry", "snooze"} {
		f := submit(r, walk, how)
		wantWalked(r, f)
		w.once(t, f.ID(), map[bool]int{true: 1, false: 2}[how == ""])
	}
}

// testCheckpointsRequeued: a failure keeps the checkpoints for the requeue of its dead letter.
func testCheckpointsRequeued(t *testing.T, open Open) {
	r, w, keeps := newWalk(t, open)
	if !keeps {
		t.Skip("the store keeps no checkpoints")
	}
	f := submit(r, walk, "fail")
	if _, err := f.Get(r.ctx()); err == nil {
		t.Fatal("the task has succeeded")
	}
	r.wantDead(string(f.ID()), "broken")
	l, _ := r.letters(r.broker, nil)
	if rep := r.requeue(l, f.ID()); rep.Done != 1 {
		t.Fatalf("report %+v", rep)
	}
	if p := r.pendingElsewhere(f.ID(), nil); p != nil {
		wantWalked(r, task.FutureOf[[]string](p))
	}
	w.once(t, f.ID(), 2)
}

// testCheckpointsSealed: values are sealed and compressed as results are.
func testCheckpointsSealed(t *testing.T, open Open) {
	ring := keyRing(t, "one")
	r, w, keeps := newWalk(t, open, func(p *producer.Config, c *consumer.Config) { p.Wire.Sealer, c.Wire.Sealer = ring, ring })
	if !keeps {
		t.Skip("the store keeps no checkpoints")
	}
	f := submit(r, walk, "retry")
	wantWalked(r, f)
	w.once(t, f.ID(), 2)
}
