package consumer

import (
	"context"
	"errors"
	"log/slog"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// store returns where the task's result goes; nil for nowhere.
func (r *run) store() resultstore.ResultStore {
	c := r.queue.c
	meta := r.request.Effective
	if meta.IgnoreResult.Or(false) {
		return nil
	}
	if name := meta.ResultStore.Or(""); name != "" {
		if s, ok := c.cfg.Stores[name]; ok {
			return s
		}
		c.warnOnce("store "+name, "results of tasks that name this store are dropped: it is not configured",
			slog.String("store", task.Text(name, 64)))
		return nil
	}
	if c.cfg.Results == nil && r.request.ReplyTo != "" {
		c.warnOnce("results", "results are dropped although they are waited for: no result store is configured")
	}
	return c.cfg.Results
}

// save stores the task's record, if one is wanted, and reports whether to go on.
func (r *run) save(ctx context.Context, state task.State, v verdict) bool {
	store := r.store()
	if store == nil || !state.Terminal() && resultstore.RepliesOnly(store) {
		return true
	}
	req := &r.request
	rec := resultstore.Record{
		ID: req.ID, Name: req.Name, State: state, Generation: req.Generation, Deliveries: req.Deliveries, Retries: req.Retries,
		ContentType: v.contentType, Result: v.result, Error: task.Remote(v.err), StartedAt: req.StartedAt, FinishedAt: r.ended,
		NodeID: req.NodeID, ReplyTo: req.ReplyTo, Correlation: req.Correlation, TTL: req.Effective.ResultTTL.Or(0),
	}
	return r.queue.persist(ctx, r.delivery, "result", func(ctx context.Context) error {
		err := store.Save(ctx, rec)
		switch {
		case errors.Is(err, resultstore.ErrStale): // another run of the task came first: its outcome counts, this one ends here
			r.queue.c.cfg.Metrics.Rejected.Inc(1)
			if r.acked {
				return broker.ErrLeaseLost
			}
			if err := r.delivery.Ack(ctx); err != nil {
				return err
			}
			return broker.ErrSettled
		case errors.Is(err, resultstore.ErrUnreachable), errors.Is(err, resultstore.ErrMalformed): // nobody will ever read it
			r.queue.c.cfg.Metrics.Rejected.Inc(1)
			return nil
		case errors.Is(err, resultstore.ErrTooLarge) && rec.Result != nil:
			rec.State, rec.Result, rec.ContentType = task.StateFailed, nil, ""
			rec.Error = task.Remote(errors.Join(task.ErrBadResult, err))
			return store.Save(ctx, rec)
		}
		return err
	})
}
