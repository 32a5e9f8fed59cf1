package runner_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
	"github.com/swarmiji/swarmiji/jobs/runner"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/task"
)

// Position is the position in a feed.
type Position struct {
	Row    int  `json:"row"`
	Delete bool `json:"delete,omitempty"` // true: ends the repeats of the job
}

var feed = task.New[Position, Position]("feed")

// A runner runs jobs with the same typed handlers as a consumer. The result of a handler becomes
// the data of the job's next run. Queries show its progress.
func ExampleRunner() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store, err := memjobs.New(memjobs.Config{}) // or sqljobs, for SQLite and PostgreSQL
	if err != nil {
		panic(err)
	}
	service, err := jobs.New(jobs.Config{Store: store})
	if err != nil {
		panic(err)
	}
	defer service.Close(context.Background())
	worker, err := runner.New(runner.Config{Service: service})
	if err != nil {
		panic(err)
	}
	over := make(chan bool)
	if err := feed.Handle(worker, func(ctx context.Context, at Position) (Position, error) {
		if err := runner.Progress(ctx, Position{Row: at.Row + 50}); err != nil {
			return at, err
		}
		j, _ := runner.FromContext(ctx)
		now, err := service.Query(ctx, j.ID)
		fmt.Printf("run %d from row %d; asked on its way: %s %s\n", j.Run, at.Row, now.State, now.Data)
		if at.Row == 200 {
			defer close(over)
		}
		return Position{Row: at.Row + 100, Delete: at.Row == 200}, err
	}); err != nil {
		panic(err)
	}
	ended := make(chan error)
	go func() { ended <- worker.Run(ctx) }()

	if _, err := service.Create(ctx, jobs.Spec{Name: "feed", Repeat: "SCHEDULED, +0 SECONDS"}); err != nil {
		panic(err)
	}
	<-over
	stop()
	fmt.Println(<-ended)
	// Output:
	// run 1 from row 0; asked on its way: RUNNING {"row":50}
	// run 2 from row 100; asked on its way: RUNNING {"row":150}
	// run 3 from row 200; asked on its way: RUNNING {"row":250}
	// <nil>
}

// Due jobs can be dispatched to consumers as tasks, through any broker. The recorded end of the
// task ends the job.
func ExampleDispatch() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store, err := memjobs.New(memjobs.Config{})
	if err != nil {
		panic(err)
	}
	service, err := jobs.New(jobs.Config{Store: store})
	if err != nil {
		panic(err)
	}
	defer service.Close(context.Background())

	// An ordinary consumer. With Current it does not execute tasks of old runs, and its handlers can
	// report progress.
	mem, results := membroker.New(), memresults.New(memresults.Config{})
	defer mem.Close(context.Background())
	defer results.Close(context.Background())
	c, err := consumer.New(consumer.Config{Broker: mem, Results: results, Middleware: []middleware.Middleware{runner.Current(service)}})
	if err != nil {
		panic(err)
	}
	mail := task.New[map[string]string, task.None]("mail", task.WithMaxRetries(5))
	if err := mail.Handle(c, func(_ context.Context, m map[string]string) (task.None, error) {
		fmt.Println("to", m["to"])
		return task.None{}, nil
	}); err != nil {
		panic(err)
	}

	// The runner dispatches the jobs.
	p, err := producer.New(producer.Config{Broker: mem, Results: results})
	if err != nil {
		panic(err)
	}
	defer p.Close(context.Background())
	worker, err := runner.New(runner.Config{Service: service, Submit: p, Results: results})
	if err != nil {
		panic(err)
	}
	// a name that no broker accepts
	if err := runner.Dispatch(worker, mail, "www-prod/SendEmail"); err != nil {
		panic(err)
	}
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	go func() { ended <- worker.Run(ctx) }()

	made, err := service.Create(ctx, jobs.Spec{Name: "www-prod/SendEmail", Data: []byte(`{"to":"ann@example.com"}`)})
	if err != nil {
		panic(err)
	}
	for !errors.Is(err, jobs.ErrNotFound) { // a finished job is deleted
		<-time.After(10 * time.Millisecond)
		_, err = service.Query(ctx, made.ID)
	}
	stop()
	fmt.Println(<-ended, <-ended)
	// Output:
	// to ann@example.com
	// <nil> <nil>
}
