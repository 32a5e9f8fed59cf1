// Worker for the outputs of docs/operations.md.
package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/open"
	_ "github.com/swarmiji/swarmiji/open/sqlite"
	"github.com/swarmiji/swarmiji/task"
)

func main() {
	ctx := context.Background()
	s, err := open.Open(ctx, os.Args[1], open.Options{Control: true})
	if err != nil {
		panic(err)
	}
	c, err := s.Consumer(consumer.Config{
		Report: events.Report{NodeID: os.Args[2]}, Control: &control.Config{},
		Queues: map[string]consumer.QueueConfig{"mail": {Workers: 2}, "reports": {Workers: 1}},
	})
	if err != nil {
		panic(err)
	}
	send := task.New[map[string]string, string]("mail.send", task.WithMaxRetries(0))
	report := task.New[map[string]string, string]("report.make", task.WithMaxRetries(0))
	err = errors.Join(
		send.Handle(c, func(ctx context.Context, in map[string]string) (string, error) {
			if _, err := os.Stat("broken"); err == nil {
				return "", errors.New("dial tcp 10.0.0.7:25: connection refused")
			}
			return "sent", nil
		}),
		report.Handle(c, func(ctx context.Context, in map[string]string) (string, error) {
			select {
			case <-time.After(time.Hour):
				return "done", nil
			case <-ctx.Done():
				return "", ctx.Err()
			}
		}),
	)
	if err != nil {
		panic(err)
	}
	if err := consumer.RunUntilSignal(ctx, c); err != nil {
		os.Exit(1)
	}
}
