package endtoend_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// waitSteps is at least the number of steps that a consumer takes with the task of
// [TestWaitingTaskOutlivesConsumers].
const waitSteps = 40

// TestWaitingTaskOutlivesConsumers kills a consumer before and after each step that it takes with
// one task. The task sleeps, is refused, sleeps again, is answered, and has a successor. The next
// consumer brings the task to the same end, and runs no stored checkpoint again.
func TestWaitingTaskOutlivesConsumers(t *testing.T) {
	for dieAt := int64(1); dieAt <= waitSteps; dieAt++ {
		for _, before := range []bool{true, false} {
			t.Run(fmt.Sprint(dieAt, before), func(t *testing.T) {
				t.Parallel()
				d := outlive(t, newLife(dieAt, before), (*dying).wait)
				// the death may be between a request and the store of its wait
				if n := d.asked.Load(); n < 2 || n > 4 {
					t.Errorf("asked %d times", n)
				}
				if d.repeated.Load() {
					t.Error("a stored checkpoint ran again")
				}
			})
		}
	}
	t.Run("none", func(t *testing.T) {
		l := newLife(0, false)
		outlive(t, l, (*dying).wait)
		t.Logf("%d steps", l.steps.Load())
		if n := l.steps.Load(); n > waitSteps {
			t.Errorf("the task took %d steps, which are more than the consumers died at", n)
		}
	})
}

// wait is a handler that sleeps and waits for two answers, of which the first is a refusal.
func (d *dying) wait(ctx context.Context, key string) (int, error) {
	_, err := task.Checkpoint(ctx, "begin", func(context.Context) (int, error) {
		if d.begun.Load() {
			d.repeated.Store(true)
		}
		return 1, nil
	})
	if err != nil {
		return 0, err
	}
	d.begun.Store(true)
	if err := task.Sleep(ctx, "nap", time.Millisecond); err != nil {
		return 0, err
	}
	request := task.Requesting(func(context.Context) error {
		d.answer(key)
		return nil
	})
	n, err := task.Await[int](ctx, "first", key, request)
	if !errors.Is(err, task.ErrRejected) {
		return n, err
	}
	if err := task.Sleep(ctx, "second nap", time.Millisecond); err != nil {
		return 0, err
	}
	return task.Await[int](ctx, "second", key, request)
}
