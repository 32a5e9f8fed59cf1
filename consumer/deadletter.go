package consumer

import (
	"context"
	"errors"
	"log/slog"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/consumer/internal/workflow"
	"github.com/swarmiji/swarmiji/task"
)

// keepsDead reports whether the task goes to the dead letters when it fails for good.
func (r *run) keepsDead() bool { return r.request.Effective.DeadLetter.Or(true) }

// givenUp reports whether err is a consumer's own reason to dead-letter a task. Its text holds
// nothing of the task's data.
func givenUp(err error) bool {
	return errors.Is(err, task.ErrUnknownTask) || errors.Is(err, task.ErrPoison) || errors.Is(err, task.ErrUncertain)
}

// letter describes why the task is dead-lettered. Of a handler's error it has what events may show.
func (r *run) letter(cause error) broker.Dead {
	reason, stack := cause.Error(), ""
	if !givenUp(cause) {
		reason, stack = r.queue.c.shown(cause)
	}
	d := broker.Dead{Message: r.message, Queue: r.queue.name, Reason: reason, Stack: stack, Attempts: r.request.Retries}
	d.Unreadable = r.unreadable != nil || r.unbound.Load()
	if r.over.Load() || r.answer != nil {
		d.Attempts++
	}
	return d
}

// deadLetter moves the message to the dead letters of its queue. What the broker does not hold any
// more, because it was acknowledged early or was deferred, is put there anew.
func (r *run) deadLetter(ctx context.Context, cause error) error {
	c := r.queue.c
	d := r.letter(cause)
	var err error
	if r.acked.Load() || r.answer != nil {
		letters, ok := capability.As[broker.DeadLetterer](c.cfg.Broker)
		if !ok {
			return broker.ErrUnsupported
		}
		err = letters.PutDead(ctx, r.queue.name, d)
	} else {
		err = r.delivery.Bury(ctx, d)
	}
	if err == nil {
		c.cfg.Metrics.Buried.Inc(1)
	}
	return err
}

// bury is deadLetter as a step of a settlement: what no broker can keep is only recorded, and a
// warning says so.
func (r *run) bury(ctx context.Context, cause error) error {
	err := r.deadLetter(ctx, cause)
	if workflow.Permanent(err) || errors.Is(err, broker.ErrUnsupported) || errors.Is(err, broker.ErrAccess) {
		r.queue.c.warnOnce("dead letter", "a task that failed is not kept as a dead letter; this is said once",
			r.logAttrs(slog.Any("error", err))...)
		if r.acked.Load() || r.answer != nil {
			return nil
		}
		return r.delivery.Ack(ctx)
	}
	return err
}
