package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/consumer/internal/intx"
	"github.com/swarmiji/swarmiji/consumer/internal/lives"
	"github.com/swarmiji/swarmiji/consumer/internal/steps"
	"github.com/swarmiji/swarmiji/consumer/internal/workflow"
	"github.com/swarmiji/swarmiji/internal/guard"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tx"
)

// SettleTx implements [task.Settler]. In t it stores result as the success of the task, sends the
// successors and acknowledges the message, in this order. It does not commit. A handler that
// commits in spite of an error leaves a task that is settled by its record, as after a crash.
func (r *run) SettleTx(ctx context.Context, t tx.Tx, result any) error {
	if err := r.inTx.Enter(); err != nil {
		return err
	}
	defer r.inTx.Leave()
	t = intx.Remembering(t)
	acker, ok := capability.As[broker.TxAcker](r.delivery)
	switch {
	case !ok:
		return fmt.Errorf("%w: SettleTx needs a broker in a SQL database", broker.ErrUnsupported)
	case !r.idempotent():
		return fmt.Errorf("%w: SettleTx: a task that runs at most once is acknowledged before its start", broker.ErrUnsupported)
	case r.request.Burst != "":
		return fmt.Errorf("%w: SettleTx: the end of a task in a burst is also stored outside of the transaction", broker.ErrUnsupported)
	case r.expects.Load():
		return fmt.Errorf("%w: SettleTx: the task has called Expect", broker.ErrUnsupported)
	case r.isLost():
		return fmt.Errorf("swarmiji: SettleTx: %w", broker.ErrLeaseLost)
	case r.checkpoints.Unfinished() != nil:
		return r.checkpoints.Unfinished()
	}
	v := verdict{}
	if err := guard.Call(func() error { v = r.success(result); return v.err }); err != nil {
		return err
	}
	w := &intx.Writer{T: t, End: intx.End{Value: wire.Value{ContentType: v.contentType, Data: v.result}}}
	err := r.writeEnd(ctx, w, v)
	if err == nil {
		err = r.inTx.Acknowledge(&w.End, func() error { return acker.AckTx(ctx, t) })
	} else {
		w.RolledBack()
	}
	if err != nil {
		return fmt.Errorf("swarmiji: SettleTx: %w", err)
	}
	return nil
}

// writeEnd writes the success v of the task in the transaction of w: its record, its successors,
// and a record for its submitter. It does not acknowledge the message. Its errors are those of
// SettleTx.
func (r *run) writeEnd(ctx context.Context, w *intx.Writer, v verdict) error {
	c, store, awaited := r.queue.c, r.store(), r.submitterStore()
	var parts []intx.Part
	for _, s := range []resultstore.ResultStore{store, awaited} {
		if s != nil {
			parts = append(parts, intx.Part{Name: "result store", Value: s})
		}
	}
	if r.request.Chord != nil && c.gather != nil {
		parts = append(parts, intx.Part{Name: "gatherer", Value: c.gather})
	}
	if err := c.databases.Check(ctx, w.T, intx.Part{Name: "broker", Value: c.cfg.Broker}, parts...); err != nil {
		return err
	}
	now := time.Now()
	s := &intx.Steps{Run: settlement{r}, W: w, Record: r.successorRecord}
	s.Do = func(do func(context.Context) error) error { return do(ctx) }
	if !lives.ReopenSuccessors(r.request.Envelope, s) {
		return s.Err
	}
	if store != nil {
		if err := r.saveEnd(ctx, w, store, v, now); err != nil {
			return err
		}
	}
	if !r.sendSuccessors(w.Workflow(c.successors), s, v) {
		return s.Err
	}
	if awaited == nil {
		return nil
	}
	rec, err := r.submitterRecord(v, now)
	if err == nil {
		err = workflow.Accepted(w.Save(ctx, awaited, rec))
	}
	return err
}

// saveEnd stores v as the success of the task, in the transaction of w. It replaces a failure of an
// earlier life of the task. Returns [task.ErrBadResult] if the record is too large,
// [resultstore.ErrStale] if another attempt has ended the task, and errors of the database.
func (r *run) saveEnd(ctx context.Context, w *intx.Writer, store resultstore.ResultStore, v verdict, ended time.Time) error {
	rec, err := r.protectedRecord(task.StateSucceeded, v, ended)
	if err != nil {
		return err
	}
	rec.DropCheckpoints = r.checkpoints.Used() // otherwise t may lack the right to delete them
	err = w.Save(ctx, store, rec)
	if errors.Is(err, resultstore.ErrStale) {
		if old, lerr := r.load(ctx, store); lerr == nil && lives.Earlier(&old, r.request.Envelope) {
			if err = lives.Reopen(ctx, &r.request, func(ctx context.Context, rec resultstore.Record) error { return w.Save(ctx, store, rec) }); err == nil {
				err = w.Save(ctx, store, rec)
			}
		}
	}
	if errors.Is(err, resultstore.ErrTooLarge) {
		err = fmt.Errorf("%w: %w", task.ErrBadResult, err)
	}
	return err
}

// settleAfterTx settles a task whose handler has returned and may have committed its end. It
// blocks until the broker knows whether the message is gone. If so, it calls reportCommitted.
// Otherwise it calls end.RolledBack, and settles the task by the result and the error of the
// handler, [task.ErrNotCommitted] in place of nil. If the lease is lost, or a stop comes before
// the answer, it only calls end.RolledBack: whether the transaction was committed is not known.
func (q *queue) settleAfterTx(r *run, end *intx.End, result any, failure error) {
	ctx, cancel := q.untilStop()
	defer cancel()
	acker, _ := capability.As[broker.TxAcker](r.delivery)
	gone := false
	err := steps.Repeat(ctx, r.lost(), func(ctx context.Context) (err error) {
		gone, err = acker.Settled(ctx)
		return err
	}, func(err error) {
		r.log(slog.LevelWarn, "it is not known yet whether the transaction that settles a task has committed", slog.Any("error", err))
	})
	switch {
	case err == nil && gone:
		q.reportCommitted(r, end)
		return
	case err != nil:
		r.log(slog.LevelInfo, "this attempt is ignored: its transaction was not seen to commit", slog.Any("error", err))
		end.RolledBack()
		return
	}
	end.RolledBack()
	if failure == nil {
		result, failure = nil, task.ErrNotCommitted
		r.log(slog.LevelWarn, "the handler returned nil, but its transaction with SettleTx was not committed")
	}
	v := r.applyRevocation(r.judge(result, failure), failure)
	r.countForBreakers(v)
	q.settle(r, v)
}

// reportCommitted reports a task that its handler has settled to the submitter, the hooks, metrics,
// events and the job. It blocks for at most StoreRetry. The submitter finds the record later.
func (q *queue) reportCommitted(r *run, end *intx.End) {
	r.final.Store(true)
	v := verdict{kind: succeeded, result: end.Value.Data, contentType: end.Value.ContentType}
	r.countForBreakers(v)
	ctx, cancel := context.WithTimeout(q.c.settle, q.c.cfg.Tuning.StoreRetry)
	defer cancel()
	q.closeExpected(ctx, r, v)
	for _, s := range end.Saved {
		// saving the same record again only notifies its submitter
		_ = steps.Repeat(ctx, nil, func(ctx context.Context) error { return workflow.Accepted(s.Store.Save(ctx, s.Record)) }, func(error) {})
	}
	end.Committed()
	q.c.cfg.Metrics.Succeeded.Inc(1)
	r.notifySucceeded(v)
	r.endJob(v)
}
