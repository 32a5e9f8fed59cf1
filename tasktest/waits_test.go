package tasktest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/deferrals"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

// TestWaits shows that days of sleep and of waiting pass at once in a test, and that a crash
// between them changes nothing.
func TestWaits(t *testing.T) {
	tasktest.Run(t, func(t *testing.T, s *tasktest.Swarm) {
		store, err := memjobs.New(memjobs.Config{})
		if err != nil {
			t.Fatal(err)
		}
		service, err := jobs.New(jobs.Config{Store: store})
		if err != nil {
			t.Fatal(err)
		}
		waiting, err := deferrals.New(deferrals.Config{Jobs: service})
		if err != nil {
			t.Fatal(err)
		}
		order := task.New[int, string]("order")
		start := func() *tasktest.Consumer {
			return s.Start(consumer.Config{Deferrals: waiting}, func(r task.Registrar) error {
				return order.Handle(r, func(ctx context.Context, n int) (string, error) {
					if err := task.Sleep(ctx, "a week", 7*24*time.Hour); err != nil {
						return "", err
					}
					return task.Await[string](ctx, "answer", "order 7", task.AnswerWithin(48*time.Hour))
				})
			})
		}
		c := start()
		f, err := order.Submit(t.Context(), s, 7)
		if err != nil {
			t.Fatal(err)
		}
		if sum := s.Drain(); sum.Delayed != 1 || sum.Failed+sum.Retried+sum.Succeeded != 0 {
			t.Errorf("asleep: %+v", sum)
		}
		s.Advance(6 * 24 * time.Hour)
		c.Crash()
		start()
		if sum := s.Drain(); sum.Delayed != 1 {
			t.Errorf("asleep after a crash: %+v", sum)
		}
		s.DrainAll()
		if state, err := f.State(t.Context()); state != task.StateAwaiting || err != nil {
			t.Errorf("after the sleep: %s, %v", state, err)
		}
		s.Advance(47 * time.Hour)
		if _, err := service.Complete(t.Context(), "order", "order 7", "yes"); err != nil {
			t.Fatal(err)
		}
		s.Advance(time.Second)
		if v, err := f.Get(t.Context()); v != "yes" || err != nil {
			t.Errorf("the task ended with %q, %v", v, err)
		}
		late, err := order.Submit(t.Context(), s, 7)
		if err != nil {
			t.Fatal(err)
		}
		s.Advance(10 * 24 * time.Hour)
		if _, err := late.Get(t.Context()); !errors.Is(err, task.ErrAnswerTimeout) {
			t.Errorf("without an answer: %v", err)
		}
		s.Close()
		if err := errors.Join(service.Close(t.Context()), store.Close(t.Context())); err != nil {
			t.Error(err)
		}
	})
}
