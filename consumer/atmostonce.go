package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// A task that runs at most once is acknowledged before its start. From then on only this process
// knows of it:
//
//   - At most as many of them as the prefetch are unsettled, since the broker does not count them any more. None starts beyond.
//   - None is given up without a trace. A step of its settlement that cannot be done within StoreRetry is tried on; a task whose
//     end cannot be recorded becomes a dead letter. While the broker does not take that either, the task keeps its place.
//   - Nothing is sent a second time after an unknown outcome, since both messages would run. The task is uncertain then.
//   - An acknowledgement of unknown outcome makes it uncertain too: nobody can tell whether it comes again.

// errUncertain ends a settlement after a message whose outcome is unknown, and that must not be
// sent a second time.
var errUncertain = errors.New("swarmiji: sent with an unknown outcome, and not sent again because the task runs at most once")

// reserveEarly takes one of the places of tasks that are acknowledged before their start. False:
// the task must not start now.
func (q *queue) reserveEarly(r *run) bool {
	if r.early.Load() {
		return true
	}
	if !q.early.TryAcquire() {
		ctx, cancel := q.while(r)
		defer cancel()
		q.c.reserved.Add(r)
		defer q.c.reserved.Remove(r)
		if !q.early.Acquire(ctx) {
			return false
		}
	}
	r.early.Store(true)
	return true
}

// freeEarly gives the run's place back, if it has one.
func (r *run) freeEarly() {
	if r.early.CompareAndSwap(true, false) {
		r.queue.early.Release()
	}
}

// ackEarly acknowledges a task that runs at most once, now that a worker is free to start it, and
// reports whether it may start: only when the broker is known to have taken the acknowledgement.
// Otherwise the task has been dealt with.
func (r *run) ackEarly() bool {
	q, c := r.queue, r.queue.c
	ctx, cancel := context.WithTimeout(c.settle, c.cfg.Tuning.StoreRetry)
	defer cancel()
	unknown, refused := false, false
	err := repeat(ctx, r.lost(), func(ctx context.Context) error {
		err := broker.AckSync(ctx, r.delivery)
		unknown = unknown || errors.Is(err, broker.ErrIndeterminate) || // also when the broker has the task back by now
			err != nil && !broker.Gone(err) && !errors.Is(err, broker.ErrUnavailable) && !errors.Is(err, broker.ErrAccess)
		if refused = errors.Is(err, broker.ErrAccess); refused {
			return errors.Join(errDone, err)
		}
		return err
	}, func(err error) {
		r.log(slog.LevelWarn, "acknowledging a task that runs at most once is repeated", slog.Any("error", err))
	})
	switch {
	case err == nil:
		r.acked.Store(true)
		return true
	case refused && !unknown: // nothing was acknowledged, and waiting does not mend it: it makes way for the others
		c.warnOnce("early", "tasks that run at most once cannot be acknowledged; they are put back", slog.Any("error", err))
		r.freeEarly()
		c.settling.Go(func() {
			r.insist("release", func(ctx context.Context) error { return r.delivery.Release(ctx, refusedAgain) })
		})
	case unknown:
		r.log(slog.LevelWarn, "not started, because it runs at most once and its acknowledgement is not certain", slog.Any("error", err))
		q.c.settling.Go(r.settleUncertain)
	case broker.Gone(err):
		r.freeEarly()
	default: // nothing was acknowledged
		r.unstarted()
	}
	return false
}

// mayHaveStarted reports whether an earlier delivery of a task that runs at most once may have been
// started. If so it has dealt with the run, or does so when the broker answers. Where an
// acknowledgement is final no such task was started.
func (r *run) mayHaveStarted() bool {
	checker, ok := capability.As[broker.AckChecker](r.delivery)
	if !ok {
		_, final := capability.As[broker.SyncAcker](r.delivery)
		if !final {
			r.uncertain()
		}
		return !final
	}
	ctx, cancel := context.WithTimeout(r.queue.c.settle, loadTimeout)
	defer cancel()
	acked, err := checker.AckedBefore(ctx)
	switch {
	case err != nil:
		r.queue.c.settling.Go(func() { r.askWhetherStarted(checker) })
	case acked:
		r.uncertain()
	default:
		return false
	}
	return true
}

// askWhetherStarted goes on with mayHaveStarted until the broker answers. The task is not started
// before.
func (r *run) askWhetherStarted(checker broker.AckChecker) {
	c := r.queue.c
	ctx, cancel := context.WithTimeout(c.settle, c.cfg.Tuning.StoreRetry)
	defer cancel()
	acked := true
	err := repeat(ctx, r.lost(), func(ctx context.Context) (err error) {
		acked, err = checker.AckedBefore(ctx)
		return err
	}, func(err error) {
		r.log(slog.LevelWarn, "whether a task was started is asked again", slog.Any("error", err))
	})
	switch {
	case broker.Gone(err):
	case err != nil: // whoever gets it next asks again
		r.giveBackForSure()
	case acked:
		r.uncertain()
	default:
		r.checked = true
		r.queue.proceed(r)
	}
}

