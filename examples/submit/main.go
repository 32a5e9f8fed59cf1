// Submit submits three tasks to the workers of a queue and waits for their results.
//
//	go run ./examples/worker -broker redis://localhost:6379
//	go run ./examples/submit -broker redis://localhost:6379
//
// It prints the output of the quickstart. Any URL of package open works: amqp, redis, nats.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/swarmiji/swarmiji/examples/demo"
	"github.com/swarmiji/swarmiji/open"
	// a program that knows its broker imports one package only
	_ "github.com/swarmiji/swarmiji/open/all"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/task"
)

func main() {
	url := flag.String("broker", "", "`URL` of the broker, such as amqp://user:password@host:5672/, redis://host or nats://host")
	queue := flag.String("queue", router.DefaultQueue, "`name` of the queue")
	wait := flag.Duration("wait", 30*time.Second, "how long to wait for all results")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, *wait)
	err := run(ctx, *url, *queue, os.Stdout)
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "submit:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url, queue string, out io.Writer) (err error) {
	swarm, err := open.Open(ctx, url, open.Options{Name: "submit"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, swarm.Close(context.Background())) }()
	if err := swarm.Ping(ctx); err != nil { // says at once that no server answers, and what to do
		return err
	}
	p, err := swarm.Producer(producer.Config{Router: router.Static(queue)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close(context.Background())) }()

	// Submit returns when the broker has confirmed the task. The future is its result to come.
	sum, err := demo.Add.Submit(ctx, p, demo.Pair{A: 1, B: 2})
	if err != nil {
		return err
	}
	retried, err := demo.Flaky.Submit(ctx, p, demo.Attempts{Failures: 2})
	if err != nil {
		return err
	}
	hopeless, err := demo.Flaky.Submit(ctx, p, demo.Attempts{Failures: 99}, task.WithMaxRetries(1))
	if err != nil {
		return err
	}

	n, err := sum.Get(ctx)
	if err != nil {
		return noAnswer(err, queue)
	}
	_, _ = fmt.Fprintln(out, "add:     1 + 2 =", n)
	text, err := retried.Get(ctx)
	if err != nil {
		return noAnswer(err, queue)
	}
	_, _ = fmt.Fprintln(out, "retried:", text)
	_, err = hopeless.Get(ctx)
	// the error itself stayed in the worker's process
	failure, ok := errors.AsType[*task.RemoteError](err)
	if !ok {
		return noAnswer(err, queue)
	}
	_, _ = fmt.Fprintln(out, "failed: ", failure.Message)
	return nil
}

// noAnswer explains an error of Get that says nothing about the task.
func noAnswer(err error, queue string) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("no answer in time; is a worker listening on queue %s? The tasks stay queued for it: go run ./examples/worker -broker URL -queue %s (%w)", queue, queue, err)
}
