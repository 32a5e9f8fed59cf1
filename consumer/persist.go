package consumer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/backoff"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// errUnsendable marks a failure that repeating does not mend.
var errUnsendable = errors.New("swarmiji: cannot be sent")

// errDone ends a settlement that another attempt's outcome has made void. Nothing is left to do.
var errDone = errors.New("swarmiji: settled by another attempt")

// persist repeats a step of a settlement until it is done, within ctx, and reports whether it is. When the broker takes the
// task back it gives up, since the task runs elsewhere. When ctx ends first it gives the task back, to be run again; a task
// that was acknowledged before its start cannot be.
func (r *run) persist(ctx context.Context, what string, step func(context.Context) error) bool {
	err := repeat(ctx, r.lost(), step, func(err error) {
		r.log(slog.LevelWarn, "settling a task is repeated", slog.String("step", what), slog.Any("error", err))
	})
	switch {
	case err == nil:
		return true
	case errors.Is(err, errDone), broker.Gone(err):
	case errors.Is(err, errUnsendable):
		r.giveUp(ctx, what, err)
	case r.acked.Load():
		r.log(slog.LevelError, "a task that runs at most once could not be settled", slog.String("step", what), slog.Any("error", err))
	default:
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), openTimeout)
		defer cancel()
		if err := r.giveBack(closing); err != nil && !broker.Gone(err) {
			r.log(slog.LevelWarn, "task not given back; the broker will notice", slog.Any("error", err))
		}
	}
	return false
}

// giveUp ends a task whose settlement cannot be carried out by anybody: it fails, and its message goes to the dead letters.
func (r *run) giveUp(ctx context.Context, what string, cause error) {
	r.log(slog.LevelError, "task given up: its "+what+" cannot be sent", slog.Any("error", cause))
	if store := r.store(); store != nil {
		rec, err := r.protected(task.StateFailed, verdict{kind: failed, err: task.Remote(cause)})
		if err == nil {
			err = store.Save(ctx, rec)
		}
		if err != nil && !errors.Is(err, resultstore.ErrStale) {
			r.log(slog.LevelWarn, "its failure is not recorded", slog.Any("error", err))
		}
	}
	if !r.hopeless { // else it was this that could not be sent
		r.hopeless = true
		if !r.publishSuccessors(verdict{kind: failed, err: task.Remote(cause)}) {
			return
		}
	}
	if r.acked.Load() {
		return
	}
	if err := r.delivery.Bury(ctx, deadFor(cause)); err == nil {
		r.queue.c.cfg.Metrics.Buried.Inc(1)
	}
}

// deadFor is the dead letter of a task that is given up for cause.
func deadFor(cause error) broker.Dead {
	if cause == nil {
		return broker.Dead{}
	}
	return broker.Dead{Reason: cause.Error()}
}

// repeat runs step until it succeeds, until its error is one that repeating does not mend, until lost is closed, or until
// ctx ends. first is told of the first failure.
func repeat(ctx context.Context, lost <-chan struct{}, step func(context.Context) error, first func(error)) error {
	var gap backoff.Exponential
	for attempt := 0; ; attempt++ {
		err := step(ctx)
		if err == nil || broker.Gone(err) || errors.Is(err, errDone) || errors.Is(err, errUnsendable) {
			return err
		}
		if attempt == 0 {
			first(err)
		}
		timer := time.NewTimer(gap.Delay(attempt))
		select {
		case <-timer.C:
		case <-lost:
			timer.Stop()
			return broker.ErrLeaseLost
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}
