package consumer

import (
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/internal/wire"
)

// Defaults of a Tuning.
const (
	DefaultPrefetchMultiplier = 4
	DefaultKillGrace          = 5 * time.Second
	DefaultMaxCrashes         = 3
	DefaultAbsentAfter        = 30 * time.Second
	DefaultUnknownRetries     = 5
	DefaultUnknownDelay       = 5 * time.Second
	DefaultStoreRetry         = time.Minute
	DefaultQueueLook          = 15 * time.Second
)

// minAbsent is the least AbsentAfter.
const minAbsent = 100 * time.Millisecond

// Tuning has the limits and times of a consumer that few programs change. The zero value is usable.
type Tuning struct {
	// PrefetchMultiplier times the workers of a queue is its prefetch, where the queue says nothing
	// else. 0: 4, or what the broker advises ([broker.PrefetchAdviser]): 1 on hworker's keys.
	PrefetchMultiplier int
	// KillGrace is how long a stop waits for handlers whose context was cancelled before it leaves
	// them behind. 0: 5 s.
	KillGrace time.Duration
	// MaxCrashes is after how many starts that ended their process a task is given up. 0: 3, which
	// is also the least: the first start is not noted, and only a run alone in its process tells a
	// task that ends its process from one that ran beside it. Negative: never. A broker that keeps
	// no notes of starts ([broker.Witness]) never gives up a task for this.
	MaxCrashes int
	// AbsentAfter is how long a consumer process must show no sign of life before a task that it had
	// started, and that comes again, counts as having ended it; so long that task waits. It should
	// be longer than a lost connection takes to come back. 0: 30 s. Less than 100 ms is refused.
	AbsentAfter time.Duration
	// UnknownRetries is how often a task without a handler is put aside before it is given up, so
	// that a consumer that knows it may come. 0: 5. Negative: given up at once.
	UnknownRetries int
	// UnknownDelay is how long it is put aside the first time; each further time is twice as long.
	// 0: 5 s.
	UnknownDelay time.Duration
	// StoreRetry is how long settling a task is repeated while result store or broker fail, before
	// the task is given back; of what follows the task each part is repeated for as long. 0: 1 min.
	StoreRetry time.Duration
	// GroupWait is how long a group that is not decided waits for the end of its next member. Then
	// it is forgotten: what follows it does not run, and the futures of the process that submitted
	// it end with [task.ErrGroupForgotten]. No record is written, so that others wait on. All
	// consumers need the same. 0: 30 days, [resultstore.DefaultGroupWait].
	GroupWait time.Duration
	// MaxResult is the largest result in bytes. 0: 1 MiB.
	MaxResult int
	// QueueLook is how often the broker is asked for the lengths of the queues, for Metrics. 0:
	// every 15 s. Negative, or without Metrics: never.
	QueueLook time.Duration
}

// complete fills in the defaults and returns all problems.
func (t *Tuning) complete() error {
	setDefault(&t.PrefetchMultiplier, DefaultPrefetchMultiplier)
	setDefault(&t.KillGrace, DefaultKillGrace)
	setDefault(&t.MaxCrashes, DefaultMaxCrashes)
	setDefault(&t.AbsentAfter, DefaultAbsentAfter)
	setDefault(&t.UnknownRetries, DefaultUnknownRetries)
	setDefault(&t.UnknownDelay, DefaultUnknownDelay)
	setDefault(&t.StoreRetry, DefaultStoreRetry)
	setDefault(&t.QueueLook, DefaultQueueLook)
	setDefault(&t.MaxResult, wire.DefaultMaxBody)
	var errs []error
	if t.AbsentAfter < minAbsent {
		errs = append(errs, fmt.Errorf("config: Tuning.AbsentAfter is %s, at least %s", t.AbsentAfter, minAbsent))
	}
	if t.GroupWait < 0 {
		errs = append(errs, fmt.Errorf("config: Tuning.GroupWait is %s", t.GroupWait))
	}
	if t.PrefetchMultiplier < 0 {
		errs = append(errs, fmt.Errorf("config: Tuning.PrefetchMultiplier is %d", t.PrefetchMultiplier))
	}
	return errors.Join(errs...)
}
