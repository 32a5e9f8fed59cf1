// Chain runs three tasks one after the other, each with the result of the one before it. The
// program that submits them may end at once: the successors travel in the messages.
//
//	go run ./examples/chain
//
// It needs no server and prints:
//
//	three: 1 dozen is 12, and half of it is 6
//	failed at demo.times: too many dozens
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

var (
	Parse = task.New[string, int]("demo.parse")
	Times = task.New[int, int]("demo.times")
	Say   = task.New[int, string]("demo.say")
)

func parse(_ context.Context, text string) (n int, err error) {
	_, err = fmt.Sscanf(text, "%d dozen", &n)
	return n, err
}

func times(_ context.Context, dozens int) (int, error) {
	if dozens > 100 {
		return 0, errors.New("too many dozens")
	}
	return 12 * dozens, nil
}

func say(_ context.Context, n int) (string, error) {
	return fmt.Sprintf("1 dozen is %d, and half of it is %d", n, n/2), nil
}

func main() {
	ctx := context.Background()
	swarm, err := open.Open(ctx, "mem://", open.Options{})
	check(err)
	p, err := swarm.Producer(producer.Config{})
	check(err)
	c, err := swarm.Consumer(consumer.Config{})
	check(err)
	check(errors.Join(Parse.Handle(c, parse), Times.Handle(c, times), Say.Handle(c, say)))
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(running) }()

	three := task.Chain3(Parse, Times, Say)
	good, err := three.Submit(ctx, p, "1 dozen")
	check(err)
	text, err := good.Get(ctx)
	check(err)
	fmt.Println("three:", text)

	// A step that fails for good ends the chain: later steps do not run.
	bad, err := three.Submit(ctx, p, "1000 dozen")
	check(err)
	_, err = bad.Get(ctx)
	if failure, ok := errors.AsType[*task.RemoteError](err); ok {
		fmt.Printf("failed at %s: %s\n", failure.Step, failure.Message)
	}

	stop()
	check(errors.Join(<-ended, p.Close(ctx), swarm.Close(ctx)))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
