package main

import "fmt"

// row is a line of the table.
type row struct {
	name     string
	workload string
	n        int
	once     bool     // takes long, so it is measured once
	flags    []string // of both sides
	ours     []string // of Swarmiji only
	raw      []string // of the bare client only, in addition to -raw; nil: no comparison
	figure   figure
	wanted   float64 // target for the ratio, or for the figure without raw; 0: no target
}

// leastOfBefore is the minimum ratio of Swarmiji's speed to that of the older version.
const leastOfBefore = 0.95

// beside turns rows that compare with the bare client into rows that compare with the older
// version.
func beside(rows []row) []row {
	seen := make(map[string]bool)
	var some []row
	for _, r := range rows {
		same := fmt.Sprint(r.workload, r.n, r.flags, r.ours)
		if r.figure.speed && seen[same] { // such rows differ only in the bare client
			continue
		}
		seen[same] = seen[same] || r.figure.speed
		r.raw, r.wanted = []string{}, 0
		switch {
		case r.figure.speed && r.figure.lower:
			r.wanted = 1 / leastOfBefore
		case r.figure.speed:
			r.wanted = leastOfBefore
		}
		some = append(some, r)
	}
	return some
}

// figure selects the value of a report that a row shows.
type figure struct {
	of    func(report) float64
	unit  string
	lower bool // smaller is better
	speed bool // stable enough for a comparison with the older version
}

func rate() figure {
	return figure{of: func(r report) float64 { return r.Rate }, unit: "/s", speed: true}
}

func p50() figure {
	return figure{of: func(r report) float64 { return r.P50 }, unit: " ms", lower: true, speed: true}
}

func allocs() figure {
	return figure{of: func(r report) float64 { return r.AllocsPerTask }, unit: " allocs", lower: true}
}

func memory() figure {
	return figure{of: func(r report) float64 { return float64(r.RSS) / 1024 }, unit: " MB", lower: true}
}

func processor() figure {
	return figure{of: func(r report) float64 { return r.CPU + r.Server }, unit: " % of a core", lower: true}
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

// cells formats a row and reports whether it meets its target. ours and theirs are medians.
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

// number formats v with about three digits and groups thousands.
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
