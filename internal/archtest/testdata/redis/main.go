// Command redis is a worker that opens the URL in its argument and imports only Redis. TestSizes
// measures its binary.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/open"
	_ "github.com/swarmiji/swarmiji/open/redis"
	"github.com/swarmiji/swarmiji/task"
)

type pair struct{ A, B int }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string) error {
	swarm, err := open.Open(ctx, url, open.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, swarm.Close(context.WithoutCancel(ctx))) }()
	if err := swarm.Ping(ctx); err != nil {
		return err
	}
	c, err := swarm.Consumer(consumer.Config{})
	if err != nil {
		return err
	}
	add := task.New[pair, int]("math.add")
	if err := add.Handle(c, func(_ context.Context, p pair) (int, error) { return p.A + p.B, nil }); err != nil {
		return err
	}
	return c.Run(ctx)
}
