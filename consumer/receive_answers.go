package consumer

import (
	"context"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/consumer/internal/answers"
	"github.com/swarmiji/swarmiji/deferral"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/task"
)

// newAnswers returns the receiver of deferrals for c, of all queues except side queues. It starts
// nothing.
func newAnswers(c *Consumer) *answers.Receiver {
	return answers.New(answers.Config{
		Store: c.cfg.Deferrals, Queues: c.queues.Names, Settle: c.settleDeferral,
		Accepts: func(name string) bool {
			q := c.consumed(name)
			return q != nil && q.accepts()
		},
		Selects: func(name string, state []byte, rules []revoke.Selector) bool {
			q := c.consumed(name)
			return q != nil && answers.Selected(c.codec, name, q.cfg.Task, state, rules)
		},
		Warn: func(ctx context.Context, what string, err error) {
			c.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, what, slog.Any("error", err), slog.String(middleware.LogNode, c.cfg.Report.NodeID))
		},
	})
}

// settleDeferral settles a received deferral on a goroutine of the settlement and returns at once.
// If the deferral is not settled when that goroutine ends, ReleaseUnsettled returns it to the store
// for answers.RetryDelay. If this consumer has left or paused the queue while the deferral was
// claimed, it is only returned in the same way.
func (c *Consumer) settleDeferral(claim deferral.Delivery) {
	w := &answers.Claim{Deferral: claim, Outcome: claim.Outcome(), Broker: c.cfg.Broker, Logger: c.cfg.Logger}
	q := c.consumed(claim.Attempt().Queue)
	if q == nil || q.in.Paused() {
		c.settling.Go(func() { w.ReleaseUnsettled(c.settle) })
		return
	}
	q.settling.Go(func() {
		defer w.ReleaseUnsettled(c.settle)
		r, err := q.restore(w)
		if err != nil {
			q.releaseUnreadable(w, err)
			return
		}
		q.settleAnswer(r)
	})
}

// releaseUnreadable logs that the deferred task cannot be read and returns the deferral to the
// store for a minute. A newer consumer, or one with the key, may read it. An abandoned deferral
// (one whose attempt is over) is deleted without a log line. Both are repeated for up to
// giveBackTimeout.
func (q *queue) releaseUnreadable(w *answers.Claim, cause error) {
	ctx, cancel := context.WithTimeout(q.c.settle, giveBackTimeout)
	defer cancel()
	if w.Outcome.Kind == deferral.Abandoned { // its attempt is over
		_ = w.Ack(ctx)
		return
	}
	q.log(slog.LevelError, "a deferred task cannot be read; it is released for a minute", slog.String(middleware.LogTask, w.Deferral.Attempt().Name), slog.Any("error", cause))
	_ = w.Release(ctx, time.Minute)
}

// wakeIfRevoked queues the wake of the deferral of this run if the task is known to be revoked.
// Call it after the deferral is stored: a revocation after the end of the handler did not find the
// deferral.
func (r *run) wakeIfRevoked() {
	c := r.queue.c
	if list := c.cfg.Revocations; list != nil && list.Knows(r.queue.name, r.request.Envelope) {
		c.answers.AddRevocation(revoke.Revocation{IDs: []task.ID{r.request.ID}})
	}
}
