package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/consumer/internal/lives"
	"github.com/swarmiji/swarmiji/consumer/internal/steps"
	"github.com/swarmiji/swarmiji/consumer/internal/workflow"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// errReopened makes the caller repeat the save of a record.
var errReopened = errors.New("swarmiji: the task's record was of an earlier life and was reopened")

// store returns the result store of the task by its merged metadata, or nil if its result is not
// kept, see [stores.Stores.Of].
func (r *run) store() resultstore.ResultStore {
	return r.queue.c.stores.Of(r.request.Effective, r.request.ReplyTo)
}

// record returns the record of the task with this state, verdict and time of its end, and stores
// nothing. With an end it ends the reports of progress and adds the last one. For a task that waits
// for an answer it extends the retention until after the wait.
func (r *run) record(state task.State, v verdict, ended time.Time) resultstore.Record {
	req := &r.request
	rec := resultstore.Record{
		ID: req.ID, Name: req.Name, State: state, Generation: req.Generation, Deliveries: req.Deliveries, Retries: req.Retries,
		ContentType: v.contentType, Result: v.result, Error: task.Remote(v.err), StartedAt: req.StartedAt, FinishedAt: ended,
		NodeID: req.NodeID, ReplyTo: req.ReplyTo, Correlation: req.Correlation, Life: req.Life, TTL: req.Effective.ResultTTL.Or(0),
		Parent: req.Parent, Group: req.Group, Children: wire.Children(req.Envelope, state),
	}
	if !ended.IsZero() {
		rec.Progress = r.endProgress()
	}
	if v.await != nil { // keep the record until the answer has come or timed out
		rec.TTL = max(rec.TTL, v.await.Timeout.Or(task.DefaultAnswerWithin)+task.DefaultResultTTL)
	}
	return rec
}

// protectedRecord returns the record of the task as it is stored: compressed and sealed if that is
// configured. It drops checkpoints that are not needed any more. ended is the time of the end, zero
// if it has not ended. Returns
// [workflow.ErrUnsendable] if that is impossible.
func (r *run) protectedRecord(state task.State, v verdict, ended time.Time) (resultstore.Record, error) {
	rec := r.record(state, v, ended)
	rec.DropCheckpoints = r.checkpoints.Drops(state, r.answer != nil)
	if err := r.queue.c.codec.ProtectRecord(&rec, r.request.Effective.Compression); err != nil {
		return rec, fmt.Errorf("%w: %w", workflow.ErrUnsendable, err)
	}
	return rec, nil
}

// load returns the task's record from the store. It opens a final record and returns any other one
// as it is. It tries once. Its errors are those of the store, and:
//
//   - [resultstore.ErrMalformed]: a final record cannot be opened, because another program wrote it
//     or its key is gone. It is counted as rejected. No successors may be made from it.
//   - [resultstore.ErrNotFound]: there is no record, or the result of the success is in another
//     store.
func (r *run) load(ctx context.Context, store resultstore.ResultStore) (resultstore.Record, error) {
	rec, err := store.Load(ctx, r.request.ID)
	if err != nil || !rec.State.Terminal() {
		return rec, err
	}
	if err := r.queue.c.codec.OpenRecord(&rec); err != nil {
		r.queue.c.cfg.Metrics.Rejected.Inc(1)
		return resultstore.Record{}, fmt.Errorf("%w: record of %s: %w", resultstore.ErrMalformed, rec.ID, err)
	}
	// a consumer with other metadata has stored the result elsewhere
	if rec.State == task.StateSucceeded && rec.Error != nil {
		return resultstore.Record{}, resultstore.ErrNotFound
	}
	return rec, nil
}

// save stores the state of the task and repeats that until it succeeds or ctx ends. It blocks
// meanwhile. Before a success it reopens the records of successors. After a final state it sets
// r.final, if the store keeps records. A record that the store refuses as malformed, or because its
// submitter is gone, counts as stored and as rejected. It stores nothing without a result store. A
// store that only sends replies gets only final states.
//
// It returns the verdict to continue with, which differs from v in two cases:
//
//   - The result is too large for the store: the failure, which it has stored instead.
//   - The store has the final record of another attempt: the verdict of that record. The record of
//     this attempt counts as rejected.
//
// The second result is false if the settlement must not continue: runStep has then given the task
// back, failed it or settled it.
func (r *run) save(ctx context.Context, state task.State, v verdict) (verdict, bool) {
	if state == task.StateSucceeded && !lives.ReopenSuccessors(r.request.Envelope, settlement{r}) {
		return v, false
	}
	store := r.store()
	if store == nil || !state.Terminal() && resultstore.RepliesOnly(store) {
		return v, true
	}
	// only once: sealing twice gives different bytes
	rec, unfit := r.protectedRecord(state, v, r.ended)
	ok := r.runStep(ctx, "result", func(ctx context.Context) error {
		if unfit != nil {
			return unfit
		}
		err := store.Save(ctx, rec)
		switch {
		case err == nil:
			r.final.Store(state.Terminal() && !resultstore.RepliesOnly(store))
		case errors.Is(err, resultstore.ErrStale):
			r.queue.c.cfg.Metrics.Rejected.Inc(1)
			return r.resolveStale(ctx, store, &v)
		// no reader will ever get it
		case errors.Is(err, resultstore.ErrUnreachable), errors.Is(err, resultstore.ErrMalformed):
			r.queue.c.cfg.Metrics.Rejected.Inc(1)
			return nil
		case errors.Is(err, resultstore.ErrTooLarge) && rec.Result != nil:
			v = verdict{kind: failed, err: task.Remote(fmt.Errorf("%w: %w", task.ErrBadResult, err))}
			if rec, err = r.protectedRecord(task.StateFailed, v, r.ended); err != nil {
				return err
			}
			if err = store.Save(ctx, rec); err == nil {
				r.final.Store(state.Terminal() && !resultstore.RepliesOnly(store))
			}
		}
		return err
	})
	return v, ok
}

// resolveStale handles a record that the store refused with [resultstore.ErrStale]: it has a record
// of another attempt. It tries once and returns:
//
//   - nil, if that record is final. Its verdict is stored in v, and r.final is set. The caller
//     settles by it, since the other consumer may have died before it sent the successors.
//   - errReopened, after it has replaced a failure of an earlier life (before a requeue, see
//     package lives). The caller saves again.
//   - [workflow.ErrUnsendable], if the record cannot be opened.
//   - steps.ErrDone, if the task continues in another message. It has acknowledged this message.
//   - errors of the store and of the acknowledgement.
func (r *run) resolveStale(ctx context.Context, store resultstore.ResultStore, v *verdict) error {
	rec, err := r.load(ctx, store)
	switch {
	case errors.Is(err, resultstore.ErrMalformed): // no attempt can replace this record
		return fmt.Errorf("%w: %w", workflow.ErrUnsendable, err)
	case err != nil && !errors.Is(err, resultstore.ErrNotFound):
		return err
	// the program that requeued the task did not know the store of the record
	case err == nil && lives.Earlier(&rec, r.request.Envelope):
		if err := lives.Reopen(ctx, &r.request, store.Save); err != nil {
			return err
		}
		return errReopened
	case err == nil && rec.State.Terminal() && !lives.Superseded(&rec, r.request.Envelope):
		*v = verdictOfRecord(&rec)
		r.final.Store(true)
		return nil
	}
	if !r.acked.Load() {
		if err := r.delivery.Ack(ctx); err != nil {
			return err
		}
	}
	return steps.ErrDone
}
