// Sourcestats counts the lines and functions of all Go files below a directory, one task per file,
// and finds the longest function. It is a complete program: a producer that submits thousands of
// tasks and collects the results, and consumer processes that run them.
//
//	go run ./examples/sourcestats                           in memory, one process
//	go run ./examples/sourcestats -broker URL -consumers 4  through a server, 4 consumer processes
//	go run ./examples/sourcestats -local                    no tasks, for comparison
//
// The directory is $(go env GOROOT)/src unless -root names another. Tasks carry the paths of files,
// not their contents, so all processes must be on one machine. A program that may submit to the
// queue can make its consumers read any .go file that they can read. The broker is any that package
// open knows. nats-embedded:///directory needs ?listen=127.0.0.1:0, so that the consumer processes
// can join the server in this one.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// brokerVariable holds the URL for consumer processes. Unlike arguments it is in no list of
// processes.
const brokerVariable = "SOURCESTATS_BROKER"

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is main with its surroundings as arguments. Several goroutines write to stderr. It returns
// the exit status.
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
