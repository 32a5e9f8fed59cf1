// Quickstart submits three tasks and prints their outcomes: one succeeds, one is retried until it
// does, and one fails.
//
//	go run ./examples/quickstart
//
// Producer and consumer meet in memory. With a broker they are two programs, see the examples
// worker and submit. It needs no server and prints:
//
//	add:     1 + 2 = 3
//	retried: succeeded in run 3
//	failed:  run 2 failed, as it was asked to
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
	"github.com/swarmiji/swarmiji/task"
)

// Definitions: a name, the types of arguments and result, and options. Producer and consumer share
// them.

type Pair struct{ A, B int }

var (
	Add = task.New[Pair, int]("demo.add", task.WithTimeLimit(10*time.Second))
	// Flaky fails as often as its argument says.
	Flaky = task.New[int, string]("demo.flaky", task.WithMaxRetries(3), task.WithRetryDelay(200*time.Millisecond))
)

// Handlers: only the consumer has them. Their results and errors are the verdicts.

func add(_ context.Context, p Pair) (int, error) { return p.A + p.B, nil }

func flaky(ctx context.Context, failures int) (string, error) {
	r, _ := task.FromContext(ctx)
	run := r.Retries + 1
	if run <= failures {
		return "", task.Retry(fmt.Errorf("run %d failed, as it was asked to", run))
	}
	return fmt.Sprintf("succeeded in run %d", run), nil
}

func main() {
	ctx := context.Background()
	swarm, err := open.Open(ctx, "mem://", open.Options{}) // broker, result store and event bus
	check(err)

	// The consumer runs beside the producer here.
	c, err := swarm.Consumer(consumer.Config{})
	check(err)
	check(errors.Join(Add.Handle(c, add), Flaky.Handle(c, flaky)))
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(running) }()

	// Submit returns when the broker has confirmed the task. The future is its result to come.
	p, err := swarm.Producer(producer.Config{})
	check(err)
	sum, err := Add.Submit(ctx, p, Pair{A: 1, B: 2})
	check(err)
	retried, err := Flaky.Submit(ctx, p, 2)
	check(err)
	// the option of the call overrides the definition
	hopeless, err := Flaky.Submit(ctx, p, 99, task.WithMaxRetries(1))
	check(err)

	n, err := sum.Get(ctx)
	check(err)
	fmt.Println("add:     1 + 2 =", n)
	text, err := retried.Get(ctx)
	check(err)
	fmt.Println("retried:", text)
	_, err = hopeless.Get(ctx)
	fmt.Println("failed: ", err)

	stop() // what runs is finished first
	check(errors.Join(<-ended, p.Close(ctx), swarm.Close(ctx)))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
