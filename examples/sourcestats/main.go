// Sourcestats counts the lines and functions of all Go files below a directory, one task per file, and finds the longest
// function. It is a whole program of the kind that tasks are for: a producer that submits thousands of them and gathers
// the results, and consumer processes that run them.
//
//	go run ./examples/sourcestats                                  in memory, one process
//	go run ./examples/sourcestats -broker amqp://... -consumers 4  through a server, four consumer processes
//	go run ./examples/sourcestats -local                           no tasks at all: the same totals, for comparison
//
// The directory is $(go env GOROOT)/src unless -root names another. Tasks carry the paths of files, not their contents, so
// that all processes have to be on one machine; who may submit to the queue has its consumers read any .go file they may.
//
// The broker is any that package open knows; nats-embedded:///directory needs ?listen=127.0.0.1:0, so that the consumer
// processes can join the server in this one.
//
// The consumers are this program again, started and stopped by it: SIGTERM when all results are there, or an interrupt has
// come. One that fails, or ends early, fails the command.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// brokerVariable is where consumer processes find the URL: unlike arguments it is in no list of processes.
const brokerVariable = "SOURCESTATS_BROKER"

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

type options struct {
	broker, queue, root string
	consumers, workers  int
	json, local         bool
	consume             bool // be a consumer process
	logger              *slog.Logger
	stderr              io.Writer
}

// run is main with its surroundings as arguments; stderr is written to from several goroutines. It returns the exit status.
func run(args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	if o.consume {
		err = consumeUntilTold(o)
	} else {
		err = report(o, stdout)
	}
	if err != nil {
		say(stderr, "sourcestats: %v\n", err)
		return 1
	}
	return 0
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{stderr: stderr}
	f := flag.NewFlagSet("sourcestats", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.broker, "broker", os.Getenv(brokerVariable), "`URL` of the broker, default $"+brokerVariable+"; none: memory, all in this process")
	f.StringVar(&o.queue, "queue", "sourcestats", "`name` of the queue")
	f.StringVar(&o.root, "root", "", "`directory` of Go files; default $(go env GOROOT)/src")
	f.IntVar(&o.consumers, "consumers", 2, "how many consumers; with -broker each is a process")
	f.IntVar(&o.workers, "workers", 0, "how many files a consumer counts at once; 0: one per CPU")
	f.BoolVar(&o.json, "json", false, "print one JSON line")
	f.BoolVar(&o.local, "local", false, "count here, without tasks")
	f.BoolVar(&o.consume, "consume", false, "be one of the consumers")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	o.logger = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	var err error
	switch {
	case f.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.consumers < 1:
		err = errors.New("-consumers must be at least 1")
	case o.workers < 0:
		err = errors.New("-workers must not be negative")
	case o.consume && o.broker == "":
		err = errors.New("-consume needs -broker")
	}
	if err != nil {
		say(stderr, "sourcestats: %v\n", err)
		f.Usage()
	}
	return o, err
}

// report counts and prints.
func report(o *options, stdout io.Writer) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	begin := time.Now()
	var err error
	if o.root == "" {
		if o.root, err = goSource(ctx); err != nil {
			return err
		}
	}
	if o.root, err = resolve(o.root); err != nil {
		return err
	}
	files, err := goFiles(o.root)
	if err != nil {
		return err
	}
	sum := byTasks
	if o.local {
		sum = byHand
	}
	t, err := sum(ctx, o, files)
	if err != nil {
		return err
	}
	if o.json {
		return json.NewEncoder(stdout).Encode(t)
	}
	_, err = fmt.Fprintf(stdout, "files      %d\nlines      %d\nfunctions  %d\nlongest    %s, %d lines, in %s\ntook       %s\n",
		t.Files, t.Lines, t.Functions, t.Longest.Name, t.Longest.Lines, t.Longest.File, time.Since(begin).Round(time.Millisecond))
	return err
}

// byHand counts in a plain loop.
func byHand(ctx context.Context, o *options, files []File) (Totals, error) {
	var t Totals
	bar := newBar(o.stderr, len(files))
	defer bar.end()
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return Totals{}, err
		}
		s, err := count(f)
		if err != nil {
			return Totals{}, err
		}
		t.add(s.in(below(o.root, f.Path)))
		bar.step()
	}
	return t, nil
}
