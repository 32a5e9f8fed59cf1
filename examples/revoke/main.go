// Revoke stops a task before it starts, and one that runs.
//
//	go run ./examples/revoke
//
// It needs no server and prints:
//
//	waiting: swarmiji: task revoked
//	running: swarmiji: task revoked
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/task"
)

var Print = task.New[string, string]("demo.print")

func main() {
	ctx := context.Background()
	swarm, err := open.Open(ctx, "mem://", open.Options{})
	check(err)
	p, err := swarm.Producer(producer.Config{})
	check(err)
	c, err := swarm.Consumer(consumer.Config{})
	check(err)
	started := make(chan string, 1)
	check(Print.Handle(c, func(ctx context.Context, document string) (string, error) {
		started <- document
		<-ctx.Done() // a handler that heeds its context can be revoked while it runs
		return "", context.Cause(ctx)
	}))
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(running) }()

	revoker, err := revoke.NewRevoker(revoke.RevokerConfig{Events: swarm.Revocations})
	check(err)

	report, err := Print.Submit(ctx, p, "report", task.WithDelay(time.Second))
	check(err)
	_, err = revoker.Revoke(ctx, revoke.Options{}, report.ID())
	check(err)
	_, err = report.Get(ctx)
	fmt.Println("waiting:", err)

	novel, err := Print.Submit(ctx, p, "novel")
	check(err)
	<-started
	_, err = revoker.Revoke(ctx, revoke.Options{Terminate: true}, novel.ID())
	check(err)
	_, err = novel.Get(ctx)
	fmt.Println("running:", err)

	stop()
	check(errors.Join(<-ended, p.Close(ctx), swarm.Close(ctx)))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
