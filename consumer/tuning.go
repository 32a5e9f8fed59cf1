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
	// PrefetchMultiplier times the workers of a queue is its prefetch, unless the queue sets one.
	// Default: 4, or the advice of the broker ([broker.PrefetchAdviser]): 1 with keys of hworker.
	PrefetchMultiplier int
	// KillGrace is how long a stop waits for handlers whose context was cancelled. After it they
	// are left behind. Default: 5 s.
	KillGrace time.Duration
	// MaxCrashes is how many starts may end their process before a task is dead-lettered. Default:
	// 3, which is also the least. The first start is not noted. Only a run in quarantine tells a
	// poison task from a task that ran beside it. Negative: no limit. A broker without notes of
	// starts ([broker.Witness]) never dead-letters a task for this.
	MaxCrashes int
	// AbsentAfter is how long a consumer process must show no sign of life before its started tasks
	// count as having ended it. A redelivered task waits for so long. It should be longer than a
	// lost connection takes to recover. Default: 30 s. Less than 100 ms is refused.
	AbsentAfter time.Duration
	// UnknownRetries is how often a task without a handler is delayed before it is dead-lettered,
	// so that a consumer with the handler may start. Default: 5. Negative: dead-lettered at once.
	UnknownRetries int
	// UnknownDelay is the first delay; each further one is twice as long. Default: 5 s.
	UnknownDelay time.Duration
	// StoreRetry is how long a settlement is repeated while the result store or the broker fails.
	// Then the task is given back. Each task that follows it is sent again for as long. Default: 1
	// min.
	StoreRetry time.Duration
	// GroupWait is how long an undecided group waits for the end of its next member. Then it is
	// forgotten: the tasks that follow it do not run. Futures of the process that submitted it end
	// with [task.ErrGroupForgotten]. No record is written, so futures elsewhere keep waiting. All
	// consumers need the same value. Default: 30 days, [resultstore.DefaultGroupWait].
	GroupWait time.Duration
	// MaxResult is the largest result in bytes. Default: 1 MiB.
	MaxResult int
	// QueueLook is the time between reads of the lengths of the queues, for Metrics. Default: 15 s.
	// Negative, or without Metrics: never.
	QueueLook time.Duration
}

// complete sets the defaults and returns all problems, joined.
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
