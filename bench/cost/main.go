// Command cost measures the cost of features. It runs ./bench in interleaved pairs, one side with
// the feature and one without, on the memory broker and on a RabbitMQ that it starts. It prints the
// medians.
//
//	go run ./bench/cost -new FILE [-base FILE] [-runs 5] [-scale 1] [-engines memory,rabbit]
//		[-only REGEXP]
//
// FILE is a build of ./bench. -new is the build to measure. -base is a build of an older commit,
// for the cost of unused features; without it those rows are left out. scripts/beside.sh makes both
// builds.
//
// The two sides of a pair run directly after each other, and each side is first in turn. Cost is
// how much longer a task takes, as the median of the pairs. It exits with status 1 if a cost
// exceeds its target or an event was lost. Run it on an otherwise idle machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"strings"
	"syscall"

	"github.com/swarmiji/swarmiji/internal/testserver"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "cost:", err)
		os.Exit(1)
	}
}

type options struct {
	base, new string
	runs      int
	scale     float64
	engines   []string
	only      *regexp.Regexp
}

func parse(args []string) (options, error) {
	fs := flag.NewFlagSet("cost", flag.ContinueOnError)
	var o options
	fs.StringVar(&o.new, "new", "", "a build of ./bench of what is judged")
	fs.StringVar(&o.base, "base", "", "a build of ./bench of an older commit; \"\": none")
	fs.IntVar(&o.runs, "runs", 5, "how many pairs")
	fs.Float64Var(&o.scale, "scale", 1, "factor on the numbers of tasks, for a quick look")
	engines := fs.String("engines", "memory,rabbit", "comma list of memory and rabbit")
	only := fs.String("only", "", "regular expression on the rows")
	if err := fs.Parse(args); err != nil {
		return options{}, err
	}
	var err error
	o.only, err = regexp.Compile(*only)
	if o.engines = strings.Split(*engines, ","); o.new == "" || o.runs < 1 || o.scale <= 0 {
		err = errors.Join(err, errors.New("-new must name a file, -runs and -scale must be positive"))
	}
	return o, err
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	fmt.Printf("%s, %d cores; medians of %d interleaved pairs\n", runtime.Version(), runtime.NumCPU(), o.runs)
	missed := 0
	for _, name := range o.engines {
		n, err := measure(ctx, o, name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		missed += n
	}
	if missed > 0 {
		return fmt.Errorf("%d rows are not what is wanted", missed)
	}
	return nil
}

// measure prints the table of an engine and returns the number of rows that miss their target.
func measure(ctx context.Context, o options, name string) (missed int, err error) {
	url, rows := "mem://", memoryRows()
	switch name {
	case "memory":
	case "rabbit":
		server, startErr := testserver.StartRabbit(ctx, testserver.RabbitConfig{})
		if startErr != nil {
			return 0, startErr
		}
		defer func() { err = errors.Join(err, server.Close()) }()
		url, rows = server.URL(), rabbitRows()
	default:
		return 0, fmt.Errorf("unknown engine %q; known are memory and rabbit", name)
	}
	fmt.Printf("\n### %s\n\n", name)
	fmt.Println("| workload | without | with | cost per task | wanted | processor time | allocations per task | |")
	fmt.Println("|---|---|---|---|---|---|---|---|")
	for _, r := range rows {
		if !o.only.MatchString(r.name) || r.older && o.base == "" {
			continue
		}
		pairs, err := r.run(ctx, o, url)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", r.name, err)
		}
		line, ok := r.line(pairs)
		fmt.Println(line)
		if !ok {
			missed++
		}
	}
	return missed, nil
}