// uncertain ends a task that runs at most once and may have been started before. It must not start
// twice, so it goes to the dead letters, where somebody can decide.
func (r *run) uncertain() {
	r.queue.settleAside(r, verdict{kind: failed, err: task.ErrUncertain, bury: true})
}

// settleUncertain ends a task of which it is not known whether the broker still has it. Should it
// come again, its record tells. A delivery that was not acknowledged for certain is acknowledged
// afterwards: it would keep its place for ever.
func (r *run) settleUncertain() {
	c := r.queue.c
	certain := r.acked.Swap(true)
	r.queue.settle(r, verdict{kind: failed, err: task.ErrUncertain, bury: true})
	if certain || c.settle.Err() != nil { // a stop may have ended the settlement: then the message has to come again
		return
	}
	ctx, cancel := r.queue.insisting()
	defer cancel()
	ack := func(ctx context.Context) error { return broker.AckSync(ctx, r.delivery) }
	if err := repeat(ctx, r.delivery.Lost(), ack, func(error) {}); err != nil && !broker.Gone(err) {
		r.log(slog.LevelInfo, "an uncertain task may come again; its record tells", slog.Any("error", err))
	}
}

// lastTry bounds one call of holdOn.
const lastTry = 10 * time.Second

// holdOn goes on with a step of a task that was acknowledged early, until it is done, or until the
// result store or the broker keeps that it was not. It reports whether the step is done. A stop ends
// it with one last try to leave a trace.
func (r *run) holdOn(what string, step func(context.Context) error, cause error) bool {
	c := r.queue.c
	r.log(slog.LevelError, "a task that runs at most once cannot be settled", slog.String("step", what), slog.Any("error", cause))
	var gap task.Backoff
	for attempt := 0; c.settle.Err() == nil; attempt++ {
		err := r.within(lastTry, step)
		if err == nil {
			return true
		}
		if r.resolved(what, err) {
			return false
		}
		v := verdict{kind: failed, err: fmt.Errorf("%w: its %s could not be stored or sent: %w", task.ErrUncertain, what, err)}
		switch {
		case r.final.Load(): // what is left to do is not given up
		case r.within(lastTry, func(ctx context.Context) error { return r.deadLetter(ctx, v.err) }) == nil:
			c.cfg.Metrics.Failed.Inc(1)
			r.notifyFailed(v, false)
			r.recordLate(v)
			return false
		}
		wake.Sleep(c.settle, gap.Interval(attempt))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.settle), c.cfg.Tuning.KillGrace)
	defer cancel()
	if err := r.abandon(ctx, fmt.Errorf("%w: its %s could not be stored or sent", task.ErrUncertain, what)); err != nil {
		r.log(slog.LevelError, "a task that runs at most once is left without a trace", slog.String("step", what), slog.Any("error", err))
	}
	return false
}

// recordLate records the end of a task that is a dead letter by now, when the store answers again, and deals with what follows
// it. Such tasks hold no place any more; of a queue as many as the prefetch are remembered.
func (r *run) recordLate(v verdict) {
	q := r.queue
	r.freeEarly()
	if !q.late.TryAcquire() {
		return
	}
	defer q.late.Release()
	ctx, cancel := q.insisting()
	defer cancel()
	if store := r.store(); store != nil {
		record := func(ctx context.Context) error {
			err := r.recordUncertain(ctx, v, time.Now())
			if errors.Is(err, resultstore.ErrStale) { // a Save without an answer may have stored the true end
				return r.overtaken(ctx, store, &v)
			}
			return err
		}
		if err := repeat(ctx, nil, record, func(error) {}); err != nil {
			return
		}
	}
	r.final.Store(true)
	_ = r.publishSuccessors(v) && r.tellSubmitter(v) // each goes on until it is done
}

// abandon leaves a trace of a task that was acknowledged early and that a stop leaves unsettled: a
// dead letter, and a record that its end is not known. Both are tried at once, since one of them may
// use up ctx. It may run beside the handler. Only the first call does anything.
func (r *run) abandon(ctx context.Context, cause error) error {
	if !r.abandoned.CompareAndSwap(false, true) {
		return nil
	}
	v := verdict{kind: failed, err: fmt.Errorf("%w: its consumer stopped without it", cause)}
	recorded := make(chan error, 1)
	go func() { recorded <- r.recordUncertain(ctx, v, time.Now()) }()
	buried := r.deadLetter(ctx, v.err)
	if err := <-recorded; err == nil {
		return nil
	}
	return buried
}

// within runs a step with a time limit.
func (r *run) within(limit time.Duration, step func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(r.queue.c.settle, limit)
	defer cancel()
	return step(ctx)
}

// recordUncertain stores that the task's end is not known. It cannot where a final record is stored already, or none is wanted.
func (r *run) recordUncertain(ctx context.Context, v verdict, ended time.Time) error {
	store := r.store()
	if store == nil || r.final.Load() {
		return resultstore.ErrStale
	}
	rec, err := r.protected(task.StateFailed, v, ended)
	if err != nil {
		return err
	}
	return store.Save(ctx, rec)
}
