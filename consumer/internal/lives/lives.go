// Package lives tells the lives of a task apart.
//
// A life of a task begins with its submission, and a new one each time its dead letter is requeued.
// A new life resets the counts of the task and replaces its recorded failure. internal/wire/life.go
// says how messages carry the life.
package lives

import (
	"context"
	"errors"

	"github.com/swarmiji/swarmiji/consumer/internal/workflow"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// Superseded reports whether rec belongs to a later life of the task than e. The task then
// continues or ended in another message.
func Superseded(rec *resultstore.Record, e *task.Envelope) bool { return rec.Life > e.Life }

// Earlier reports whether rec is a failure of an earlier life of the task, which the life of e
// replaces. Records of older versions have no life; their generation shows it.
func Earlier(rec *resultstore.Record, e *task.Envelope) bool {
	return rec.Life < e.Life && rec.Generation < wire.FirstGeneration(e.Life) &&
		(rec.State == task.StateFailed || rec.State == task.StateExpired)
}

// Reopen replaces the failure that an earlier life of the task has recorded by the state REQUEUED.
// It calls save once, with that record. It returns nil also if another process has done so, and
// other errors of save. It is needed where Requeue did not know the store of the record.
func Reopen(ctx context.Context, r *task.Request, save func(ctx context.Context, rec resultstore.Record) error) error {
	err := save(ctx, resultstore.Record{
		ID: r.ID, Name: r.Name, State: task.StateRequeued, Generation: wire.FirstGeneration(r.Life), Retries: r.Retries,
		NodeID: r.NodeID, ReplyTo: r.ReplyTo, Correlation: r.Correlation, Life: r.Life, TTL: r.Effective.ResultTTL.Or(0),
	})
	if errors.Is(err, resultstore.ErrStale) { // another process has replaced it
		return nil
	}
	return err
}

// ReopenSuccessors saves a record with the state REQUEUED for each task that follows that of e
// (Envelope.Then and its successors). It replaces failures that earlier lives have recorded for
// steps that they skipped. Steps without an id of their submission have no record: no future waits
// for them. In the first life, or if no task follows, it does nothing and returns true.
//
// A record is saved by by.Save, one after the other. A failed save is repeated for up to
// StoreRetry, and of a task that was acknowledged before its start without a time limit. A record
// that the store refuses for good, for example because it has a newer one, counts as saved.
//
// Returns true if all are saved. Returns false at the first one that is given up, and saves no
// further ones. The caller must then end the settlement: Save has already given this task back, or
// settled it as failed, or another attempt has it.
//
// Call it before the success of this task is stored. Otherwise a reader of the success could take
// an old failure of a later step for its end. It takes no lock.
func ReopenSuccessors(e *task.Envelope, by workflow.Run) bool {
	if e.Life == 0 || len(e.Then) == 0 {
		return true
	}
	ok := true
	wire.EachStep(e.Then, func(l *task.Link) bool {
		ok = by.Save(l.ID, l.Name, e, &l.Meta, resultstore.Record{State: task.StateRequeued, Generation: wire.FirstGeneration(e.Life)})
		return ok
	})
	return ok
}
