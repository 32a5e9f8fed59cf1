package consumer

import (
	"context"
	"errors"
	"log/slog"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer/internal/steps"
	"github.com/swarmiji/swarmiji/consumer/internal/workflow"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// runStep runs a step of the settlement and repeats it until it succeeds or ctx ends. It blocks
// meanwhile and logs the first error. what names the step in the log. It returns true after a
// success. It returns false if the settlement must not continue:
//
//   - ctx ended: ensureGivenBack gives the task back to run again. If it was acknowledged before
//     its start, runStep returns the result of retryAckedStep instead, which repeats the step
//     further.
//   - The broker took the task back, or another attempt has settled it.
//   - The step can never succeed: the task fails, see handleStepError.
func (r *run) runStep(ctx context.Context, what string, step func(context.Context) error) bool {
	err := steps.Repeat(ctx, r.lost(), step, func(err error) {
		r.log(slog.LevelWarn, "a step of a settlement failed; it is repeated", slog.String("step", what), slog.Any("error", err))
	})
	switch {
	case err == nil:
		return true
	case r.handleStepError(what, err):
	case r.acked.Load():
		return r.retryAckedStep(what, step, err)
	default:
		r.ensureGivenBack()
	}
	return false
}

// handleStepError ends the settlement if repeating the step cannot change err, its error. what
// names the step. It returns true if it has ended the settlement. For any other error it returns
// false and does nothing. It blocks while it settles the task.
//
//   - The broker has taken the task back, or another attempt has settled it: it does nothing.
//   - steps.ErrUncertain: the task fails as uncertain, see settleUncertain.
//   - [workflow.ErrUnsendable]: the task fails and is dead-lettered, see failUnsendable.
func (r *run) handleStepError(what string, err error) bool {
	switch {
	case errors.Is(err, steps.ErrDone), broker.Gone(err):
	case errors.Is(err, steps.ErrUncertain):
		r.log(slog.LevelError, "an at-most-once task fails as uncertain", slog.String("step", what), slog.Any("error", err))
		r.settleUncertain()
	case errors.Is(err, workflow.ErrUnsendable):
		r.failUnsendable(what, err)
	default:
		return false
	}
	return true
}

// ensureGivenBack gives the task back to the broker. It blocks and repeats that until it succeeds,
// the broker has taken the task back, or the consumer stops. A delivery that is neither settled nor
// given back would count against the prefetch for ever.
func (r *run) ensureGivenBack() { r.runStepUntilStop("release", r.giveBack) }

// runStepUntilStop runs step and repeats it until it succeeds, the broker has taken the task back,
// or the step can never succeed. It blocks meanwhile. what names the step in the log. A stop ends
// it after giveBackTimeout: the broker gets the delivery back with the subscription. It logs the
// first and the last error.
func (r *run) runStepUntilStop(what string, step func(context.Context) error) {
	ctx, cancel := r.queue.untilStop()
	defer cancel()
	err := steps.Repeat(ctx, r.lost(), step, func(err error) {
		r.log(slog.LevelWarn, "a step of a settlement failed; it is repeated", slog.String("step", what), slog.Any("error", err))
	})
	if err != nil && !broker.Gone(err) {
		r.log(slog.LevelWarn, "the task was not settled; the broker will deliver it again", slog.String("step", what), slog.Any("error", err))
	}
}

// untilStop returns a context for steps that must succeed. It ends giveBackTimeout after fetching
// has stopped (after the call, if it had stopped before), and with the settlement context of the
// consumer. Call the returned function to release it.
func (q *queue) untilStop() (context.Context, func()) {
	return steps.UntilStop(q.c.settle, q.fetch, giveBackTimeout)
}

// failUnsendable fails a task whose result or next message can never be sent, with the reason
// cause. what names that part in the log. It blocks until the task is settled or given up.
//
// It tries to store the failure once, also for the submitter; errors of the stores are only logged.
// Then it sends the successors, unless these could not be sent (r.unsendable, which it sets). Last
// it dead-letters the message, or acknowledges it if the broker cannot keep a dead letter. It
// counts no failed task and sends no event. If a step of the successors fails, that step has given
// the task back or settled it.
func (r *run) failUnsendable(what string, cause error) {
	r.log(slog.LevelError, "the task fails: its "+what+" cannot be sent", slog.Any("error", cause))
	ctx, cancel := context.WithTimeout(r.queue.c.settle, r.queue.c.cfg.Tuning.StoreRetry)
	defer cancel()
	for _, store := range []resultstore.ResultStore{r.store(), r.submitterStore()} {
		if store == nil {
			continue
		}
		rec, err := r.protectedRecord(task.StateFailed, verdict{kind: failed, err: task.Remote(cause)}, r.ended)
		if err == nil {
			err = store.Save(ctx, rec)
		}
		if err != nil && !errors.Is(err, resultstore.ErrStale) {
			r.log(slog.LevelWarn, "the failure of the task was not recorded", slog.Any("error", err))
		}
	}
	if !r.unsendable { // otherwise the successors themselves could not be sent
		r.unsendable = true
		if !r.publishSuccessors(verdict{kind: failed, err: task.Remote(cause)}) {
			return
		}
	}
	r.runStepUntilStop("dead letter", func(ctx context.Context) error { return r.deadLetterOrAck(ctx, cause) })
}
