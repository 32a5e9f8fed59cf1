package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/consumer/internal/steps"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// A task that runs at most once is acknowledged before its start. From then on only this process
// knows of the task:
//
//   - The broker no longer counts these tasks. A queue starts at most as many of them as its
//     prefetch before their settlement.
//   - Each task leaves a trace. A step that fails for StoreRetry is repeated further. If the end of
//     the task cannot be recorded, the task is dead-lettered. Until then it keeps its slot.
//   - A message whose publish has an unknown outcome is not sent again, since both messages would
//     run. The task then fails with [task.ErrUncertain].
//   - The same holds after an acknowledgement of unknown outcome: the message may come again.

// acquireEarlySlot takes an early slot for the task. These slots limit the tasks of a queue that
// are acknowledged before their start and not settled yet. It sets r.hasEarlySlot and returns true.
// It returns true at once if the task has a slot.
//
// It blocks until a slot is free; the task counts as reserved meanwhile, see [Consumer.Reserved].
// It returns false if the task must not start any more: the consumer stops, the queue is paused, or
// the broker has taken the task back. The caller must then give the task back.
func (q *queue) acquireEarlySlot(r *run) bool {
	if r.hasEarlySlot.Load() {
		return true
	}
	if !q.earlySlots.TryAcquire() {
		ctx, cancel := q.waitContext(r)
		defer cancel()
		q.c.reserved.Add(r)
		defer q.c.reserved.Remove(r)
		if !q.earlySlots.Acquire(ctx) {
			return false
		}
	}
	r.hasEarlySlot.Store(true)
	return true
}

// releaseEarlySlot frees the slot that acquireEarlySlot took for this task. It does nothing if the
// task has no slot.
func (r *run) releaseEarlySlot() {
	if r.hasEarlySlot.CompareAndSwap(true, false) {
		r.queue.earlySlots.Release()
	}
}

// ackEarly acknowledges a task that runs at most once, immediately before its start. After an error
// it repeats that for up to Tuning.StoreRetry, blocks meanwhile, and logs the first error. A
// missing permission ends the repeating.
//
// It returns true only if the broker has confirmed the acknowledgement, and then sets r.acked. If
// it returns false, the task must not start. The first of these applies:
//
//   - The outcome is unknown: another goroutine fails the task with [task.ErrUncertain].
//   - A permission is missing: it frees the early slot, and another goroutine releases the task for
//     noAccessDelay. That is logged once.
//   - The broker has taken the task back: only the early slot is freed.
//   - Otherwise nothing was acknowledged: giveBackUnstarted frees the early slot and gives the task
//     back on another goroutine.
func (r *run) ackEarly() bool {
	q, c := r.queue, r.queue.c
	ctx, cancel := context.WithTimeout(c.settle, c.cfg.Tuning.StoreRetry)
	defer cancel()
	unknown, refused := false, false
	err := steps.Repeat(ctx, r.lost(), func(ctx context.Context) error {
		err := broker.AckSync(ctx, r.delivery)
		// errors that leave the outcome open
		unknown = unknown || errors.Is(err, broker.ErrIndeterminate) ||
			err != nil && !broker.Gone(err) && !errors.Is(err, broker.ErrUnavailable) && !errors.Is(err, broker.ErrAccess)
		if refused = errors.Is(err, broker.ErrAccess); refused {
			return errors.Join(steps.ErrDone, err)
		}
		return err
	}, func(err error) {
		r.log(slog.LevelWarn, "acknowledging an at-most-once task failed; it is repeated", slog.Any("error", err))
	})
	switch {
	case err == nil:
		r.acked.Store(true)
		return true
	// nothing was acknowledged, and waiting gives no access: put the task back, so that others can run
	case refused && !unknown:
		c.warnOnce("early", "at-most-once tasks cannot be acknowledged before their start; they are put back", slog.Any("error", err))
		r.releaseEarlySlot()
		r.queue.settling.Go(func() {
			r.runStepUntilStop("release", func(ctx context.Context) error { return r.delivery.Release(ctx, noAccessDelay) })
		})
	case unknown:
		r.log(slog.LevelWarn, "an at-most-once task is not started: the outcome of its acknowledgement is unknown", slog.Any("error", err))
		q.settling.Go(r.settleUncertain)
	case broker.Gone(err):
		r.releaseEarlySlot()
	default: // nothing was acknowledged
		r.giveBackUnstarted()
	}
	return false
}

