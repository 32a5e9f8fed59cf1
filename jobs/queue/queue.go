package queue

import (
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/jobs/internal/line"
	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// DefaultQueuePoll is how often a queue is looked at, if nothing else calls for a look.
const DefaultQueuePoll = 5 * time.Second

// Queue is a line of jobs, of which as many run at a time as its limit and its throttler let run. One runner at a time serves a queue, by a lease that it has; others
// of the same queue stand by. What the queue is like is told by who serves it, so that all of them are given the same.
//
// Priorities and the order matter only where jobs have to wait. A job of low priority may wait for ever behind others that keep coming: nothing ages.
type Queue struct {
	// Name is that of the jobs' jobs.Spec.Queue: 1 to [jobstore.MaxName] bytes.
	Name string
	// Limit is how much may run at a time: the sum of the weights of all jobs of the queue that run, those that await answers included. It is kept in
	// thousandths. 0: there is no limit. Any other number below 1 is refused.
	//
	// A job of weight 0 always fits. One that is heavier than the limit runs when nothing else runs that weighs anything, and then alone; in a queue that is never
	// empty it may wait for ever.
	Limit float64
	// Order is that in which jobs are looked at. The zero value is [jobstore.TimeFirst].
	Order jobstore.Order
	// Strict: the first job that does not fit holds up all that come behind it, those of weight 0 too. Off: it is passed over, and what fits runs.
	Strict bool
	// Throttler has a say besides the limit: what is to run has to be let by both. nil: the limit alone.
	Throttler Throttler
	// Poll is how often the queue is looked at by itself. A look also comes at once on word from the store, when the next job becomes due, and when one has ended here. Where a
	// look takes long, and finds nothing, those that Poll calls for come at intervals of 100 times what it took. 0: 5 s. From 10 ms to 1 h.
	Poll time.Duration
}

// Complete fills in the defaults and returns all problems, joined. [NewLeader] calls it.
func (q *Queue) Complete() error {
	var errs []error
	if err := rules.CheckField("queue", q.Name, false); err != nil {
		errs = append(errs, err)
	}
	if q.Limit != 0 && !(q.Limit >= 1) { // NaN is neither
		errs = append(errs, fmt.Errorf("jobs: Queue.Limit is %v, not 1 or more, nor 0, which is no limit", q.Limit))
	}
	if q.Order != jobstore.TimeFirst && q.Order != jobstore.PriorityFirst {
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
	return line.InThousandths(q.Limit)
}
