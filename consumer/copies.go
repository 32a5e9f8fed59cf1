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

// gatherList is the handler of task.GatherName. It returns its arguments as its result.
func gatherList(_ context.Context, r *task.Request) (any, error) {
	return verbatim{ContentType: r.ContentType, Data: r.Args}, nil
}

// gatherTTL returns how long a decided group is kept after the last arrival of a member. The
// gatherer remembers for the same time which copy of a task runs. It is at least
// [resultstore.DefaultGatherTTL], since another member of the group may take longer than this
// task's ResultTTL.
func (r *run) gatherTTL() time.Duration {
	return max(r.request.Effective.ResultTTL.Or(0), resultstore.DefaultGatherTTL)
}

// dropIfOtherCopy reports whether this message must not run now: another copy of the task runs or
// ran, or this is unknown. Several copies of a successor exist when a consumer repeated its
// publish.
//
// It drops this copy on another goroutine. If the gatherer gives no answer within loadTimeout, it
// asks again there and then continues with the task. Without a gatherer it checks only the stored
// result of the task.
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
		c.settling.Go(r.dropCopy)
	default:
		c.settling.Go(r.retryCopyCheck)
	}
	return true
}

// beginCopy tells the gatherer that this copy of the task is about to run. It returns false if
// another copy has begun first: the task runs or ran from that one.
func (r *run) beginCopy(ctx context.Context) (bool, error) {
	return r.queue.c.gather.Begin(ctx, wire.LifeID(r.request.ID, r.request.Life), r.request.Copy, r.gatherTTL())
}

// retryCopyCheck asks the gatherer until it answers which copy of the task runs, for at most
// StoreRetry. Then it drops this copy or continues with it. Without an answer it gives the task
// back.
func (r *run) retryCopyCheck() {
	c := r.queue.c
	ctx, cancel := context.WithTimeout(c.settle, c.cfg.Tuning.StoreRetry)
	defer cancel()
	var first bool
	if !r.runStep(ctx, "check which copy runs", func(ctx context.Context) (err error) {
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

// dropCopy acknowledges a message whose task runs from another copy or has a later life. It counts
// the message as rejected and repeats the acknowledgement until it succeeds.
func (r *run) dropCopy() {
	r.queue.c.cfg.Metrics.Rejected.Inc(1)
	r.log(slog.LevelInfo, "another copy of this task runs; this one is dropped")
	r.runStepUntilStop("acknowledgement", r.delivery.Ack)
}