// settleIfStarted reports whether an earlier delivery of this at-most-once task may have started.
// If so, it fails the task with [task.ErrUncertain] on another goroutine. It asks the
// [broker.AckChecker] of the delivery and waits up to loadTimeout. After an error it returns true,
// and retryStartedCheck asks again on another goroutine.
//
// A delivery without an AckChecker may be a [broker.SyncAcker]. Its acknowledgement is final, so a
// redelivered task has not started: the result is false. With any other broker the task may have
// started.
func (r *run) settleIfStarted() bool {
	checker, ok := capability.As[broker.AckChecker](r.delivery)
	if !ok {
		_, final := capability.As[broker.SyncAcker](r.delivery)
		if !final {
			r.failUncertain()
		}
		return !final
	}
	ctx, cancel := context.WithTimeout(r.queue.c.settle, loadTimeout)
	defer cancel()
	acked, err := checker.AckedBefore(ctx)
	switch {
	case err != nil:
		r.queue.settling.Go(func() { r.retryStartedCheck(checker) })
	case acked:
		r.failUncertain()
	default:
		return false
	}
	return true
}

// retryStartedCheck asks checker whether an earlier delivery of this at-most-once task was
// acknowledged, and repeats that after errors for at most StoreRetry. The first error is logged.
// Then it continues with the task. Call it on a goroutine of the settlement: it may block until the
// handler has returned.
//
//   - It was acknowledged, so the task may have started: the task fails with [task.ErrUncertain].
//   - It was not acknowledged: startOrSettle continues, with r.notStartedBefore set.
//   - The checker does not answer: ensureGivenBack gives the task back, and the next consumer asks
//     again.
//   - The broker has taken the task back: nothing happens.
func (r *run) retryStartedCheck(checker broker.AckChecker) {
	c := r.queue.c
	ctx, cancel := context.WithTimeout(c.settle, c.cfg.Tuning.StoreRetry)
	defer cancel()
	acked := true
	err := steps.Repeat(ctx, r.lost(), func(ctx context.Context) (err error) {
		acked, err = checker.AckedBefore(ctx)
		return err
	}, func(err error) {
		r.log(slog.LevelWarn, "asking whether a task has started failed; it is repeated", slog.Any("error", err))
	})
	switch {
	case broker.Gone(err):
	case err != nil: // the next consumer asks again
		r.ensureGivenBack()
	case acked:
		r.failUncertain()
	default:
		r.notStartedBefore = true
		r.queue.startOrSettle(r)
	}
}

// failUncertain fails a task that runs at most once and may have started before, and dead-letters
// its message. It returns at once; the settlement runs on another goroutine.
func (r *run) failUncertain() {
	r.queue.settleAsync(r, verdict{kind: failed, err: task.ErrUncertain, deadLetter: true})
}

// settleUncertain fails a task with [task.ErrUncertain] when it is unknown whether the broker still
// has its message. It sets r.acked. It blocks until the failure is recorded and the task is
// dead-lettered, or the consumer stops.
//
// If r.acked was not set before, it then acknowledges the message, and repeats that until the
// broker confirms it or the consumer stops. After a stop that is logged. If the message comes
// again, its record says how the task ended.
func (r *run) settleUncertain() {
	c := r.queue.c
	certain := r.acked.Swap(true)
	r.queue.settle(r, verdict{kind: failed, err: task.ErrUncertain, deadLetter: true})
	// a stop may have ended the settlement: then the message must come again
	if certain || c.settle.Err() != nil {
		return
	}
	ctx, cancel := r.queue.untilStop()
	defer cancel()
	ack := func(ctx context.Context) error { return broker.AckSync(ctx, r.delivery) }
	if err := steps.Repeat(ctx, r.delivery.Lost(), ack, func(error) {}); err != nil && !broker.Gone(err) {
		r.log(slog.LevelInfo, "an uncertain task may be delivered again; its record says how it ended", slog.Any("error", err))
	}
}

// ackedStepTimeout limits one call of a step in retryAckedStep.
const ackedStepTimeout = 10 * time.Second

