// Command peers measures Swarmiji beside other task systems for the same server: River on
// PostgreSQL, asynq and BullMQ on Redis. All do the same work: tasks with 100 bytes of arguments
// and a handler that returns at once.
//
//	go run . [-servers postgres,redis] [-n 20000] [-runs 3] [-only drain]
//
// It starts a private server of each kind. The sides take turns, each measurement in a process of
// its own on an empty queue. It prints the medians and their ratio to Swarmiji's. README.md lists
// the settings and the guarantees of each side. Run it on an otherwise idle machine.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/swarmiji/swarmiji/internal/testserver"
)

// arguments are the bytes of each task's arguments.
const arguments = 100

// Result is the line that one measurement prints.
type Result struct {
	PerSecond float64
}

// workload is one kind of measurement.
type workload struct{ name, title string }

var workloads = []workload{
	{"bulk", "submit in calls of 10,000"},
	{"single", "submit one after another"},
	{"parallel", "submit from 64 goroutines, one task a call"},
	{"drain", "run what waits"},
	{"both", "submit in calls of 1,000 and run, in one process"},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("peers", flag.ContinueOnError)
	servers := fs.String("servers", "postgres,redis", "the servers to measure on")
	n := fs.Int("n", 20_000, "tasks per measurement; a twentieth of it one after another, a quarter from 64 goroutines")
	runs := fs.Int("runs", 3, "measurements of each side")
	only := fs.String("only", "", "one workload: bulk, single, parallel, drain or both; \"\": all")
	side := fs.String("side", "", "for the program's own processes: the side to measure")
	url := fs.String("url", "", "for the program's own processes: the server")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *side != "" {
		r, err := measure(ctx, *side, *only, *url, *n)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(r)
	}
	for server := range strings.SplitSeq(*servers, ",") {
		if err := beside(ctx, server, *only, *n, *runs); err != nil {
			return fmt.Errorf("%s: %w", server, err)
		}
	}
	return nil
}

// sidesOf returns the names of the sides that use the server. Swarmiji is the first.
func sidesOf(server string) []string {
	if server == "postgres" {
		return []string{"swarmiji", "river"}
	}
	return []string{"swarmiji", "asynq", "bullmq"}
}

// start starts a private server with the durability that README.md names.
func start(ctx context.Context, server string) (url string, stop func() error, err error) {
	switch server {
	case "postgres":
		s, err := testserver.StartPostgres(ctx, testserver.PostgresConfig{})
		if err != nil {
			return "", nil, err
		}
		return s.URL(), s.Close, nil
	case "redis":
		s, err := testserver.StartRedis(ctx, testserver.RedisConfig{AOF: "everysec"})
		if err != nil {
			return "", nil, err
		}
		return s.URL(), s.Close, nil
	}
	return "", nil, fmt.Errorf("unknown server %q; known are postgres and redis", server)
}

// beside measures all sides of a server in turn and prints the table.
func beside(ctx context.Context, server, only string, n, runs int) (err error) {
	url, stop, err := start(ctx, server)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	sides := sidesOf(server)
	fmt.Printf("\n%s, medians of %d runs, tasks per second\n\n", server, runs)
	w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintf(w, "workload\t%s\n", strings.Join(sides, "\t"))
	for _, load := range workloads {
		if only != "" && only != load.name {
			continue
		}
		rates := make(map[string][]float64)
		for i := range runs {
			order := slices.Clone(sides)
			if i%2 == 1 {
				slices.Reverse(order)
			}
			for _, side := range order {
				r, err := spawn(ctx, side, load.name, url, n)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", side, load.name, err)
				}
				rates[side] = append(rates[side], r.PerSecond)
			}
		}
		ours := median(rates[sides[0]])
		fmt.Fprintf(w, "%s\t%.0f", load.title, ours)
		for _, side := range sides[1:] {
			theirs := median(rates[side])
			fmt.Fprintf(w, "\t%.0f (we: %.2f of it)", theirs, ours/theirs)
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

// spawn runs one measurement in a process of its own.
func spawn(ctx context.Context, side, load, url string, n int) (Result, error) {
	switch load {
	case "single":
		n /= 20
	case "parallel":
		n /= 4
	}
	name, args := os.Args[0], []string{"-side", side, "-only", load, "-url", url, "-n", strconv.Itoa(n)}
	if side == "bullmq" {
		name, args = "node", []string{"bullmq.mjs", load, url, strconv.Itoa(n), strconv.Itoa(arguments)}
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return Result{}, err
	}
	var r Result
	return r, json.Unmarshal(out, &r)
}

func median(s []float64) float64 {
	slices.Sort(s)
	return s[len(s)/2]
}
