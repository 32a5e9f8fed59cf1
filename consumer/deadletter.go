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

// isConsumerReason reports whether err is a reason of the consumer, not of the handler, to
// dead-letter a task. The text of such an error holds no data of the task.
func isConsumerReason(err error) bool {
	return errors.Is(err, task.ErrUnknownTask) || errors.Is(err, task.ErrPoison) || errors.Is(err, task.ErrUncertain)
}

// deadLetterInfo returns the description of the failed task for its dead letter: reason, stack and
// number of attempts. The text of a handler's error is left out where events must not show it. The
// attempts are the retries, plus one if the handler has returned or the run settles a deferral.
// Unreadable is set if the arguments could not be read or do not fit the handler.
func (r *run) deadLetterInfo(cause error) broker.Dead {
	reason, stack := cause.Error(), ""
	if !isConsumerReason(cause) {
		reason, stack = r.queue.c.shown(cause)
	}
	d := broker.Dead{Message: r.message, Queue: r.queue.name, Reason: reason, Stack: stack, Attempts: r.request.Retries}
	d.Unreadable = r.unreadable != nil || r.unbound.Load()
	if r.returned.Load() || r.answer != nil {
		d.Attempts++
	}
	return d
}

// deadLetter dead-letters the message with the reason cause. It tries once, and counts the dead
// letter after a success. If the broker no longer has the message, because it was acknowledged
// early or deferred, deadLetter writes a new dead letter.
//
// Returns errors of the broker, and [broker.ErrUnsupported] if the broker cannot write dead
// letters.
func (r *run) deadLetter(ctx context.Context, cause error) error {
	c := r.queue.c
	d := r.deadLetterInfo(cause)
	var err error
	if r.acked.Load() || r.answer != nil {
		letters, ok := capability.As[broker.DeadLetterer](c.cfg.Broker)
		if !ok {
			return broker.ErrUnsupported
		}
		err = letters.PutDead(ctx, r.queue.name, d)
	} else {
		err = r.delivery.DeadLetter(ctx, d)
	}
	if err == nil {
		c.cfg.Metrics.DeadLettered.Inc(1)
	}
	return err
}

// deadLetterOrAck dead-letters the message with the reason cause. If the broker can never keep the
// dead letter or denies access, it logs a warning once and acknowledges the message instead. It
// then returns the error of the acknowledgement. A message that was acknowledged early or deferred
// needs no acknowledgement: it then returns nil. Any other error of deadLetter is returned.
func (r *run) deadLetterOrAck(ctx context.Context, cause error) error {
	err := r.deadLetter(ctx, cause)
	if workflow.Permanent(err) || errors.Is(err, broker.ErrUnsupported) || errors.Is(err, broker.ErrAccess) {
		r.queue.c.warnOnce("dead letter", "a failed task was not kept as a dead letter; this is logged once",
			r.logAttrs(slog.Any("error", err))...)
		if r.acked.Load() || r.answer != nil {
			return nil
		}
		return r.delivery.Ack(ctx)
	}
	return err
}
