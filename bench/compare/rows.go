package main

import "fmt"

// row is a line of the table.
type row struct {
	name     string
	workload string
	n        int
	memory   bool     // on the memory broker
	flags    []string // of both sides
	ours     []string // of Swarmiji alone
	raw      []string // of the bare client alone, besides -raw; nil: the row compares with nothing
	figure   figure
	wanted   float64 // of the ratio, or without raw of the figure; 0: nothing is wanted, the row only tells
}

// figure picks what a row is about from a report.
type figure struct {
	of    func(report) float64
	unit  string
	lower bool // the smaller the better
}

func rate() figure { return figure{of: func(r report) float64 { return r.Rate }, unit: "/s"} }
func p50() figure {
	return figure{of: func(r report) float64 { return r.P50 }, unit: " ms", lower: true}
}

func allocs() figure {
	return figure{of: func(r report) float64 { return r.AllocsPerTask }, unit: " allocs", lower: true}
}

func memory() figure {
	return figure{of: func(r report) float64 { return float64(r.RSS) / 1024 }, unit: " MB", lower: true}
}

func processor() figure {
	return figure{of: func(r report) float64 { return r.CPU }, unit: " % of a core", lower: true}
}

// rows is the table: what issue and README say that is wanted of it.
func rows() []row {
	var (
		wide  = []string{"-concurrency", "256"}
		alone = []string{}
	)
	return []row{
		{name: "enqueue, SubmitAll", workload: "enqueue", n: 50_000, raw: alone, figure: rate(), wanted: 0.85},
		{name: "enqueue, 256 concurrent Submits", workload: "enqueue", n: 50_000, flags: wide, raw: alone, figure: rate(), wanted: 0.85},
		{name: "drain, prefetch 256, raw acknowledges each", workload: "drain", n: 50_000, flags: wide, raw: alone, figure: rate(), wanted: 0.95},
		{name: "drain, prefetch 256, raw acknowledges 64 at once", workload: "drain", n: 50_000, flags: wide, raw: []string{"-multiple"}, figure: rate(), wanted: 0.55},
		{name: "drain, prefetch 256, with results", workload: "drain", n: 50_000, flags: wide, ours: []string{"-results"}, raw: alone, figure: rate()},
		{name: "drain, prefetch 256, with events to one listener", workload: "drain", n: 50_000, flags: wide, ours: []string{"-events"}, raw: alone, figure: rate()},
		{name: "drain, default prefetch (4 per worker), raw acknowledges each of 256", workload: "drain", n: 50_000, flags: wide, ours: []string{"-prefetch", "-1"}, raw: alone, figure: rate()},
		{name: "drain, prefetch 256: allocations per task", workload: "drain", n: 50_000, flags: wide, figure: allocs(), wanted: 60},
		{name: "drain, prefetch 256: memory of the consumer", workload: "drain", n: 50_000, flags: wide, figure: memory(), wanted: 40},
		{name: "end to end in one process, 256 concurrent Submits", workload: "e2e", n: 50_000, flags: wide, raw: alone, figure: rate()},
		{name: "round trip, one after the other, p50", workload: "roundtrip", n: 2_000, raw: alone, figure: p50(), wanted: 1.6},
		{name: "idle consumer", workload: "idle", n: 2, figure: processor(), wanted: 0.5},
		{name: "memory broker, end to end, SubmitAll", workload: "e2e", n: 500_000, memory: true, ours: []string{"-prefetch", "256"}, figure: rate(), wanted: 300_000},
		{name: "memory broker, end to end: allocations per task", workload: "e2e", n: 500_000, memory: true, ours: []string{"-prefetch", "256"}, figure: allocs(), wanted: 30},
		{name: "memory broker, end to end, 256 concurrent Submits", workload: "e2e", n: 500_000, memory: true, flags: wide, figure: rate()},
	}
}

// cells formats a row. ours and theirs are medians.
func (r *row) cells(ours, theirs float64) (line string, ok bool) {
	raw, ratio, wanted, mark := "", "", "", ""
	measured := ours
	if r.raw != nil {
		measured = ours / theirs
		raw, ratio = number(theirs)+r.figure.unit, fmt.Sprintf("%.2f", measured)
	}
	ok = true
	if r.wanted > 0 {
		word := "at least"
		ok = measured >= r.wanted
		if r.figure.lower {
			word, ok = "at most", measured <= r.wanted
		}
		wanted = word + " " + number(r.wanted)
		if mark = "yes"; !ok {
			mark = "**no**"
		}
	}
	return fmt.Sprintf("| %s | %s%s | %s | %s | %s | %s |", r.name, number(ours), r.figure.unit, raw, ratio, wanted, mark), ok
}

// number shows three digits or so, and groups thousands.
func number(v float64) string {
	switch {
	case v >= 1000:
		return fmt.Sprintf("%d,%03d", int(v+0.5)/1000, int(v+0.5)%1000)
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}
