// Command compare starts a RabbitMQ of its own, runs ./bench on it, with Swarmiji and with the bare client in turn, and
// prints a table of the medians and their ratios, each beside what is wanted of it. It exits with status 1 when a row is
// not what is wanted.
//
//	go run ./bench/compare [-runs 3] [-scale 1] [-only drain]
//
// Run it from the root of the module, on a machine that does nothing else.
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

	"github.com/swarmiji/swarmiji/internal/testserver"
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
	runs  int
	scale float64
	only  *regexp.Regexp
}

func parse(args []string) (options, error) {
	fs := flag.NewFlagSet("compare", flag.ContinueOnError)
	runs := fs.Int("runs", 3, "how often each side runs")
	scale := fs.Float64("scale", 1, "factor on the numbers of tasks, for a quick look")
	only := fs.String("only", "", "regular expression on the rows")
	if err := fs.Parse(args); err != nil {
		return options{}, err
	}
	re, err := regexp.Compile(*only)
	if err == nil && (*runs < 1 || *scale <= 0) {
		err = errors.New("-runs and -scale must be positive")
	}
	return options{*runs, *scale, re}, err
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
	b := bench{program: filepath.Join(dir, "bench"), options: o, seen: make(map[string][]report)}
	build := exec.CommandContext(ctx, "go", "build", "-o", b.program, "github.com/swarmiji/swarmiji/bench")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build ./bench: %w", err)
	}
	server, err := testserver.StartRabbit(ctx, testserver.RabbitConfig{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	b.url = server.URL()

	chosen := slices.DeleteFunc(rows(), func(r row) bool { return !o.only.MatchString(r.name) })
	if err := b.measure(ctx, chosen); err != nil {
		return err
	}
	fmt.Printf("%s, %d cores, server included; medians of %d runs\n\n", runtime.Version(), runtime.NumCPU(), o.runs)
	fmt.Println("| workload | Swarmiji | raw client | ratio | wanted | |")
	fmt.Println("|---|---|---|---|---|---|")
	missed := 0
	for _, r := range chosen {
		line, ok := b.line(r)
		fmt.Println(line)
		if !ok {
			missed++
		}
	}
	if missed > 0 {
		return fmt.Errorf("%d rows are not what is wanted", missed)
	}
	return nil
}
