package queue

import (
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/jobs/internal/line"
	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// DefaultQueuePoll is the default of [Queue].Poll.
const DefaultQueuePoll = 5 * time.Second

// Queue is a line of jobs. Its limit and its throttler decide how many run at a time. One runner at
// a time serves a queue, under a lease; other runners of the same queue stand by. The serving
// runner decides by its own Queue, so give all runners of a queue the same one.
//
// Priorities and the order matter only where jobs have to wait. A job of low priority may wait for
// ever behind others that keep coming: priorities do not change with time.
type Queue struct {
	// Name is the jobs.Spec.Queue of its jobs: 1 to [jobstore.MaxName] bytes.
	Name string
	// Limit bounds the sum of the weights of all running jobs of the queue, jobs that await answers
	// included. It is kept in thousandths. 0: no limit. Other numbers below 1 are refused.
	//
	// A job of weight 0 always fits. A job heavier than the limit runs alone among jobs with a
	// weight. In a queue that is never empty it may wait for ever.
	Limit float64
	// Order is the order in which jobs are looked at. Default: [jobstore.TimeFirst].
	Order jobstore.Order
	// Strict: the first job that does not fit blocks all jobs behind it, those of weight 0 too.
	// Off: it is passed over, and jobs that fit run.
	Strict bool
	// Throttler decides besides the limit: a job runs only if both let it. nil: the limit alone.
	Throttler Throttler
	// Poll is the time between looks that nothing else calls for. Default: 5 s. From 10 ms to 1 h.
	//
	// A look also comes at once on a word of the store, when the next job becomes due, and when a
	// job has ended here. If a look finds nothing, the next one that Poll calls for comes after 100
	// times its duration at the earliest.
	Poll time.Duration
}

// Complete sets the defaults and returns all problems, joined.
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

// limit returns the limit in thousandths; 0: none.
func (q *Queue) limit() int64 {
	return line.InThousandths(q.Limit)
}
