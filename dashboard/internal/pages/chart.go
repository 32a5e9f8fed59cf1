package pages

import (
	"time"

	"github.com/swarmiji/swarmiji/inspect"
)

// bar is a part of a chart, in its units.
type bar struct {
	Class string
	X, W  int64
}

// chartWidth is the width of a chart in its units.
const chartWidth = 200

// bars returns the numbers of tasks of a queue as parts of a line. nil: they are unknown.
func bars(r *inspect.Rates) (all []bar) {
	if r == nil || ended(r) <= 0 {
		return nil
	}
	x, total := int64(0), ended(r)
	for _, part := range parts(r) {
		if w := part.n * chartWidth / total; part.n > 0 {
			w = max(w, 2)
			all = append(all, bar{part.class, x, w})
			x += w
		}
	}
	return all
}

// column is a part of a sparkline, in its units.
type column struct{ X, Y, H int }

// Sizes of a sparkline, in its units.
const (
	columnWidth, columnGap = 6, 2
	sparkHeight            = 24
)

// columns returns the picture of counts. An hour with a failure has a column.
func columns(hours []hour) (all []column) {
	most := 1
	for _, h := range hours {
		most = max(most, h.N)
	}
	for i, h := range hours {
		if h.N > 0 {
			height := max(2, h.N*sparkHeight/most)
			all = append(all, column{i * (columnWidth + columnGap), sparkHeight - height, height})
		}
	}
	return all
}

// Sizes of the chart of minutes, in its units.
const (
	minuteWidth = 10 // of which a column fills 8
	ratesHeight = 80
)

// ratesChart is the picture of what ended in each of some minutes, for the template "rates".
type ratesChart struct {
	Width, Height int
	Blocks        []block
	Most          int64 // tasks of the highest column
	Since, Before time.Time
	Minutes       []inspect.Rates // those in which something happened, the newest first
}

// block is a part of a column.
type block struct {
	Class   string
	X, Y, H int
}

// chart returns the picture of rates. Without minutes it returns nil.
func chart(p inspect.RatePage) *ratesChart {
	n := len(p.Minutes)
	if n == 0 {
		return nil
	}
	c := &ratesChart{Width: n * minuteWidth, Height: ratesHeight, Since: p.Minutes[0].Since, Before: p.Minutes[n-1].Since.Add(time.Minute)}
	for i := range p.Minutes {
		c.Most = max(c.Most, ended(&p.Minutes[i]))
	}
	for i := range p.Minutes {
		r, top := &p.Minutes[i], ratesHeight
		if r.Sent+ended(r) > 0 {
			c.Minutes = append([]inspect.Rates{*r}, c.Minutes...)
		}
		for _, part := range parts(r) {
			if part.n > 0 {
				// each of the three can be seen
				height := 1 + int(float64(part.n)/float64(c.Most)*(ratesHeight-3))
				top -= height
				c.Blocks = append(c.Blocks, block{part.class, i * minuteWidth, top, height})
			}
		}
	}
	return c
}

// ended returns how many attempts ended.
func ended(r *inspect.Rates) int64 { return r.Succeeded + r.Retried + r.Failed }

// part is a number with the class of its colour.
type part struct {
	class string
	n     int64
}

// parts returns how attempts ended, in the order of charts.
func parts(r *inspect.Rates) []part {
	return []part{{"good", r.Succeeded}, {"warn", r.Retried}, {"bad", r.Failed}}
}
