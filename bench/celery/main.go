// Command celery compares a Go worker and a Go producer of Celery's queues with those of Python, on
// a RabbitMQ that it starts.
//
//	go run ./bench/celery [-runs 3] [-tasks 20000] [-python /usr/bin/python3]
//
// It prints the medians in tasks per second and their ratio. A worker drains a full queue of small
// tasks, whose results are dropped or sent to a reply queue. Python runs as many processes as Go
// has processors. It exits with status 1 if the Go worker is less than 5 times as fast. Run it on
// an otherwise idle machine.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/swarmiji/swarmiji/internal/testserver"
)

//go:embed worker.py
var workerPy []byte

// target is the least ratio of the workers' speeds.
const target = 5

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "celery:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	fs := flag.NewFlagSet("celery", flag.ContinueOnError)
	runs := fs.Int("runs", 3, "how often each side runs")
	tasks := fs.Int("tasks", 20000, "the number of tasks of a run")
	python := fs.String("python", "/usr/bin/python3", "an interpreter that has Celery")
	if err := fs.Parse(args); err != nil {
		return err
	}
	srv, err := testserver.StartRabbit(ctx, testserver.RabbitConfig{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, srv.Close()) }()
	dir, err := os.MkdirTemp("", "celery")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.WriteFile(filepath.Join(dir, "worker.py"), workerPy, 0o600); err != nil {
		return err
	}
	b := &bench{url: srv.URL(), python: *python, dir: dir, tasks: *tasks}
	slow := false
	for _, row := range b.rows() {
		var rates [2][]float64
		for range *runs {
			for side, measure := range []func(context.Context) (float64, error){row.python, row.golang} {
				rate, err := measure(ctx)
				if err != nil {
					return fmt.Errorf("%s: %w", row.name, err)
				}
				rates[side] = append(rates[side], rate)
			}
		}
		theirs, ours := median(rates[0]), median(rates[1])
		fmt.Printf("%-34s Python %7.0f/s   Go %7.0f/s   %5.1f times\n", row.name, theirs, ours, ours/theirs)
		slow = slow || row.target && ours < target*theirs
	}
	if slow {
		return fmt.Errorf("a Go worker is less than %d times as fast", target)
	}
	return nil
}

// median returns the middle one of the values.
func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
