package inspect_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/history/memhistory"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/task"
)

// A task that has finished runs again: its consumer keeps the messages of tasks in the history. A
// program with a database uses sqlhistory instead of memhistory.
func ExampleLocal_RunTask_finished() {
	ctx, stop := context.WithCancel(context.Background())
	quiet := slog.New(slog.DiscardHandler)
	swarm, err := open.Open(ctx, "mem://", open.Options{Control: true})
	if err != nil {
		panic(err)
	}
	defer func() { _ = swarm.Close(context.Background()) }()
	store, err := memhistory.New(memhistory.Config{})
	if err != nil {
		panic(err)
	}
	recorder, err := history.NewRecorder(history.RecorderConfig{Bus: swarm.Events, Store: store, Logger: quiet})
	if err != nil {
		panic(err)
	}
	c, err := swarm.Consumer(consumer.Config{
		Queues: map[string]consumer.QueueConfig{"mail": {}}, Logger: quiet,
		Report: events.Report{KeepArguments: events.MaxOriginal},
	})
	if err != nil {
		panic(err)
	}
	sent := make(chan string, 2)
	welcome := task.New[string, task.None]("mail.welcome")
	err = welcome.Handle(c, func(_ context.Context, to string) (task.None, error) {
		sent <- to
		return task.None{}, nil
	})
	if err != nil {
		panic(err)
	}
	ended := make(chan error, 2)
	go func() { ended <- recorder.Run(ctx) }()
	<-recorder.Listening()
	go func() { ended <- c.Run(ctx) }()
	p, err := swarm.Producer(producer.Config{Router: router.Static("mail")})
	if err != nil {
		panic(err)
	}
	if _, err := welcome.Submit(ctx, p, "ada@example.com", task.WithID("welcome-ada")); err != nil {
		panic(err)
	}
	fmt.Println(<-sent)

	api, err := open.Inspector(swarm, inspect.Config{History: store, Listen: 100 * time.Millisecond, Logger: quiet})
	if err != nil {
		panic(err)
	}
	for {
		_, err := api.RunTask(ctx, inspect.TaskRun{ID: "welcome-ada"})
		if err == nil {
			break
		}
		if !errors.Is(err, inspect.ErrConflict) && !errors.Is(err, inspect.ErrNotFound) {
			panic(err)
		}
		<-time.After(20 * time.Millisecond) // the recorder writes ten times a second
	}
	fmt.Println(<-sent)
	err = p.Close(ctx)
	stop()
	fmt.Println(err, <-ended, <-ended)
	// Output:
	// ada@example.com
	// ada@example.com
	// <nil> <nil> <nil>
}
