package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/consumer/internal/workflow"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// store returns where the task's result goes; nil for nowhere.
func (r *run) store() resultstore.ResultStore {
	return r.queue.c.storeOf(r.request.Effective, r.request.ReplyTo)
}

// storeOf returns where the result of a task of these metadata goes.
func (c *Consumer) storeOf(meta *task.Metadata, replyTo string) resultstore.ResultStore {
	if meta.IgnoreResult.Or(false) {
		return nil
	}
	if name := meta.ResultStore.Or(""); name != "" {
		if s, ok := c.cfg.Stores[name]; ok {
			return s
		}
		c.warnOnce("store", "results of tasks that name a store which is not configured are dropped",
			slog.String("store", utf.Cut(name, 64)))
		return nil
	}
	if c.cfg.Results == nil && replyTo != "" {
		c.warnOnce("results", "results are dropped although they are waited for: no result store is configured")
	}
	return c.cfg.Results
}

// record is what the store keeps of the task.
func (r *run) record(state task.State, v verdict, ended time.Time) resultstore.Record {
	req := &r.request
	rec := resultstore.Record{
		ID: req.ID, Name: req.Name, State: state, Generation: req.Generation, Deliveries: req.Deliveries, Retries: req.Retries,
		ContentType: v.contentType, Result: v.result, Error: task.Remote(v.err), StartedAt: req.StartedAt, FinishedAt: ended,
		NodeID: req.NodeID, ReplyTo: req.ReplyTo, Correlation: req.Correlation, Life: req.Life, TTL: req.Effective.ResultTTL.Or(0),
	}
	if v.await != nil { // it is there until the answer is, or has not come
		rec.TTL = max(rec.TTL, v.await.Timeout.Or(task.DefaultAnswerWithin)+task.DefaultResultTTL)
	}
	return rec
}

// protected is record as it is stored: compressed and sealed where that is configured.
func (r *run) protected(state task.State, v verdict, ended time.Time) (resultstore.Record, error) {
	rec := r.record(state, v, ended)
	if err := r.queue.c.codec.ProtectRecord(&rec, r.request.Effective.Compression); err != nil {
		return rec, fmt.Errorf("%w: %w", workflow.ErrUnsendable, err)
	}
	return rec, nil
}

// load asks the store for the task's record. A final one that cannot be opened, because somebody else wrote it or its key is
// gone, is [resultstore.ErrMalformed]: successors must not be made of it.
func (r *run) load(ctx context.Context, store resultstore.ResultStore) (resultstore.Record, error) {
	rec, err := store.Load(ctx, r.request.ID)
	if err != nil || !rec.State.Terminal() {
		return rec, err
	}
	if err := r.queue.c.codec.OpenRecord(&rec); err != nil {
		r.queue.c.cfg.Metrics.Rejected.Inc(1)
		return resultstore.Record{}, fmt.Errorf("%w: record of %s: %w", resultstore.ErrMalformed, rec.ID, err)
	}
	if rec.State == task.StateSucceeded && rec.Error != nil { // a consumer of other metadata has kept the result elsewhere: nothing can be made of this
		return resultstore.Record{}, resultstore.ErrNotFound
	}
	return rec, nil
}

// save stores the task's record, if one is wanted. It returns the verdict to go on from, which is another one when the store
// cannot hold the result or has a final record of another attempt, and whether to go on.
func (r *run) save(ctx context.Context, state task.State, v verdict) (verdict, bool) {
	if state == task.StateSucceeded && !r.reopen() {
		return v, false
	}
	store := r.store()
	if store == nil || !state.Terminal() && resultstore.RepliesOnly(store) {
		return v, true
	}
	rec, unfit := r.protected(state, v, r.ended) // once: what is sealed twice differs
	ok := r.persist(ctx, "result", func(ctx context.Context) error {
		if unfit != nil {
			return unfit
		}
		err := store.Save(ctx, rec)
		switch {
		case err == nil:
			r.final.Store(state.Terminal() && !resultstore.RepliesOnly(store))
		case errors.Is(err, resultstore.ErrStale):
			r.queue.c.cfg.Metrics.Rejected.Inc(1)
			return r.overtaken(ctx, store, &v)
		case errors.Is(err, resultstore.ErrUnreachable), errors.Is(err, resultstore.ErrMalformed): // nobody will ever read it
			r.queue.c.cfg.Metrics.Rejected.Inc(1)
			return nil
		case errors.Is(err, resultstore.ErrTooLarge) && rec.Result != nil:
			v = verdict{kind: failed, err: task.Remote(fmt.Errorf("%w: %w", task.ErrBadResult, err))}
			if rec, err = r.protected(task.StateFailed, v, r.ended); err != nil {
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

// overtaken deals with an attempt whose record another attempt's has made void. If that one is final, this attempt goes on
// from it: the other may have died before it sent the successors, which have the same ids. Else the task lives on in another
// message, and this one is only removed.
func (r *run) overtaken(ctx context.Context, store resultstore.ResultStore, v *verdict) error {
	rec, err := r.load(ctx, store)
	switch {
	case errors.Is(err, resultstore.ErrMalformed): // no attempt will ever come past what lies there
		return fmt.Errorf("%w: %w", workflow.ErrUnsendable, err)
	case err != nil && !errors.Is(err, resultstore.ErrNotFound):
		return err
	case err == nil && r.ofEarlierLife(&rec): // whoever requeued the task did not know where its record is
		if err := r.reopenOwn(ctx, store); err != nil {
			return err
		}
		return errReopened
	case err == nil && rec.State.Terminal() && !r.outlived(&rec):
		*v = recorded(&rec)
		r.final.Store(true)
		return nil
	}
	if !r.acked.Load() {
		if err := r.delivery.Ack(ctx); err != nil {
			return err
		}
	}
	return errDone
}
