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
	Taken   int64 // sum of the weights of the running jobs
	Strict  bool  // a job that does not fit blocks all later jobs
	Blocked bool  // with Strict: a job did not fit
}

// Fits reports whether a job of this weight may start now, without changing g. The first case that
// applies decides: after Blocked no job fits; a weight of 0 or a Limit of 0 always fits; a weight
// above Limit fits only if Taken is 0. Otherwise the weight must fit into the rest of Limit.
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

// Start adds the weight of a job to Taken if it fits, and reports whether it does. With Strict a
// job that does not fit sets Blocked, so that no later job fits.
func (g *Gauge) Start(weight int64) bool {
	if !g.Fits(weight) {
		g.Blocked = g.Strict
		return false
	}
	g.Taken += weight
	return true
}

// Most returns the weight above which no job fits: the rest of Limit, at least 0. It is unset if
// any job may fit (no Limit, or nothing taken), or if Strict requires to see all jobs.
func (g *Gauge) Most() task.Opt[int64] {
	if g.Limit == 0 || g.Taken == 0 || g.Strict {
		return task.Opt[int64]{}
	}
	return task.Set(max(g.Limit-g.Taken, 0))
}

// mostLimit is the largest limit, in thousandths. Sums of weights stay far below an overflow.
const mostLimit = 1 << 60

// InThousandths converts x to thousandths, rounded down. It corrects binary errors, so that 0.29 is
// 290. A result above mostLimit becomes mostLimit.
func InThousandths(x float64) int64 {
	if x >= mostLimit/1000 {
		return mostLimit
	}
	return int64(math.Floor(x*1000 + 1e-6))
}

// Units formats thousandths as a decimal number without trailing zeros: 1500 is "1.5", 2000 is "2".
func Units(n int64) string {
	text := fmt.Sprintf("%d.%03d", n/1000, n%1000)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}
