package consumer

import (
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/consumer/internal/rates"
	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/task"
)

// RateDefault is the rate that has SetRateLimit take back what it did before.
const RateDefault = control.RateDefault

// SetRateLimit sets the rate limit of a task in this process, such as "10/s", "600/m" or "5000/h",
// over what its metadata say. "" is no limit, [RateDefault] takes back what was set. It holds at
// once, for tasks that wait here already too, and until the process ends; a task that was put back
// in the broker comes when the limit before let it. It may be called at any time, from any
// goroutine.
//
// A rate that cannot be read is [task.ErrBadMetadata], a task without a handler [task.ErrUnknownTask].
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

// admit reports whether the task's rate limit lets it start now. Otherwise it has taken the run over.
func (q *queue) admit(r *run) bool {
	return q.c.rates.Admit(rated{r}, &q.rated, r.request.Name, r.request.Effective.RateLimit.Or(""))
}

// ratedLine is the queue as rate limits see it. Half of what it may hold may be set aside.
func (q *queue) ratedLine() rates.Line {
	return rates.Line{Open: q.takes, Room: func() int {
		held := q.cfg.prefetch(q.team.workers())
		if held == noLimit {
			return rates.MaxAside
		}
		return held / 2
	}}
}

// rated is a run as rate limits see it.
type rated struct{ *run }

// Turn implements [rates.Run].
func (r rated) Turn() time.Time {
	at := r.request.Effective.NotBefore.Or(time.Time{})
	if at.IsZero() || !wire.Held(r.message, wire.HeaderTurn, at) {
		return time.Time{}
	}
	return at
}

// Lost implements [rates.Run].
func (r rated) Lost() bool { return r.isLost() }

// Reserve implements [rates.Run].
func (r rated) Reserve(waits bool) {
	if waits {
		r.queue.c.reserved.Add(r.run)
	} else {
		r.queue.c.reserved.Remove(r.run)
	}
}

// Start implements [rates.Run]. The task may have expired while it waited.
func (r rated) Start() {
	r.queue.c.settling.Go(func() {
		if at, ok := r.request.Effective.Expires.Get(); ok && !at.IsZero() && time.Now().After(at) {
			r.queue.settle(r.run, verdict{kind: expired, err: task.ErrExpired})
			return
		}
		r.queue.start(r.run)
	})
}

// GiveBack implements [rates.Run].
func (r rated) GiveBack() { r.unstarted() }

// PutBack implements [rates.Run].
func (r rated) PutBack(at time.Time) {
	r.queue.c.settling.Go(func() {
		next := r.copy()
		next.turn = true
		if r.replace(r.queue.source, next, next.until(at), "wait for its rate") {
			r.queue.c.cfg.Metrics.Snoozed.Inc(1)
		}
	})
}
