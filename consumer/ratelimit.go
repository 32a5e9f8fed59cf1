package consumer

import (
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/consumer/internal/intake"
	"github.com/swarmiji/swarmiji/consumer/internal/rates"
	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/task"
)

// RateDefault is the limit that makes SetRateLimit remove an earlier override.
const RateDefault = control.RateDefault

// SetRateLimit sets the rate limit of a task in this process, such as "10/s", "600/m" or "5000/h".
// It overrides the metadata of the task until the process ends. "" means no limit; [RateDefault]
// removes the override.
//
// The limit applies at once, also to tasks that wait in this process. A task that was put back to
// the broker comes at the time that the earlier limit gave it. Safe for concurrent use.
//
// Returns [task.ErrBadMetadata] for a malformed limit and [task.ErrUnknownTask] for a task without
// a handler.
func (c *Consumer) SetRateLimit(name, limit string) error {
	if limit != RateDefault {
		if _, _, err := task.ParseRate(limit); err != nil {
			return err
		}
	}
	if _, _, ok := c.mux.Lookup(name); !ok {
		return fmt.Errorf("%w: %q", task.ErrUnknownTask, utf.Cut(name, 128))
	}
	c.rates.Override(name, limit)
	return nil
}

// rateAllows reports whether the rate limit of the task lets it start now. If not, the rate limiter
// starts the task later, puts it back, or gives it back; the caller must not use r any more. It may
// block for up to a second if the queue's prefetch leaves no room to set the task aside.
func (q *queue) rateAllows(r *run) bool {
	return q.c.rates.Admit(rateRun{r}, &q.rateQueue, r.request.Name, r.request.Effective.RateLimit.Or(""))
}

// newRateQueue returns the queue as the rate limiter sees it. Up to half of the prefetch may be set
// aside to wait for their rate, or [rates.MaxAside] tasks if the prefetch has no limit.
func (q *queue) newRateQueue() rates.Queue {
	return rates.Queue{Open: q.accepts, Capacity: func() int {
		held := q.cfg.prefetch(q.workers.Count())
		if held == intake.NoLimit {
			return rates.MaxAside
		}
		return held / 2
	}}
}

// rateRun adapts a run to [rates.Run].
type rateRun struct{ *run }

// StartTime returns the start time for which the rate limiter put the task back to the broker.
// Returns zero if the task was not put back, or not for its present earliest start.
func (r rateRun) StartTime() time.Time {
	at := r.request.Effective.NotBefore.Or(time.Time{})
	if at.IsZero() || !wire.Held(r.message, wire.HeaderTurn, at) {
		return time.Time{}
	}
	return at
}

// Lost reports whether the broker has taken the task back.
func (r rateRun) Lost() bool { return r.isLost() }

// Start starts the task on another goroutine, see [queue.start], and returns at once. If the task
// has expired while it waited, it is settled as expired instead.
func (r rateRun) Start() {
	r.queue.settling.Go(func() {
		if at, ok := r.request.Effective.Expires.Get(); ok && !at.IsZero() && time.Now().After(at) {
			r.queue.settle(r.run, verdict{kind: expired, err: task.ErrExpired})
			return
		}
		r.queue.start(r.run)
	})
}

// PutBack replaces the message by a copy that the broker delivers at the given time, on another
// goroutine. It marks the copy as put back by the rate limiter. After a success it counts the task
// as snoozed; see [run.replace] for the failures.
func (r rateRun) PutBack(at time.Time) {
	r.queue.settling.Go(func() {
		next := r.next()
		next.RateLimited = true
		if r.replace(r.queue.source, next, next.SetNotBefore(at), "wait for its rate") {
			r.queue.c.cfg.Metrics.Snoozed.Inc(1)
		}
	})
}
