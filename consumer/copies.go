package consumer

import (
	"context"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// verbatim is a result that is handed on as it came.
type verbatim wire.Value

// gatherList is the handler of task.GatherName: its result are its arguments.
func gatherList(_ context.Context, r *task.Request) (any, error) {
	return verbatim{ContentType: r.ContentType, Data: r.Args}, nil
}

// gatherTTL is how long a decided group is kept after its last arrival, and how long it is
// remembered which copy of a task is run. It is not a result that is kept: a group whose members
// keep theirs for a minute may have one that takes an hour.
func (r *run) gatherTTL() time.Duration {
	return max(r.request.Effective.ResultTTL.Or(0), resultstore.DefaultGatherTTL)
}

// elsewhere reports whether a task that a consumer has sent is not to be run from this message: another copy of it is, or it
// is not known yet. Without a gatherer only a copy that has ended is known, by its record.
func (r *run) elsewhere() bool {
	c := r.queue.c
	if c.gather == nil {
		return r.request.Deliveries == 1 && r.resume()
	}
	ctx, cancel := context.WithTimeout(c.settle, loadTimeout)
	defer cancel()
	first, err := r.beginCopy(ctx)
	switch {
	case err == nil && first:
		return false
	case err == nil:
		c.settling.Go(r.drop)
	default:
		c.settling.Go(r.askWhichCopy)
	}
	return true
}

func (r *run) beginCopy(ctx context.Context) (bool, error) {
	return r.queue.c.gather.Begin(ctx, wire.LifeID(r.request.ID, r.request.Life), r.request.Copy, r.gatherTTL())
}

// askWhichCopy goes on with elsewhere until the gatherer answers. The task is not started before.
func (r *run) askWhichCopy() {
	c := r.queue.c
	ctx, cancel := context.WithTimeout(c.settle, c.cfg.Tuning.StoreRetry)
	defer cancel()
	var first bool
	if !r.persist(ctx, "question which copy is run", func(ctx context.Context) (err error) {
		first, err = r.beginCopy(ctx)
		return err
	}) {
		return
	}
	if !first {
		r.drop()
		return
	}
	r.queue.consider(r)
}

// drop removes a copy of a task that is run from another one, or that an earlier life left behind.
func (r *run) drop() {
	r.queue.c.cfg.Metrics.Rejected.Inc(1)
	r.log(slog.LevelInfo, "another copy of this task is run; this one is dropped")
	r.insist("acknowledgement", r.delivery.Ack)
}
