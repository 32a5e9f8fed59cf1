package producer_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// A future can be waited for with a limit, watched in a select, and asked without waiting. Another process can have the
// handle of a task by its id, where the store keeps results.
func ExampleProducer_Pending() {
	slow := task.New[string, string]("slow")
	release := make(chan struct{})

	p, c, run := inMemory(producer.Config{}, consumer.Config{})
	must(slow.Handle(c, func(_ context.Context, s string) (string, error) {
		<-release
		return "done: " + s, nil
	}))
	defer run()()

	ctx, cancel := soon()
	defer cancel()
	future, err := slow.Submit(ctx, p, "report", task.WithID("report-7"))
	must(err)

	short, stop := context.WithTimeout(ctx, 10*time.Millisecond)
	defer stop()
	_, err = future.Get(short) // gives up; the task and the future go on
	fmt.Println("in time:", !errors.Is(err, context.DeadlineExceeded))
	state, err := future.State(ctx)
	fmt.Println(state, err)

	close(release)
	<-future.Done()
	fmt.Println(future.Get(ctx))

	other := task.FutureOf[string](p.Pending("report-7")) // as a process would that only knows the id
	fmt.Println(other.Get(ctx))
	_, err = p.Pending("report-8").State(ctx)
	fmt.Println("no record:", errors.Is(err, task.ErrNotFound))
	// Output:
	// in time: false
	// pending <nil>
	// done: report <nil>
	// done: report <nil>
	// no record: true
}
