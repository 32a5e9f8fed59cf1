package consumer

import (
	"errors"

	"github.com/swarmiji/swarmiji/consumer/internal/workflow"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// Successors carry the life of their parent (package lives). Records of steps that were skipped
// because the task failed are reopened before the steps are sent. Error tasks of a later life have
// ids of their own.

// errReopened makes the caller repeat the save of a record.
var errReopened = errors.New("swarmiji: the task's record was of an earlier life and was reopened")

// reopenSuccessors saves a record with the state REQUEUED for each task that follows this one
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
func (r *run) reopenSuccessors(by workflow.Run) bool {
	e := r.request.Envelope
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
