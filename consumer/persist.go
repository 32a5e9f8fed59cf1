package consumer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer/internal/workflow"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// errDone ends a settlement that another attempt's outcome has made void. Nothing is left to do.
var errDone = errors.New("swarmiji: settled by another attempt")

// persist repeats a step of a settlement until it is done, within ctx, and reports whether it is.
// When the broker takes the task back it gives up, since the task runs elsewhere. When ctx ends
// first it gives the task back, to be run again; one that was acknowledged before its start cannot
// be given back, see holdOn.
func (r *run) persist(ctx context.Context, what string, step func(context.Context) error) bool {
	err := repeat(ctx, r.lost(), step, func(err error) {
		r.log(slog.LevelWarn, "settling a task is repeated", slog.String("step", what), slog.Any("error", err))
	})
	switch {
	case err == nil:
		return true
	case r.resolved(what, err):
	case r.acked.Load():
		return r.holdOn(what, step, err)
	default:
		r.giveBackForSure()
	}
	return false
}

// resolved deals with an error of a step that repeating does not mend. False: err is no such error.
func (r *run) resolved(what string, err error) bool {
	switch {
	case errors.Is(err, errDone), broker.Gone(err):
	case errors.Is(err, errUncertain):
		r.log(slog.LevelError, "a task that runs at most once is uncertain", slog.String("step", what), slog.Any("error", err))
		r.settleUncertain()
	case errors.Is(err, workflow.ErrUnsendable):
		r.giveUp(what, err)
	default:
		return false
	}
	return true
}

// giveBackForSure gives the task back and does not stop at a failure: a delivery that is neither
// settled nor given back would keep its place for ever.
func (r *run) giveBackForSure() { r.insist("release", r.giveBack) }

// insist repeats a step until it is done or the broker has taken the task back. A stop ends it
// after giveBackTimeout: the deliveries go back with the subscription then.
func (r *run) insist(what string, step func(context.Context) error) {
	ctx, cancel := r.queue.insisting()
	defer cancel()
	err := repeat(ctx, r.lost(), step, func(err error) {
		r.log(slog.LevelWarn, "settling a task is repeated", slog.String("step", what), slog.Any("error", err))
	})
	if err != nil && !broker.Gone(err) {
		r.log(slog.LevelWarn, "the task is not settled; the broker will notice", slog.String("step", what), slog.Any("error", err))
	}
}

// insisting returns the context of a step that must be done: it ends when a stop has given it
// giveBackTimeout.
func (q *queue) insisting() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(q.c.settle)
	stop := context.AfterFunc(q.fetch, func() { time.AfterFunc(giveBackTimeout, cancel) })
	return ctx, func() {
		stop()
		cancel()
	}
}

// giveUp ends a task whose settlement cannot be carried out by anybody: it fails, and its message
// goes to the dead letters.
func (r *run) giveUp(what string, cause error) {
	r.log(slog.LevelError, "task given up: its "+what+" cannot be sent", slog.Any("error", cause))
	ctx, cancel := context.WithTimeout(r.queue.c.settle, r.queue.c.cfg.Tuning.StoreRetry)
	defer cancel()
	for _, store := range []resultstore.ResultStore{r.store(), r.awaitedElsewhere()} {
		if store == nil {
			continue
		}
		rec, err := r.protected(task.StateFailed, verdict{kind: failed, err: task.Remote(cause)}, r.ended)
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
	r.insist("dead letter", func(ctx context.Context) error { return r.bury(ctx, cause) })
}

// repeat runs step until it succeeds, until its error is one that repeating does not mend, until
// lost is closed, or until ctx ends. first is told of the first failure.
func repeat(ctx context.Context, lost <-chan struct{}, step func(context.Context) error, first func(error)) error {
	var gap task.Backoff
	for attempt := 0; ; attempt++ {
		err := step(ctx)
		if err == nil || broker.Gone(err) || errors.Is(err, errDone) || errors.Is(err, workflow.ErrUnsendable) || errors.Is(err, errUncertain) {
			return err
		}
		if attempt == 0 {
			first(err)
		}
		if wake.SleepOr(ctx, lost, gap.Interval(attempt)) {
			continue
		}
		if ctx.Err() != nil {
			return err
		}
		return broker.ErrLeaseLost
	}
}
