package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
)

// row is a line of the table: a workload without and with a feature.
type row struct {
	name   string
	n      int
	flags  []string // of both sides
	with   []string // of the side with the feature
	older  bool     // the side without the feature is the older build
	wanted float64  // the maximum cost; 0.05 is five percent
}

const (
	unused = 0.05
	inUse  = 0.30
)

var (
	all  = []string{"-metrics", "-events"}
	many = []string{"-workload", "e2e", "-prefetch", "256"}
	wide = []string{"-workload", "e2e", "-concurrency", "256"}
	late = []string{"-workload", "drain", "-concurrency", "256"}
)

func memoryRows() []row {
	return []row{
		{name: "end to end, SubmitAll: this build against the older one, nothing used", n: 500_000, flags: many, older: true, wanted: unused},
		{name: "end to end, 256 concurrent Submits: the same", n: 500_000, flags: wide, older: true, wanted: unused},
		{name: "end to end, SubmitAll: metrics and all events to one listener against neither", n: 500_000, flags: many, with: all, wanted: inUse},
		{name: "end to end, 256 concurrent Submits: the same", n: 500_000, flags: wide, with: all, wanted: inUse},
	}
}

func rabbitRows() []row {
	return []row{
		{name: "drain, prefetch 256: this build against the older one, nothing used", n: 100_000, flags: late, older: true, wanted: unused},
		{name: "end to end, 256 concurrent Submits: the same", n: 100_000, flags: wide, older: true, wanted: unused},
		{name: "end to end, SubmitAll: metrics and all events to one listener against neither", n: 100_000, flags: many, with: all, wanted: inUse},
		{name: "end to end, 256 concurrent Submits: the same", n: 100_000, flags: wide, with: all, wanted: inUse},
	}
}

// report holds the fields of a line of ./bench that the table needs.
type report struct {
	N             int     `json:"n"`
	Seconds       float64 `json:"seconds"`
	Rate          float64 `json:"rate"`
	AllocsPerTask float64 `json:"allocs_per_task"`
	CPU           float64 `json:"cpu_percent"`
	Lost          int     `json:"events_lost"`
}

// cpu returns the processor time per task in microseconds.
func (r report) cpu() float64 { return r.CPU / 100 * r.Seconds / float64(r.N) * 1e6 }

// pair is one measurement of both sides.
type pair struct{ without, with report }

func (r row) run(ctx context.Context, o options, url string) ([]pair, error) {
	flags := append([]string{"-broker", url, "-n", strconv.Itoa(max(int(float64(r.n)*o.scale), 2))}, r.flags...)
	pairs := make([]pair, o.runs)
	for i := range pairs {
		without := func() (err error) {
			program := o.new
			if r.older {
				program = o.base
			}
			pairs[i].without, err = bench(ctx, program, flags)
			return err
		}
		with := func() (err error) {
			pairs[i].with, err = bench(ctx, o.new, slices.Concat(flags, r.with))
			return err
		}
		first, second := without, with
		if i%2 == 1 { // alternate, because the second run finds the machine warmer
			first, second = second, first
		}
		if err := first(); err != nil {
			return nil, err
		}
		if err := second(); err != nil {
			return nil, err
		}
	}
	return pairs, nil
}

// bench runs a build of ./bench and returns its report. It also writes the line to the standard
// error.
func bench(ctx context.Context, program string, flags []string) (report, error) {
	cmd := exec.CommandContext(ctx, program, flags...) //nolint:gosec // the user names it
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return report{}, fmt.Errorf("%s: %w", program, err)
	}
	fmt.Fprintf(os.Stderr, "%s", out)
	var r report
	if err := json.Unmarshal(bytes.TrimSpace(out), &r); err != nil {
		return report{}, fmt.Errorf("%s printed %q: %w", program, out, err)
	}
	return r, nil
}

// line formats a row and reports whether it meets its target.
func (r row) line(pairs []pair) (string, bool) {
	without := median(pairs, func(p pair) float64 { return p.without.Rate })
	with := median(pairs, func(p pair) float64 { return p.with.Rate })
	cost := median(pairs, func(p pair) float64 { return p.without.Rate/p.with.Rate - 1 })
	cpu := median(pairs, func(p pair) float64 { return p.with.cpu()/p.without.cpu() - 1 })
	before := median(pairs, func(p pair) float64 { return p.without.AllocsPerTask })
	after := median(pairs, func(p pair) float64 { return p.with.AllocsPerTask })
	lost := 0
	for _, p := range pairs {
		lost += p.with.Lost + p.without.Lost
	}
	mark, ok := "yes", cost <= r.wanted && lost == 0
	if !ok {
		mark = "**no**"
	}
	if lost > 0 {
		mark += fmt.Sprintf(", %d events lost", lost)
	}
	return fmt.Sprintf("| %s | %.0f/s | %.0f/s | %+.1f %% | at most %.0f %% | %+.1f %% | %.1f to %.1f (%+.1f) | %s |",
		r.name, without, with, 100*cost, 100*r.wanted, 100*cpu, before, after, after-before, mark), ok
}

func median(pairs []pair, of func(pair) float64) float64 {
	vs := make([]float64, len(pairs))
	for i, p := range pairs {
		vs[i] = of(p)
	}
	slices.Sort(vs)
	return vs[len(vs)/2]
}
