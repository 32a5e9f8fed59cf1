package consumer_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// A task may carry its successors: tasks that get its result, or its failure, as their arguments. They are submitted by the
// consumer that ran it, so that its producer may have gone. The id of a successor may be chosen, to have a future of it.
func Example_successors() {
	parse := task.New[string, int]("parse")
	double := task.New[int, int]("double")
	alarm := task.New[task.Failure, string]("alarm")

	p, c, run := inMemory(producer.Config{}, consumer.Config{})
	must(errors.Join(
		parse.Handle(c, func(_ context.Context, s string) (int, error) {
			if s == "" {
				return 0, errors.New("nothing to parse")
			}
			return len(s), nil
		}),
		double.Handle(c, func(_ context.Context, n int) (int, error) { return 2 * n, nil }),
		alarm.Handle(c, func(_ context.Context, f task.Failure) (string, error) { return "alarm: " + f.Message, nil }),
	))
	defer run()()

	ctx, cancel := soon()
	defer cancel()
	for _, text := range []string{"four", ""} {
		call := parse.Call(text)
		call.Then = []task.Link{{ID: "then-" + task.ID(text), Name: "double"}}
		call.Else = []task.Link{{ID: "else-" + task.ID(text), Name: "alarm"}}
		_, err := p.Submit(ctx, call)
		must(err)
	}
	fmt.Println(task.FutureOf[int](p.Pending("then-four")).Get(ctx))
	fmt.Println(task.FutureOf[string](p.Pending("else-")).Get(ctx))
	// Output:
	// 8 <nil>
	// alarm: nothing to parse <nil>
}
