// Command compare starts a server of each engine and runs ./bench on it, alternately with Swarmiji
// and with the bare client. It prints a table of the medians, their ratios and the targets. It
// exits with status 1 if a row misses its target or cannot be measured.
//
//	go run ./bench/compare [-engines rabbit,redis,nats,postgres,sqlite,memory] [-runs 3] [-scale 1]
//		[-only drain] [-base FILE] [-new FILE]
//
// -base is a build of ./bench of an older commit. It replaces the bare client, and the target is a
// speed of at least 0.95 of the older one. -new is a build of the checkout; without it, compare
// builds one. "make bench BASE=commit" makes both.
//
// Run it from the root of the module, on an otherwise idle machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"syscall"

	"github.com/swarmiji/swarmiji/bench/servers"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

type options struct {
	runs    int
	scale   float64
	only    *regexp.Regexp
	engines []engine
	base    string
	new     string
}

func parse(args []string) (options, error) {
	fs := flag.NewFlagSet("compare", flag.ContinueOnError)
	runs := fs.Int("runs", 3, "how often each side runs")
	scale := fs.Float64("scale", 1, "factor on the numbers of tasks, for a quick look")
	only := fs.String("only", "", "regular expression on the rows")
	base := fs.String("base", "", "a build of ./bench to compare with; \"\": the bare client")
	program := fs.String("new", "", "a build of ./bench to measure; \"\": of the checkout, made now")
	names := fs.String("engines", "", "comma list of rabbit, redis, nats, hworker, postgres, sqlite and memory; \"\": all")
	if err := fs.Parse(args); err != nil {
		return options{}, err
	}
	re, err := regexp.Compile(*only)
	if err != nil {
		return options{}, err
	}
	if *runs < 1 || *scale <= 0 {
		return options{}, errors.New("-runs and -scale must be positive")
	}
	some, err := chosen(*names)
	return options{*runs, *scale, re, some, *base, *program}, err
}

func run(ctx context.Context, args []string) (err error) {
	o, err := parse(args)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "swarmiji-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if o.new == "" {
		o.new = filepath.Join(dir, "bench")
		build := exec.CommandContext(ctx, "go", "build", "-o", o.new, "github.com/swarmiji/swarmiji/bench")
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("build ./bench: %w", err)
		}
	}
	fmt.Printf("%s, %d cores, server included; medians of %d runs\n", runtime.Version(), runtime.NumCPU(), o.runs)
	missed := 0
	for _, e := range o.engines {
		if o.base != "" {
			e.rows = beside(e.rows)
		}
		e.rows = slices.DeleteFunc(e.rows, func(r row) bool { return !o.only.MatchString(r.name) })
		if len(e.rows) == 0 {
			continue
		}
		n, err := compare(ctx, o, e)
		if err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
		missed += n
	}
	if missed > 0 {
		return fmt.Errorf("%d rows are not what is wanted", missed)
	}
	return nil
}

// compare measures an engine, prints its table, and returns the number of rows that miss their
// target.
func compare(ctx context.Context, o options, e engine) (missed int, err error) {
	url, stop, err := servers.Start(ctx, e.name)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	b := bench{program: o.new, url: url, options: o, seen: make(map[side][]report), failed: make(map[side]error)}
	if err := b.measure(ctx, e.rows); err != nil {
		return 0, err
	}
	fmt.Printf("\n### %s\n\n", e.title)
	other := "raw client"
	if o.base != "" {
		other = "version before"
	}
	fmt.Printf("| workload | Swarmiji | %s | ratio | wanted | |\n", other)
	fmt.Println("|---|---|---|---|---|---|")
	for _, r := range e.rows {
		line, ok := b.line(r)
		fmt.Println(line)
		if !ok {
			missed++
		}
	}
	return missed, nil
}
