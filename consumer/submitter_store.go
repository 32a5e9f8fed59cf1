package consumer

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/consumer/internal/stores"
	"github.com/swarmiji/swarmiji/consumer/internal/workflow"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// submitterStore returns the store in which the submitter of the run's task waits, if that is not
// the task's result store, else nil.
func (r *run) submitterStore() resultstore.ResultStore {
	return r.queue.c.stores.OfSubmitter(r.request.Base, &r.request.Meta, r.request.ReplyTo, r.store())
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
	return settlement{r}.Step("end for its submitter", func(ctx context.Context) error { return workflow.Accepted(store.Save(ctx, rec)) })
}

// submitterRecord returns the record that saveForSubmitter stores. Returns an error if it cannot be
// encoded.
func (r *run) submitterRecord(v verdict, ended time.Time) (resultstore.Record, error) {
	rec := r.record(v.kind.state(), v, ended)
	if v.kind == succeeded {
		rec.ContentType, rec.Result, rec.Error = "", nil, task.Remote(stores.NoResult(r.request.Effective, r.store()))
	}
	err := r.queue.c.codec.ProtectRecord(&rec, task.Opt[string]{})
	return rec, err
}
