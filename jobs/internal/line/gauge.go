package line

import (
	"fmt"
	"math"
	"strings"

	"github.com/swarmiji/swarmiji/task"
)

// Gauge measures what runs against a limit. It is in thousandths.
type Gauge struct {
	Limit   int64 // 0: none
	Taken   int64
	Strict  bool
	Blocked bool // by one that did not fit, with strict
}

// Fits reports whether a job of this weight may start now.
func (g *Gauge) Fits(weight int64) bool {
	switch {
	case g.Blocked:
		return false
	case weight == 0 || g.Limit == 0:
		return true
	case weight > g.Limit:
		return g.Taken == 0
	}
	return weight <= g.Limit-g.Taken
}

// Start counts in a job if it fits.
func (g *Gauge) Start(weight int64) bool {
	if !g.Fits(weight) {
		g.Blocked = g.Strict
		return false
	}
	g.Taken += weight
	return true
}

// Most is the weight above which nothing fits; unset: of some heavier ones the first one may, or has to be seen since it holds up others.
func (g *Gauge) Most() task.Opt[int64] {
	if g.Limit == 0 || g.Taken == 0 || g.Strict {
		return task.Opt[int64]{}
	}
	return task.Set(max(g.Limit-g.Taken, 0))
}

// mostLimit is where limits end that can be told from none, in thousandths. It is far from where sums would.
const mostLimit = 1 << 60

// InThousandths rounds x down, but for what it lacks only because 0.29 is no binary fraction.
func InThousandths(x float64) int64 {
	if x >= mostLimit/1000 {
		return mostLimit
	}
	return int64(math.Floor(x*1000 + 1e-6))
}

// Units writes thousandths as who gave them did.
func Units(n int64) string {
	text := fmt.Sprintf("%d.%03d", n/1000, n%1000)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}
