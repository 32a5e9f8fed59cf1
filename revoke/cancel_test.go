package revoke_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/task"
)

// workshop is a producer and consumers in memory, in a synctest bubble.
type workshop struct {
	t       *testing.T
	broker  *membroker.Broker
	results *memresults.Store
	bus     events.EventBus
	p       *producer.Producer
	r       *revoke.Revoker
	ends    []func()
}

func newWorkshop(t *testing.T) *workshop {
	t.Helper()
	w := &workshop{t: t, broker: membroker.New(), results: memresults.New(memresults.Config{}), bus: memevents.New(memevents.Config{Retain: revoke.Retention()})}
	var err error
	if w.p, err = producer.New(producer.Config{Broker: w.broker, Results: w.results, Logger: quiet()}); err != nil {
		t.Fatal(err)
	}
	if w.r, err = revoke.NewRevoker(revoke.RevokerConfig{Events: w.bus}); err != nil {
		t.Fatal(err)
	}
	return w
}

// consumer starts a consumer whose list has this node id.
func (w *workshop) consumer(node string, handle func(r task.Registrar) error) {
	w.t.Helper()
	list, err := revoke.New(revoke.Config{Events: w.bus, NodeID: node, Logger: quiet()})
	if err != nil {
		w.t.Fatal(err)
	}
	c, err := consumer.New(consumer.Config{Broker: w.broker, Results: w.results, Revocations: list, Logger: quiet()})
	if err == nil {
		err = handle(c)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	running, stop := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(running) }()
	w.ends = append(w.ends, func() {
		stop()
		if err := errors.Join(<-ended, list.Close(context.Background())); err != nil {
			w.t.Error(err)
		}
	})
}

func (w *workshop) close() {
	w.t.Helper()
	for _, end := range w.ends {
		end()
	}
	ctx := context.Background()
	if err := errors.Join(w.p.Close(ctx), w.results.Close(ctx), w.bus.Close(ctx), w.broker.Close(ctx)); err != nil {
		w.t.Error(err)
	}
}

// TestCancelWorkflow cancels a workflow whose first group runs. The running members are told, no
// later step starts, and all records say revoked. Another workflow is not affected.
func TestCancelWorkflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorkshop(t)
		defer w.close()
		slow, sum := task.New[int, int]("slow"), task.New[[]int, int]("sum")
		later, other := task.New[int, int]("later"), task.New[int, int]("other")
		causes := make(chan error, 3)
		handle := func(r task.Registrar) error {
			never := func(_ context.Context, _ []int) (int, error) { t.Error("the callback ran"); return 0, nil }
			return errors.Join(
				slow.Handle(r, func(ctx context.Context, _ int) (int, error) {
					<-ctx.Done()
					causes <- context.Cause(ctx)
					return 0, ctx.Err()
				}),
				sum.Handle(r, never),
				later.Handle(r, func(context.Context, int) (int, error) { t.Error("a later step ran"); return 0, nil }),
				other.Handle(r, func(_ context.Context, n int) (int, error) { return n, nil }),
			)
		}
		w.consumer("a", handle)
		w.consumer("b", handle)
		run, err := task.Chain3(task.Group(slow, slow, slow), sum, later).Submit(t.Context(), w.p, 1)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		nodes, err := w.r.Cancel(t.Context(), revoke.Options{}, run.ID())
		if err != nil || !slices.Equal(nodes, []string{"a", "b"}) {
			t.Fatalf("Cancel: %q, %v; want both consumers", nodes, err)
		}
		for range 3 {
			if cause := <-causes; !errors.Is(cause, task.ErrRevoked) {
				t.Errorf("a running member ended with %v", cause)
			}
		}
		if _, err := run.Get(t.Context()); !errors.Is(err, task.ErrRevoked) {
			t.Errorf("the future returns %v", err)
		}
		for _, step := range run.Steps() {
			if state, err := step.State(t.Context()); err != nil || state != task.StateRevoked {
				t.Errorf("step %s is %s, %v", step.ID(), state, err)
			}
		}
		f, err := other.Submit(t.Context(), w.p, 7)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := f.Get(t.Context()); n != 7 || err != nil {
			t.Errorf("another task: %d, %v", n, err)
		}
	})
}

// TestCancelBeforeConsumers cancels a workflow that no consumer knows yet, and one whose step is
// delayed for days. Consumers that start later run neither.
func TestCancelBeforeConsumers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorkshop(t)
		defer w.close()
		queued, err := task.Chain(work, work).Submit(t.Context(), w.p, 1)
		if err != nil {
			t.Fatal(err)
		}
		delayed, err := task.Chain(work, work.With(task.WithDelay(100*time.Hour))).Submit(t.Context(), w.p, 1)
		if err != nil {
			t.Fatal(err)
		}
		nodes, err := w.r.Cancel(t.Context(), revoke.Options{}, queued.ID())
		if !errors.Is(err, revoke.ErrUnheard) || len(nodes) != 0 {
			t.Errorf("without a consumer: %q, %v", nodes, err)
		}
		var runs atomic.Int64
		w.consumer("late", func(r task.Registrar) error {
			return work.Handle(r, func(context.Context, int) (int, error) { runs.Add(1); return 0, nil })
		})
		if _, err := queued.Get(t.Context()); !errors.Is(err, task.ErrRevoked) || runs.Load() > 1 {
			t.Errorf("the canceled workflow returns %v after %d runs", err, runs.Load())
		}
		synctest.Wait()
		if _, err := w.r.Cancel(t.Context(), revoke.Options{}, delayed.ID()); err != nil {
			t.Fatal(err)
		}
		if _, err := delayed.Get(t.Context()); !errors.Is(err, task.ErrRevoked) || runs.Load() != 1 {
			t.Errorf("the delayed workflow returns %v after %d runs; want one run of its first step", err, runs.Load())
		}
	})
}

func TestCancelRefusesBadIDs(t *testing.T) {
	w := newWorkshop(t)
	defer w.close()
	for _, id := range []task.ID{"", "a b", "ü"} {
		if _, err := w.r.Cancel(t.Context(), revoke.Options{}, id); !errors.Is(err, revoke.ErrBadSelector) {
			t.Errorf("Cancel of %q: %v", id, err)
		}
	}
	both := revoke.Selector{Root: "a", Name: "b"}
	if err := both.Check(); !errors.Is(err, revoke.ErrBadSelector) {
		t.Errorf("a root with a name: %v", err)
	}
	if _, err := w.r.Cancel(t.Context(), revoke.Options{Until: time.Now().Add(1000 * time.Hour)}, "a"); !errors.Is(err, revoke.ErrTooLong) {
		t.Errorf("Cancel beyond the retention: %v", err)
	}
}
