// Quickstart submits three tasks and prints what became of them: one that succeeds, one that is retried until it does, and
// one that fails.
//
//	go run ./examples/quickstart
//
// needs no server: producer and consumer meet in memory. With -broker it only submits, to a consumer process elsewhere:
//
//	go run ./examples/worker     -broker amqp://guest:guest@localhost:5672/
//	go run ./examples/quickstart -broker amqp://guest:guest@localhost:5672/
//
// Any URL of package open will do: amqp, redis, nats. nats-embedded:///directory needs no server either, and keeps in the
// directory what was not finished.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/task"
)

// Definitions: a name, the types of arguments and result, and how the task is to be run. Where producer and consumer are
// two programs, these lines stand in a package that both import; what they must agree on is what is written here.

type Pair struct{ A, B int }

type Attempts struct {
	Failures int // how many runs fail before one succeeds
}

var (
	Add   = task.New[Pair, int]("demo.add", task.WithTimeLimit(10*time.Second))
	Flaky = task.New[Attempts, string]("demo.flaky", task.WithMaxRetries(3), task.WithRetryDelay(200*time.Millisecond))
)

// Functions: only the consuming side has them. What they return is the verdict.

func add(_ context.Context, p Pair) (int, error) { return p.A + p.B, nil }

func flaky(ctx context.Context, a Attempts) (string, error) {
	run := 1
	if r, ok := task.FromContext(ctx); ok {
		run += r.Retries
	}
	if run <= a.Failures {
		return "", task.Retry(fmt.Errorf("run %d failed, as it was asked to", run))
	}
	return fmt.Sprintf("succeeded in run %d", run), nil
}

// patience is how long a result may take before a note says what is waited for.
const patience = 3 * time.Second

func main() {
	url := flag.String("broker", "mem://", "`URL` of the broker; mem:// and nats-embedded:///directory run the tasks in this process, others wait for a worker")
	queue := flag.String("queue", router.DefaultQueue, "`name` of the queue")
	wait := flag.Duration("wait", 30*time.Second, "how long to wait for all results")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	note := func(text string) { fmt.Fprintln(os.Stderr, "quickstart:", text) }
	if err := run(ctx, *url, *queue, *wait, note); err != nil {
		note(err.Error())
		os.Exit(1)
	}
}

func run(ctx context.Context, url, queue string, wait time.Duration, note func(text string)) (err error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()

	// Broker, result store and event bus. Each can be had alone, from its own package.
	swarm, err := open.Open(ctx, url, open.Options{Name: "quickstart"})
	if err != nil {
		return err
	}
	defer closing(&err, swarm.Close)
	if err := swarm.Ping(ctx); err != nil { // it is better told now than waited for
		return err
	}

	if alone(url) {
		stop, err := consume(ctx, swarm, queue)
		if err != nil {
			return err
		}
		defer closing(&err, stop)
	}

	p, err := swarm.Producer(producer.Config{Router: router.Static(queue)})
	if err != nil {
		return err
	}
	defer closing(&err, p.Close)

	// Submit returns when the broker has confirmed the task. The future is its result to come.
	sum, err := Add.Submit(ctx, p, Pair{A: 1, B: 2})
	if err != nil {
		return err
	}
	retried, err := Flaky.Submit(ctx, p, Attempts{Failures: 2})
	if err != nil {
		return err
	}
	hopeless, err := Flaky.Submit(ctx, p, Attempts{Failures: 99}, task.WithMaxRetries(1)) // the call goes before the definition
	if err != nil {
		return err
	}

	hint := time.AfterFunc(patience, func() {
		note("the tasks are queued; waiting for a worker: go run ./examples/worker -broker URL -queue " + queue)
	})
	n, err := sum.Get(ctx)
	hint.Stop()
	if err != nil {
		return noAnswer(err, queue)
	}
	fmt.Println("add:     1 + 2 =", n)

	text, err := retried.Get(ctx)
	if err != nil {
		return noAnswer(err, queue)
	}
	fmt.Println("retried:", text)

	_, err = hopeless.Get(ctx)
	failure, ok := errors.AsType[*task.RemoteError](err) // the error itself stayed in the consumer's process
	if !ok {
		return noAnswer(err, queue)
	}
	fmt.Println("failed: ", failure.Message)
	return nil
}

// alone reports whether tasks have to run in this process: nobody else can reach its memory, and nobody else has to be
// there for a server that is part of it.
func alone(url string) bool {
	return strings.HasPrefix(url, "mem:") || strings.HasPrefix(url, "nats-embedded:")
}

// consume runs a consumer beside the producer. stop ends it: what runs is finished first.
func consume(ctx context.Context, swarm *open.Swarm, queue string) (stop func(context.Context) error, err error) {
	c, err := swarm.Consumer(consumer.Config{Queues: map[string]consumer.QueueConfig{queue: {Workers: 4}}})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(Add.Handle(c, add), Flaky.Handle(c, flaky)); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	return func(context.Context) error {
		cancel()
		return <-ended
	}, nil
}

// noAnswer explains an error of Get that says nothing about the task.
func noAnswer(err error, queue string) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("no answer in time; is a worker listening on queue %s? The tasks stay queued for it (%w)", queue, err)
}

// closing closes something at the end of run, which fails if that does.
func closing(err *error, end func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	*err = errors.Join(*err, end(ctx))
}
