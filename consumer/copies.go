package consumer

import (
	"context"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// verbatim is a result that is stored without encoding it again.
type verbatim wire.Value

// gatherList is the handler of task.GatherName. It returns the arguments of the task, unchanged and
// still encoded, as its result.
func gatherList(_ context.Context, r *task.Request) (any, error) {
	return verbatim{ContentType: r.ContentType, Data: r.Args}, nil
}

// gatherTTL returns how long the gatherer (the store of groups) keeps a decided group after the
// last arrival of a member. For as long it remembers which copy of a task runs. It is the ResultTTL
// of the task, but at least [resultstore.DefaultGatherTTL]: another member of the group may take
// longer.
func (r *run) gatherTTL() time.Duration {
	return max(r.request.Effective.ResultTTL.Or(0), resultstore.DefaultGatherTTL)
}

// dropIfOtherCopy reports whether the caller must not continue with this message. It is called for
// successors only. Several messages of a successor, its copies, exist when a consumer repeated its
// publish.
//
// It asks the gatherer whether another copy of the task runs or ran:
//
//   - This copy is the first: false.
//   - Another copy was first: true. Another goroutine acknowledges this message (dropCopy).
//   - An error, or no answer within loadTimeout: true. Another goroutine asks again, see
//     retryCopyCheck.
//
// Without a gatherer it returns the result of settleIfRecorded for a first delivery, and false for
// a redelivered one.
func (r *run) dropIfOtherCopy() bool {
	c := r.queue.c
	if c.gather == nil {
		return r.request.Deliveries == 1 && r.settleIfRecorded()
	}
	ctx, cancel := context.WithTimeout(c.settle, loadTimeout)
	defer cancel()
	first, err := r.beginCopy(ctx)
	switch {
	case err == nil && first:
		return false
	case err == nil:
		r.queue.settling.Go(r.dropCopy)
	default:
		r.queue.settling.Go(r.retryCopyCheck)
	}
	return true
}

// beginCopy tells the gatherer that this copy of the task is about to run. It tries once and
// returns the error of the gatherer. It returns true if this copy is the first, also if it has
// begun before. It returns false if another copy has begun first: the task runs or ran from that
// one.
func (r *run) beginCopy(ctx context.Context) (bool, error) {
	return r.queue.c.gather.Begin(ctx, wire.LifeID(r.request.ID, r.request.Life), r.request.Copy, r.gatherTTL())
}

// retryCopyCheck asks the gatherer which copy of the task runs, and repeats that after errors for
// at most StoreRetry. Then it acknowledges this message if another copy runs, or continues with it
// (settleEarlier). Without an answer it gives the task back. Call it on a goroutine of the
// settlement: it may block until the handler has returned.
func (r *run) retryCopyCheck() {
	var first bool
	if !(settlement{r}).Step("check which copy runs", func(ctx context.Context) (err error) {
		first, err = r.beginCopy(ctx)
		return err
	}) {
		return
	}
	if !first {
		r.dropCopy()
		return
	}
	r.queue.settleEarlier(r)
}

// dropCopy acknowledges a message whose task runs from another copy or has a later life (its dead
// letter was requeued, see package lives). It counts the message as rejected and logs that. It
// blocks and repeats the acknowledgement until it succeeds, the broker takes the message back, or
// the consumer stops.
func (r *run) dropCopy() {
	r.queue.c.cfg.Metrics.Rejected.Inc(1)
	r.log(slog.LevelInfo, "another copy of this task runs; this one is dropped")
	r.runStepUntilStop("acknowledgement", r.delivery.Ack)
}