// retryAckedStep repeats a step of the settlement of a task that was acknowledged before its start.
// It blocks without a time limit and returns true when the step has succeeded. what names the step;
// cause, its last error, is only logged.
//
// After each failure it tries to dead-letter the task as uncertain instead, unless the end of the
// task is stored already (r.final). It returns false when:
//
//   - It has dead-lettered the task. It then counts the failure and sends its event, and
//     recordAfterDeadLetter stores it.
//   - handleStepError has ended the settlement, for example because another attempt has settled the
//     task.
//   - The consumer stops (c.settle ends). It then calls recordAbandoned once, for up to KillGrace,
//     which dead-letters the task and records it as uncertain. If both fail, it logs that.
func (r *run) retryAckedStep(what string, step func(context.Context) error, cause error) bool {
	c := r.queue.c
	r.log(slog.LevelError, "an at-most-once task cannot be settled; the step is repeated", slog.String("step", what), slog.Any("error", cause))
	var gap task.Backoff
	for attempt := 0; c.settle.Err() == nil; attempt++ {
		err := r.stepWithin(ackedStepTimeout, step)
		if err == nil {
			return true
		}
		if r.handleStepError(what, err) {
			return false
		}
		v := verdict{kind: failed, err: fmt.Errorf("%w: its %s could not be stored or sent: %w", task.ErrUncertain, what, err)}
		switch {
		case r.final.Load(): // the end is stored: only the remaining steps are repeated
		case r.stepWithin(ackedStepTimeout, func(ctx context.Context) error { return r.deadLetter(ctx, v.err) }) == nil:
			c.cfg.Metrics.Failed.Inc(1)
			r.notifyFailed(v, false)
			r.recordAfterDeadLetter(v)
			return false
		}
		wake.Sleep(c.settle, gap.Interval(attempt))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.settle), c.cfg.Tuning.KillGrace)
	defer cancel()
	if err := r.recordAbandoned(ctx, fmt.Errorf("%w: its %s could not be stored or sent", task.ErrUncertain, what)); err != nil {
		r.log(slog.LevelError, "an at-most-once task was left without a record and a dead letter", slog.String("step", what), slog.Any("error", err))
	}
	return false
}

// recordAfterDeadLetter stores the failure v of a dead-lettered task. It then sends the successors
// of the task and tells its submitter. It first frees the early slot. It repeats each part until
// that succeeds. It ends without the rest when the consumer stops, when the failure cannot be
// encoded, or when the task continues in another message. If the store has a final record already,
// the task ends as that record says.
//
// At most prefetch tasks of a queue wait for this at once; further ones stay without a record, and
// their successors are not sent.
func (r *run) recordAfterDeadLetter(v verdict) {
	q := r.queue
	r.releaseEarlySlot()
	if !q.lateSlots.TryAcquire() {
		return
	}
	defer q.lateSlots.Release()
	ctx, cancel := q.untilStop()
	defer cancel()
	if store := r.store(); store != nil {
		record := func(ctx context.Context) error {
			err := r.recordUncertain(ctx, v, time.Now())
			// a Save without an answer may have stored the real end
			if errors.Is(err, resultstore.ErrStale) {
				return r.resolveStale(ctx, store, &v)
			}
			return err
		}
		if err := steps.Repeat(ctx, nil, record, func(error) {}); err != nil {
			return
		}
	}
	r.final.Store(true)
	_ = r.publishSuccessors(v) && r.saveForSubmitter(v) // both repeat until they succeed
}

// recordAbandoned dead-letters a task that was acknowledged before its start and that a stop leaves
// unsettled. It also stores cause as the failure of the task. It does both at once, since one may
// use up ctx, and waits for both.
//
// It returns nil if one of them succeeded, else the error of the dead letter. Only the first call
// has an effect; later ones return nil. It may run while the handler runs.
func (r *run) recordAbandoned(ctx context.Context, cause error) error {
	if !r.abandoned.CompareAndSwap(false, true) {
		return nil
	}
	v := verdict{kind: failed, err: fmt.Errorf("%w: its consumer stopped before its end", cause)}
	recorded := make(chan error, 1)
	go func() { recorded <- r.recordUncertain(ctx, v, time.Now()) }()
	deadErr := r.deadLetter(ctx, v.err)
	if err := <-recorded; err == nil {
		return nil
	}
	return deadErr
}

// stepWithin calls step once and returns its error. The context of step ends after limit and with
// the settlements of the consumer (c.settle).
func (r *run) stepWithin(limit time.Duration, step func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(r.queue.c.settle, limit)
	defer cancel()
	return step(ctx)
}

// recordUncertain stores v as the failure of the task, with ended as the time of its end. It tries
// once. Returns [resultstore.ErrStale] if a final record is stored already or the task has no
// result store. Also returns [workflow.ErrUnsendable] if the record cannot be encoded, and errors
// of the store.
func (r *run) recordUncertain(ctx context.Context, v verdict, ended time.Time) error {
	store := r.store()
	if store == nil || r.final.Load() {
		return resultstore.ErrStale
	}
	rec, err := r.protectedRecord(task.StateFailed, v, ended)
	if err != nil {
		return err
	}
	return store.Save(ctx, rec)
}
