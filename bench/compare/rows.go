package main

import "fmt"

// row is a line of the table.
type row struct {
	name     string
	workload string
	n        int
	once     bool     // it takes long: measured once
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

func latest() figure {
	return figure{of: func(r report) float64 { return r.Last }, unit: " ms", lower: true}
}

func p99() figure {
	return figure{of: func(r report) float64 { return r.P99 }, unit: " ms", lower: true}
}

func most() figure {
	return figure{of: func(r report) float64 { return r.Max }, unit: " ms", lower: true}
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
