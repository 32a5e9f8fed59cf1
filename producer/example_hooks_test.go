package producer_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

// Hooks run before and after a submission. An error of the first is a veto: nothing is sent. The
// second one runs when the broker has answered.
func ExampleConfig_hooks() {
	report := task.New[int, int]("report")
	night := middleware.Hooks{
		BeforeEnqueue: func(_ context.Context, _ string, e *task.Envelope) error {
			if e.Headers["urgent"] == "" {
				return errors.New("not at night")
			}
			return nil
		},
		AfterEnqueue: func(_ context.Context, queue string, e *task.Envelope, err error) {
			fmt.Println(e.Name, "is in queue", queue, err)
		},
	}

	s := tasktest.New(nil)
	defer s.Close()
	p := s.Producer(producer.Config{Hooks: middleware.HookSet{
		Tasks: map[string][]middleware.Hooks{report.Name(): {night}},
	}})
	s.Start(consumer.Config{}, func(r task.Registrar) error {
		return report.Handle(r, func(_ context.Context, i int) (int, error) { return i, nil })
	})

	ctx := context.Background()
	_, err := report.Submit(ctx, p, 1)
	fmt.Println(err)
	_, err = report.Submit(ctx, p, 2, task.WithHeader("urgent", "yes"))
	fmt.Println(err)
	// Output:
	// not at night
	// report is in queue default <nil>
	// <nil>
}
