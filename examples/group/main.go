// Group runs many tasks at a time, and shows how many have ended.
//
//	go run ./examples/group
//
// It needs no server and prints:
//
//	ended: 5 of 5
//	squares: [1 4 9 16 25]
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

var Square = task.New[int, int]("demo.square")

func square(_ context.Context, n int) (int, error) { return n * n, nil }

func main() {
	ctx := context.Background()
	swarm, err := open.Open(ctx, "mem://", open.Options{})
	check(err)
	p, err := swarm.Producer(producer.Config{})
	check(err)
	c, err := swarm.Consumer(consumer.Config{})
	check(err)
	check(Square.Handle(c, square))
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(running) }()

	var members []task.Part[task.None, int]
	for n := range 5 {
		members = append(members, Square.Bound(n+1))
	}
	group, err := task.Group(members...).Submit(ctx, p, task.None{})
	check(err)

	// Each step has a future: the members, and last what gathers their results.
	steps := group.Steps()
	for i, member := range steps[:len(steps)-1] {
		check(member.Result(ctx, nil))
		fmt.Printf("\rended: %d of %d", i+1, len(members))
	}
	squares, err := group.Get(ctx)
	check(err)
	fmt.Println("\nsquares:", squares)

	stop()
	check(errors.Join(<-ended, p.Close(ctx), swarm.Close(ctx)))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
