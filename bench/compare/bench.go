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
	"strings"
)

// report holds the fields of a line of ./bench that the table needs.
type report struct {
	Rate          float64 `json:"rate"`
	P50           float64 `json:"p50_ms"`
	P99           float64 `json:"p99_ms"`
	Max           float64 `json:"max_ms"`
	Last          float64 `json:"last_ms"`
	AllocsPerTask float64 `json:"allocs_per_task"`
	RSS           int     `json:"rss_kb"`
	CPU           float64 `json:"cpu_percent"`
	Server        float64 `json:"server_cpu_percent"`
	Delayed       struct {
		Before    float64 `json:"enqueue_before"`
		After     float64 `json:"enqueue_after"`
		First     float64 `json:"first"`
		Final     float64 `json:"last"`
		RSSBefore float64 `json:"rss_before_kb"`
		RSSAfter  float64 `json:"rss_after_kb"`
		Drain     float64 `json:"drain_before"`
		DrainLate float64 `json:"drain_after"`
		Idle      float64 `json:"idle_percent"`
		Slowest   float64 `json:"slowest_ms"`
	} `json:"delayed"`
}

// bench runs ./bench.
type bench struct {
	options
	program string
	url     string
	seen    map[side][]report
	failed  map[side]error // the first error of a side, which is not measured again
}

// side is one of the two sides that a row compares.
type side struct {
	program string
	flags   string // separated by spaces
}

// measure runs every measurement of the rows once in order, then repeats that for the number of
// runs. So a temporary disturbance of the machine affects both sides. The sides take turns in being
// the first, since the second one was seen to be slower by several percent. Rows with the same
// measurement share it. Returns only the error of ctx: another one is stored in b.failed.
func (b *bench) measure(ctx context.Context, rows []row) error {
	for run := range b.runs {
		done := make(map[side]bool)
		for _, r := range rows {
			if r.once && run > 0 {
				continue
			}
			sides := b.sides(r)
			if run%2 == 1 {
				slices.Reverse(sides)
			}
			for _, s := range sides {
				if done[s] || b.failed[s] != nil {
					continue
				}
				done[s] = true
				if err := b.run(ctx, s); err != nil {
					if ctx.Err() != nil {
						return err
					}
					fmt.Fprintf(os.Stderr, "compare: %s: %v\n", r.name, err)
					b.failed[s] = err
				}
			}
		}
	}
	return nil
}

// sides returns the sides that a row measures: Swarmiji, and the side to compare it with, if any.
func (b *bench) sides(r row) []side {
	sides := []side{{b.program, b.flags(r, r.ours)}}
	switch {
	case b.base != "":
		sides = append(sides, side{b.base, b.flags(r, r.ours)})
	case r.raw != nil:
		sides = append(sides, side{b.program, b.flags(r, append(slices.Clone(r.raw), "-raw"))})
	}
	return sides
}

// line formats a row and reports whether the result meets the target. A row of which a side has
// failed does not.
func (b *bench) line(r row) (text string, ok bool) {
	var medians [2]float64
	for i, s := range b.sides(r) {
		if err := b.failed[s]; err != nil {
			return fmt.Sprintf("| %s | %v | | | | **failed** |", r.name, err), false
		}
		medians[i] = b.median(s, r.figure)
	}
	return r.cells(medians[0], medians[1])
}

func (b *bench) flags(r row, more []string) string {
	n := max(int(float64(r.n)*b.scale), 2)
	all := slices.Concat([]string{"-broker", b.url, "-workload", r.workload, "-n", strconv.Itoa(n)}, r.flags, more)
	return strings.Join(all, " ")
}

// run runs ./bench once and stores its report. It also writes the line to the standard error.
func (b *bench) run(ctx context.Context, s side) error {
	cmd := exec.CommandContext(ctx, s.program, strings.Fields(s.flags)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	fmt.Fprintf(os.Stderr, "%s", out)
	var r report
	if err := json.Unmarshal(bytes.TrimSpace(out), &r); err != nil {
		return fmt.Errorf("bench printed %q: %w", out, err)
	}
	b.seen[s] = append(b.seen[s], r)
	return nil
}

func (b *bench) median(s side, f figure) float64 {
	var vs []float64
	for _, r := range b.seen[s] {
		vs = append(vs, f.of(r))
	}
	slices.Sort(vs)
	return vs[len(vs)/2]
}
