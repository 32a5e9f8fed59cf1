package consumer

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/internal/wire"
)

// Defaults of [Tuning].
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

// minAbsent is the smallest allowed AbsentAfter.
const minAbsent = 100 * time.Millisecond

// Tuning holds the limits and times of a consumer that few programs change. The zero value is
// usable.
type Tuning struct {
	// PrefetchMultiplier holds for queues that set none. Default: the advice of the broker
	// ([broker.PrefetchAdviser]), 1 with keys of hworker; else the prefetch follows the work.
	PrefetchMultiplier int
	// KillGrace limits how long a stop waits for handlers whose context was cancelled. Then it leaves
	// them behind. Default: 5s.
	KillGrace time.Duration
	// MaxCrashes is the number of starts that may end their process before a task is dead-lettered.
	// Default: 3, which is also the minimum: the first start is not noted, and only a run in
	// quarantine shows which of several tasks is the cause. Negative: no limit. A broker without notes
	// of starts ([broker.Witness]) never dead-letters a task for this reason.
	MaxCrashes int
	// AbsentAfter sets the time without a sign of life after which a consumer process counts as dead,
	// ended by the tasks that it had started. A redelivered task waits for this time. It should be
	// longer than a lost connection takes to recover. Default: 30s. Minimum: 100ms.
	AbsentAfter time.Duration
	// UnknownRetries limits the delays of a task without a handler before it is dead-lettered, so that
	// a consumer with the handler may start. Default: 5. Negative: dead-lettered at once.
	UnknownRetries int
	// UnknownDelay is the first of these delays; each further one is twice as long. Default: 5s.
	UnknownDelay time.Duration
	// StoreRetry limits how long a settlement repeats a step while the result store or the broker
	// fails. Then the task is given back. Each task that follows it is sent again for as long.
	// Default: 1m.
	StoreRetry time.Duration
	// GroupWait limits how long an undecided group waits for the end of its next member. Then it is
	// forgotten: the tasks that follow it do not run. Futures of the process that submitted it end
	// with [task.ErrGroupForgotten]. No record is written, so futures elsewhere keep waiting. All
	// consumers need the same value. Default: 30 days, [resultstore.DefaultGroupWait].
	GroupWait time.Duration
	// MaxResult is the largest result in bytes. Default: 1 MiB.
	MaxResult int
	// QueueLook is the time between two reads of the lengths of the queues, for Metrics. Default: 15s.
	// Negative, or without Metrics: never.
	QueueLook time.Duration
}

// complete sets the defaults of t. Returns all problems, joined: an AbsentAfter below minAbsent,
// and a negative GroupWait or PrefetchMultiplier. It checks no other field.
func (t *Tuning) complete() error {
	t.KillGrace = cmp.Or(t.KillGrace, DefaultKillGrace)
	t.MaxCrashes = cmp.Or(t.MaxCrashes, DefaultMaxCrashes)
	t.AbsentAfter = cmp.Or(t.AbsentAfter, DefaultAbsentAfter)
	t.UnknownRetries = cmp.Or(t.UnknownRetries, DefaultUnknownRetries)
	t.UnknownDelay = cmp.Or(t.UnknownDelay, DefaultUnknownDelay)
	t.StoreRetry = cmp.Or(t.StoreRetry, DefaultStoreRetry)
	t.QueueLook = cmp.Or(t.QueueLook, DefaultQueueLook)
	t.MaxResult = cmp.Or(t.MaxResult, wire.DefaultMaxBody)
	var errs []error
	if t.AbsentAfter < minAbsent {
		errs = append(errs, fmt.Errorf("config: Tuning.AbsentAfter is %s; need at least %s", t.AbsentAfter, minAbsent))
	}
	if t.GroupWait < 0 {
		errs = append(errs, fmt.Errorf("config: Tuning.GroupWait is %s; it must not be negative", t.GroupWait))
	}
	if t.PrefetchMultiplier < 0 {
		errs = append(errs, fmt.Errorf("config: Tuning.PrefetchMultiplier is %d; it must not be negative", t.PrefetchMultiplier))
	}
	return errors.Join(errs...)
}
