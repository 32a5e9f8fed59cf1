// Package lives tells the lives of a task apart.
//
// A life of a task begins with its submission, and a new one each time its dead letter is requeued.
// A new life resets the counts of the task and replaces its recorded failure. internal/wire/life.go
// says how messages carry the life.
package lives

import (
	"context"
	"errors"

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
