// Command fair measures fair queues. It prints lines of JSON, each with the load of the machine
// before and after.
//
//	go run ./bench/fair -broker redis [-n 1000000] [-heavy 1] [-light 100] [-producers 1]
//	go run ./bench/fair -broker redis -workload rates [-sides plain,10,10000] [-rounds 5]
//
// The broker is a URL that package open accepts, or the name of a private server: rabbit, redis,
// nats, postgres, sqlite or memory. The workloads:
//
//   - late: producers queue n tasks of heavy keys. Four consumers run them, each task for 10 ms,
//     with the default workers and prefetch. Then single tasks of light keys are submitted, about
//     20 in a second. late_ms is the time from the call of Submit to the start of the handler.
//     passed is the number of tasks that start between the return of Submit and that start. The
//     load of the machine hardly changes it.
//   - rates: messages are stored and then drained, by batches of 500 and a prefetch of 256. Each
//     side has a queue: "plain" one without Fair, "10" a fair one with messages of ten keys, and
//     "10b" the same with a bound for each key that is never reached. The sides take turns in each
//     round, and the first one is the base of the ratios. cpu_us is the processor time for a
//     message, of this process and of a private server.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/swarmiji/swarmiji/bench/servers"
	_ "github.com/swarmiji/swarmiji/open/all"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "fair:", err)
		stop()
		os.Exit(1)
	}
}

// config holds the values of the flags.
type config struct {
	broker                  string
	n, producers, consumers int

	heavy, light int
	lasts, long  time.Duration

	sides  string
	rounds int
}

func run(ctx context.Context, args []string) (err error) {
	var c config
	fs := flag.NewFlagSet("fair", flag.ContinueOnError)
	workload := fs.String("workload", "late", "late or rates")
	fs.StringVar(&c.broker, "broker", "memory", "URL of the broker, or the name of a private server")
	fs.IntVar(&c.n, "n", 100_000, "number of tasks")
	fs.IntVar(&c.producers, "producers", 1, "producers of late, each with a connection of its own")
	fs.IntVar(&c.consumers, "consumers", 4, "consumers, each with a connection of its own")
	fs.IntVar(&c.heavy, "heavy", 1, "keys of late that have a backlog")
	fs.IntVar(&c.light, "light", 100, "other keys of late")
	fs.DurationVar(&c.lasts, "lasts", 10*time.Millisecond, "the time that a task of late runs")
	fs.DurationVar(&c.long, "for", 30*time.Second, "the time in which late submits tasks of light keys")
	fs.StringVar(&c.sides, "sides", "plain,10,10000,100000", "sides of rates")
	fs.IntVar(&c.rounds, "rounds", 5, "rounds of rates")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if min(c.n, c.producers, c.consumers, c.heavy, c.light, c.rounds) < 1 {
		return errors.New("numbers must be at least 1")
	}
	if !strings.Contains(c.broker, "://") {
		url, stop, err := servers.Start(ctx, c.broker)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
		c.broker = url
	}
	switch *workload {
	case "late":
		return late(ctx, &c)
	case "rates":
		return rates(ctx, &c)
	}
	return fmt.Errorf("unknown workload %q", *workload)
}

// printed writes a line of JSON.
func printed(line any) error { return json.NewEncoder(os.Stdout).Encode(line) }

// load returns the load of the machine in the last minute, as the system says it, or "".
func load() string {
	data, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(data), " ")
	return first
}

// part returns the value below which the given part of all is, 0.5 for the median. all is sorted
// then.
func part[T int64 | float64 | time.Duration](all []T, of float64) T {
	slices.Sort(all)
	return all[min(len(all)-1, int(of*float64(len(all))))]
}
