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

// Queue configures a queue of jobs. Its limit and its throttler decide how many jobs run at a time.
// One runner at a time serves a queue, under a lease; other runners of the same queue wait. The
// serving runner applies its own Queue, so give all runners of a queue the same one.
//
// Priorities and the order only matter while jobs wait. A job of low priority may wait forever
// behind jobs that keep arriving: priorities do not change with time.
type Queue struct {
	// Name is the jobs.Spec.Queue of its jobs: 1 to [jobstore.MaxName] bytes.
	Name string
	// Limit bounds the sum of the weights of all running jobs of the queue, including jobs that await
	// answers. It is stored in thousandths. 0: no limit. Other numbers below 1 are refused.
	//
	// A job of weight 0 always fits. A job heavier than the limit runs alone among the jobs with a
	// weight. In a queue that is never empty such a job may wait forever.
	Limit float64
	// Order is the order in which jobs are considered. Default: [jobstore.TimeFirst].
	Order jobstore.Order
	// Strict makes the first job that does not fit block all later jobs, also those of weight 0. Off:
	// later jobs that fit start first.
	Strict bool
	// Throttler decides in addition to the limit: a job starts only if both admit it. nil: only the
	// limit decides.
	Throttler Throttler
	// Poll is the interval of admissions without another cause. Default: 5 s. From 10 ms to 1 h.
	//
	// The store's notifications, the Due of the next job, and the end of a job in this process also
	// cause an admission. After an admission that claimed no job, the interval is at least 100 times
	// the duration of that admission.
	Poll time.Duration
}

// Complete sets the default of q.Poll and checks all fields. Returns all problems, joined.
func (q *Queue) Complete() error {
	var errs []error
	if err := rules.CheckField("queue", q.Name, false); err != nil {
		errs = append(errs, err)
	}
	if q.Limit != 0 && !(q.Limit >= 1) { // false for NaN, too
		errs = append(errs, fmt.Errorf("jobs: Queue.Limit is %v; set it to 1 or more, or to 0 for no limit", q.Limit))
	}
	if q.Order != jobstore.TimeFirst && q.Order != jobstore.PriorityFirst {
		errs = append(errs, fmt.Errorf("jobs: Queue.Order is %d, not TimeFirst or PriorityFirst", q.Order))
	}
	if q.Poll == 0 {
		q.Poll = DefaultQueuePoll
	}
	if q.Poll < 10*time.Millisecond || q.Poll > time.Hour {
		errs = append(errs, fmt.Errorf("jobs: Queue.Poll is %v, not 10 ms to 1 h", q.Poll))
	}
	return errors.Join(errs...)
}

// limit returns q.Limit in thousandths, rounded down. 0: no limit.
func (q *Queue) limit() int64 {
	return line.InThousandths(q.Limit)
}
