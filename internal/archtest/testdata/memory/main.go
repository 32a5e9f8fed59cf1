// Command memory runs one task in memory. TestSizes measures its binary.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

type pair struct{ A, B int }

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	add := task.New[pair, int]("math.add")
	swarm, err := open.Open(ctx, "mem://", open.Options{})
	if err != nil {
		return err
	}
	c, err := swarm.Consumer(consumer.Config{})
	if err != nil {
		return err
	}
	if err := add.Handle(c, func(_ context.Context, p pair) (int, error) { return p.A + p.B, nil }); err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(running) }()

	p, err := swarm.Producer(producer.Config{})
	if err != nil {
		return err
	}
	future, err := add.Submit(ctx, p, pair{1, 2})
	if err != nil {
		return err
	}
	sum, err := future.Get(ctx)
	fmt.Println(sum)
	stop()
	return errors.Join(err, <-ended, p.Close(ctx), swarm.Close(ctx))
}
