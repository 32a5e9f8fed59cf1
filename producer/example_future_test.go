package producer_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

// A future can be awaited with a limit, watched in a select, and asked without waiting. Another
// process can get the handle of a task by its id if the store keeps results.
func ExampleProducer_Pending() {
	slow := task.New[string, string]("slow")
	release := make(chan struct{})

	s := tasktest.New(nil)
	defer s.Close()
	s.Start(consumer.Config{}, func(r task.Registrar) error {
		return slow.Handle(r, func(_ context.Context, s string) (string, error) {
			<-release
			return "done: " + s, nil
		})
	})

	ctx := context.Background()
	future, err := slow.Submit(ctx, s, "report", task.WithID("report-7"))
	if err != nil {
		panic(err)
	}

	short, stop := context.WithTimeout(ctx, 10*time.Millisecond)
	defer stop()
	_, err = future.Get(short) // gives up; the task and the future continue
	fmt.Println("in time:", !errors.Is(err, context.DeadlineExceeded))
	state, err := future.State(ctx)
	fmt.Println(state, err)

	close(release)
	<-future.Done()
	fmt.Println(future.Get(ctx))

	other := task.FutureOf[string](s.Pending("report-7")) // as a process would that only knows the id
	fmt.Println(other.Get(ctx))
	_, err = s.Pending("report-8").State(ctx)
	fmt.Println("no record:", errors.Is(err, task.ErrNotFound))
	// Output:
	// in time: false
	// pending <nil>
	// done: report <nil>
	// done: report <nil>
	// no record: true
}
