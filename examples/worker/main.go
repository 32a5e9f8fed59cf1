// Worker is a consumer process for one queue. It knows the tasks of the package demo. It runs until
// SIGTERM or an interrupt, finishes running tasks, and gives the rest back. A second signal stops
// it at once.
//
//	go run ./examples/worker -broker amqp://guest:guest@localhost:5672/ -queue default -workers 4
//
// Start any number of workers. A worker waits for a broker that is down.
//
// The status is 0 after a clean stop, 1 after a failure or a stop that left tasks unfinished, 2
// after wrong arguments.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/open"
	// a program that knows its broker imports one package only
	_ "github.com/swarmiji/swarmiji/open/all"
	"github.com/swarmiji/swarmiji/router"
)

func main() { os.Exit(run(os.Args[1:], os.Stderr)) }

type options struct {
	broker, queue string
	workers       int
	shutdown      time.Duration
	verbose       bool
}

// run is main with its surroundings as arguments. It returns the exit status.
func run(args []string, stderr io.Writer) int {
	o, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	level := slog.LevelInfo
	if o.verbose {
		level = slog.LevelDebug
	}
	logger := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	if err := work(o, logger); err != nil {
		logger.Error("worker failed", slog.Any("error", err))
		return 1
	}
	logger.Info("worker stopped")
	return 0
}

func parse(args []string, stderr io.Writer) (*options, error) {
	var o options
	f := flag.NewFlagSet("worker", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.broker, "broker", "", "`URL` of the broker, such as amqp://user:password@host:5672/, redis://host or nats://host")
	f.StringVar(&o.queue, "queue", router.DefaultQueue, "`name` of the queue")
	f.IntVar(&o.workers, "workers", 0, "how many tasks run at once; 0: one per CPU")
	f.DurationVar(&o.shutdown, "shutdown", consumer.DefaultShutdownTimeout, "how long a stop waits for running tasks")
	f.BoolVar(&o.verbose, "v", false, "log every task")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	var err error
	switch {
	case f.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.broker == "":
		err = errors.New("-broker is missing")
	case strings.HasPrefix(o.broker, "mem:"):
		err = errors.New("-broker mem:// has no use here: no other process can reach the memory of this one")
	}
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "worker:", err)
		f.Usage()
	}
	return &o, err
}

// work consumes until a signal comes.
func work(o *options, logger *slog.Logger) (err error) {
	ctx := context.Background()
	swarm, err := open.Open(ctx, o.broker, open.Options{Name: "worker", Logger: logger})
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		err = errors.Join(err, swarm.Close(closing))
	}()
	c, err := swarm.Consumer(consumer.Config{
		Logger: logger, ShutdownTimeout: o.shutdown,
		Queues:     map[string]consumer.QueueConfig{o.queue: {Workers: o.workers}},
		Middleware: []middleware.Middleware{middleware.Log(logger)},
	})
	if err != nil {
		return err
	}
	if err := register(c); err != nil {
		return err
	}
	logger.Info("worker consumes", slog.String(middleware.LogQueue, o.queue), slog.Any("tasks", c.Names()))
	if err := swarm.Ping(ctx); err != nil {
		logger.Warn("worker waits for its broker", slog.Any("error", err))
	}
	return consumer.RunUntilSignal(ctx, c)
}
