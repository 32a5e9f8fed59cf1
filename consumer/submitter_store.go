package consumer

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/consumer/internal/workflow"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// A submitter waits for the result in the store that its own metadata name: the task's definition
// and options over its static configuration. The metadata of the consumer may select another store,
// or none. The consumer then also stores the end of the task, without its result, in the store
// where the submitter waits.

// submitterStore returns the store in which the submitter of a task waits, if the end of the task
// must be stored there as well. base (may be nil) and meta are the submitter's metadata, keeps the
// store with the result (may be nil). It returns nil if replyTo is "", if the submitter ignores the
// result or waits in keeps, or if its store is not configured.
func (c *Consumer) submitterStore(base, meta *task.Metadata, replyTo string, keeps resultstore.ResultStore) resultstore.ResultStore {
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

// submitterStore returns the store in which the submitter of the run's task waits, if that is not
// the task's result store, else nil.
func (r *run) submitterStore() resultstore.ResultStore {
	return r.queue.c.submitterStore(r.request.Base, &r.request.Meta, r.request.ReplyTo, r.store())
}

// saveForSubmitter stores the end of the task where its submitter waits, if the result is stored
// elsewhere. Otherwise it returns true at once. For a success the record says why the store has no
// result; for a failure it has the error.
//
// It blocks and repeats that for up to StoreRetry. It returns true also if the store refuses the
// record for good. Returns false if that failed: runStep has then given the task back, or
// failUnsendable has failed it.
func (r *run) saveForSubmitter(v verdict) bool {
	store := r.submitterStore()
	if store == nil {
		return true
	}
	rec, err := r.submitterRecord(v, r.ended)
	if err != nil {
		r.failUnsendable("end", err)
		return false
	}
	ctx, cancel := context.WithTimeout(r.queue.c.settle, r.queue.c.cfg.Tuning.StoreRetry)
	defer cancel()
	return r.runStep(ctx, "end for its submitter", func(ctx context.Context) error { return workflow.Accepted(store.Save(ctx, rec)) })
}

// submitterRecord returns the record that saveForSubmitter stores. Returns an error if it cannot be
// encoded.
func (r *run) submitterRecord(v verdict, ended time.Time) (resultstore.Record, error) {
	rec := r.record(v.kind.state(), v, ended)
	if v.kind == succeeded {
		rec.ContentType, rec.Result, rec.Error = "", nil, task.Remote(r.noResultError())
	}
	err := r.queue.c.codec.ProtectRecord(&rec, task.Opt[string]{})
	return rec, err
}

// noResultError returns the error that tells the submitter why its store has no result of the
// succeeded task. It wraps [task.ErrNoResult]. The reason is IgnoreResult, a store that is not
// configured, or the name of the other store.
func (r *run) noResultError() error {
	meta := r.request.Effective
	name := utf.Cut(meta.ResultStore.Or(""), 64)
	switch {
	case meta.IgnoreResult.Or(false):
		return fmt.Errorf("%w: the task succeeded, but the consumer keeps no results (IgnoreResult in its metadata)", task.ErrNoResult)
	case r.store() == nil:
		return fmt.Errorf("%w: the task succeeded, but the consumer's metadata name the store %q, which Config.Stores does not contain", task.ErrNoResult, name)
	}
	return fmt.Errorf("%w: the task succeeded, but the consumer keeps the result in the store %q", task.ErrNoResult, name)
}
