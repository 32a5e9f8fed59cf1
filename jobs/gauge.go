package jobs

import (
	"fmt"
	"math"
	"strings"

	"github.com/swarmiji/swarmiji/task"
)

// gauge measures what runs against a limit. It is in thousandths.
type gauge struct {
	limit   int64 // 0: none
	taken   int64
	strict  bool
	blocked bool // by one that did not fit, with strict
}

// fits reports whether a job of this weight may start now.
func (g *gauge) fits(weight int64) bool {
	switch {
	case g.blocked:
		return false
	case weight == 0 || g.limit == 0:
		return true
	case weight > g.limit:
		return g.taken == 0
	}
	return weight <= g.limit-g.taken
}

// start counts in a job if it fits.
func (g *gauge) start(weight int64) bool {
	if !g.fits(weight) {
		g.blocked = g.strict
		return false
	}
	g.taken += weight
	return true
}

// most is the weight above which nothing fits; unset: of some heavier ones the first one may, or has to be seen since it holds up others.
func (g *gauge) most() task.Opt[int64] {
	if g.limit == 0 || g.taken == 0 || g.strict {
		return task.Opt[int64]{}
	}
	return task.Set(max(g.limit-g.taken, 0))
}

// mostLimit is where limits end that can be told from none, in thousandths. It is far from where sums would.
const mostLimit = 1 << 60

// inThousandths rounds x down, but for what it lacks only because 0.29 is no binary fraction.
func inThousandths(x float64) int64 {
	if x >= mostLimit/1000 {
		return mostLimit
	}
	return int64(math.Floor(x*1000 + 1e-6))
}

// units writes thousandths as who gave them did.
func units(n int64) string {
	text := fmt.Sprintf("%d.%03d", n/1000, n%1000)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}
