package consumer_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

// A task may carry successors: tasks that get its result, or its failure, as their arguments. The
// consumer of the task submits them, so the producer may have ended. The id of a successor can be
// chosen, to get a future for it.
func Example_successors() {
	parse := task.New[string, int]("parse")
	double := task.New[int, int]("double")
	alarm := task.New[task.Failure, string]("alarm")

	s := tasktest.New(nil)
	defer s.Close()
	s.Start(consumer.Config{}, func(r task.Registrar) error {
		return errors.Join(
			parse.Handle(r, func(_ context.Context, s string) (int, error) {
				if s == "" {
					return 0, errors.New("nothing to parse")
				}
				return len(s), nil
			}),
			double.Handle(r, func(_ context.Context, n int) (int, error) { return 2 * n, nil }),
			alarm.Handle(r, func(_ context.Context, f task.Failure) (string, error) { return "alarm: " + f.Message, nil }),
		)
	})

	ctx := context.Background()
	for _, text := range []string{"four", ""} {
		call := parse.Call(text)
		call.Then = []task.Link{{ID: "then-" + task.ID(text), Name: "double"}}
		call.Else = []task.Link{{ID: "else-" + task.ID(text), Name: "alarm"}}
		_, err := s.Submit(ctx, call)
		if err != nil {
			panic(err)
		}
	}
	fmt.Println(task.FutureOf[int](s.Pending("then-four")).Get(ctx))
	fmt.Println(task.FutureOf[string](s.Pending("else-")).Get(ctx))
	// Output:
	// 8 <nil>
	// alarm: nothing to parse <nil>
}
