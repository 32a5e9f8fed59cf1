package consumer

import (
	"context"
	"errors"
	"fmt"

	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// A submitter knows its own layers of metadata: the task's definition and options over its static
// configuration. It waits in the store that they name. The consumer's layers may put the result
// into another store, or keep none. The submitter is then told how the task ended, by a record
// without a result in the store where it waits.

// awaitedIn returns the store in which the submitter of a task waits in vain: not the one that
// keeps its result, which may be nil. base and meta are the submitter's layers. nil: nobody waits
// there.
func (c *Consumer) awaitedIn(base, meta *task.Metadata, replyTo string, keeps resultstore.ResultStore) resultstore.ResultStore {
	if replyTo == "" {
		return nil
	}
	ignore, name := meta.IgnoreResult, meta.ResultStore
	if base != nil {
		if !ignore.IsSet() {
			ignore = base.IgnoreResult
		}
		if !name.IsSet() {
			name = base.ResultStore
		}
	}
	if ignore.Or(false) {
		return nil
	}
	store := c.cfg.Results
	if n := name.Or(""); n != "" {
		store = c.cfg.Stores[n]
	}
	if store == nil || store == keeps {
		return nil
	}
	return store
}

// awaitedElsewhere is awaitedIn for the run's task.
func (r *run) awaitedElsewhere() resultstore.ResultStore {
	return r.queue.c.awaitedIn(r.request.Base, &r.request.Meta, r.request.ReplyTo, r.store())
}

// tellSubmitter saves the end of the task where its submitter waits, if the result is not kept
// there, and reports whether to go on.
func (r *run) tellSubmitter(v verdict) bool {
	store := r.awaitedElsewhere()
	if store == nil {
		return true
	}
	rec := r.record(v.kind.state(), v, r.ended)
	if v.kind == succeeded {
		rec.ContentType, rec.Result, rec.Error = "", nil, task.Remote(r.unkept())
	}
	if err := r.queue.c.codec.ProtectRecord(&rec, task.Opt[string]{}); err != nil {
		r.giveUp("end", err)
		return false
	}
	ctx, cancel := context.WithTimeout(r.queue.c.settle, r.queue.c.cfg.Tuning.StoreRetry)
	defer cancel()
	return r.persist(ctx, "end for its submitter", func(ctx context.Context) error { return saveLate(ctx, store, rec) })
}

// saveLate saves a record. It is no error if the store has a newer one, cannot take it, or its
// submitter is gone.
func saveLate(ctx context.Context, store resultstore.ResultStore, rec resultstore.Record) error {
	err := store.Save(ctx, rec)
	if errors.Is(err, resultstore.ErrStale) || errors.Is(err, resultstore.ErrUnreachable) || errors.Is(err, resultstore.ErrMalformed) {
		return nil
	}
	return err
}

// unkept says why the result is not where the submitter waits.
func (r *run) unkept() error {
	meta := r.request.Effective
	name := utf.Cut(meta.ResultStore.Or(""), 64)
	switch {
	case meta.IgnoreResult.Or(false):
		return fmt.Errorf("%w: it has succeeded, and the consumer keeps no results (IgnoreResult in its metadata)", task.ErrNoResult)
	case r.store() == nil:
		return fmt.Errorf("%w: it has succeeded, and the consumer's metadata name the store %q, which is not configured", task.ErrNoResult, name)
	}
	return fmt.Errorf("%w: it has succeeded, and the consumer keeps the result in the store %q", task.ErrNoResult, name)
}
