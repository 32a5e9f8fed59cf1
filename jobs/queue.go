package jobs

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// DefaultQueuePoll is how often a queue is looked at, if nothing else calls for a look.
const DefaultQueuePoll = 5 * time.Second

// Queue is a line of jobs, of which as many run at a time as its limit and its throttler let run. One runner at a time serves a queue, by a lease that it has; others
// of the same queue stand by. What the queue is like is told by who serves it, so that all of them are given the same.
//
// Priorities and the order matter only where jobs have to wait. A job of low priority may wait for ever behind others that keep coming: nothing ages.
type Queue struct {
	// Name is that of the jobs' [Spec].Queue: 1 to [MaxName] bytes.
	Name string
	// Limit is how much may run at a time: the sum of the weights of all jobs of the queue that run, those that await answers included. It is kept in
	// thousandths. 0: there is no limit. Any other number below 1 is refused.
	//
	// A job of weight 0 always fits. One that is heavier than the limit runs when nothing else runs that weighs anything, and then alone; in a queue that is never
	// empty it may wait for ever.
	Limit float64
	// Order is that in which jobs are looked at. The zero value is [TimeFirst].
	Order Order
	// Strict: the first job that does not fit holds up all that come behind it, those of weight 0 too. Off: it is passed over, and what fits runs.
	Strict bool
	// Throttler has a say besides the limit: what is to run has to be let by both. nil: the limit alone.
	Throttler Throttler
	// Poll is how often the queue is looked at by itself. A look also comes at once on word from the store, when the next job becomes due, and when one has ended here. Where a
	// look takes long, and finds nothing, those that Poll calls for come at intervals of 100 times what it took. 0: 5 s. From 10 ms to 1 h.
	Poll time.Duration
}

// complete fills in the defaults and returns all problems.
func (q *Queue) complete() error {
	var errs []error
	if err := checkField("queue", q.Name, false); err != nil {
		errs = append(errs, err)
	}
	if q.Limit != 0 && !(q.Limit >= 1) { // NaN is neither
		errs = append(errs, fmt.Errorf("jobs: Queue.Limit is %v, not 1 or more, nor 0, which is no limit", q.Limit))
	}
	if q.Order != TimeFirst && q.Order != PriorityFirst {
		errs = append(errs, fmt.Errorf("jobs: Queue.Order is %d", q.Order))
	}
	if q.Poll == 0 {
		q.Poll = DefaultQueuePoll
	}
	if q.Poll < 10*time.Millisecond || q.Poll > time.Hour {
		errs = append(errs, fmt.Errorf("jobs: Queue.Poll is %v, not 10 ms to 1 h", q.Poll))
	}
	return errors.Join(errs...)
}

// limit is the limit in thousandths, 0 for none.
func (q *Queue) limit() int64 {
	return inThousandths(q.Limit)
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

// line reads what stands in the line of a queue and is due, page by page.
type line struct {
	queue string
	order Order
	by    time.Time
	find  func(ctx context.Context, q Line, limit int) ([]Row, error)
}

const (
	linePage  = 64   // jobs of the first page
	linePages = 1000 // and of those of a long line
)

// each calls yield for the jobs in order until it returns false. most is asked before each page, and so is room: how many jobs are wanted at most. Jobs that yield
// is given are its own.
func (l *line) each(ctx context.Context, most func() task.Opt[int64], room func() int, yield func(*Row) bool) error {
	var after *Row
	for size := linePage; ; size = min(2*size, linePages) {
		n := min(size, room())
		if n <= 0 {
			return nil
		}
		found, err := l.find(ctx, Line{Queue: l.queue, State: Queued, By: l.by, Order: l.order, MaxWeight: most(), After: after}, n)
		if err != nil {
			return err
		}
		if len(found) > 0 {
			after = found[len(found)-1].place()
		}
		for i := range found {
			if !yield(&found[i]) {
				return nil
			}
		}
		if len(found) < n {
			return nil
		}
	}
}

// place is as much of a job as tells where in a line it stands.
func (j *Row) place() *Row { return &Row{Job: Job{ID: j.ID, Priority: j.Priority}, Due: j.Due} }
