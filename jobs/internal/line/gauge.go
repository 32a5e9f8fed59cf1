package line

import (
	"fmt"
	"math"
	"strings"

	"github.com/swarmiji/swarmiji/task"
)

// Gauge compares the weight of running jobs with a limit. All numbers are thousandths.
type Gauge struct {
	Limit   int64 // 0: no limit
	Taken   int64
	Strict  bool
	Blocked bool // with Strict: a job did not fit
}

// Fits reports whether a job of this weight may start now. A job heavier than Limit fits only if no
// weight is taken.
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

// Start adds the weight of a job if it fits, and reports whether it does. With Strict a job that
// does not fit sets Blocked.
func (g *Gauge) Start(weight int64) bool {
	if !g.Fits(weight) {
		g.Blocked = g.Strict
		return false
	}
	g.Taken += weight
	return true
}

// Most returns the weight above which no job fits. Unset: any job may fit, or Strict requires to
// see all jobs.
func (g *Gauge) Most() task.Opt[int64] {
	if g.Limit == 0 || g.Taken == 0 || g.Strict {
		return task.Opt[int64]{}
	}
	return task.Set(max(g.Limit-g.Taken, 0))
}

// mostLimit is the largest limit, in thousandths. Sums of weights stay far below an overflow.
const mostLimit = 1 << 60

// InThousandths converts x to thousandths, rounded down. It corrects binary errors, so that 0.29 is
// 290.
func InThousandths(x float64) int64 {
	if x >= mostLimit/1000 {
		return mostLimit
	}
	return int64(math.Floor(x*1000 + 1e-6))
}

// Units formats thousandths as a decimal number.
func Units(n int64) string {
	text := fmt.Sprintf("%d.%03d", n/1000, n%1000)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}
