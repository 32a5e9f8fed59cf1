package intx

import (
	"context"
	"errors"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/consumer/internal/workflow"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tx"
)

// Steps is a [workflow.Run] whose steps are writes of one transaction. A step is not repeated.
type Steps struct {
	workflow.Run // logs
	W            *Writer
	// Do calls do.
	Do func(do func(context.Context) error) error
	// Record returns the complete record of a task that does not run now, with its store. nil:
	// there is nothing to save.
	Record func(id task.ID, name string, from *task.Envelope, meta *task.Metadata, rec resultstore.Record) (resultstore.ResultStore, resultstore.Record, error)
	Err    error // of the first step that failed
}

// Step implements [workflow.Run]: it calls do once. It calls do again if the store refuses a result
// as too large: the sender then stores a failure instead. Returns false after an error, and keeps
// the first one in s.Err.
func (s *Steps) Step(_ string, do func(context.Context) error) bool {
	err := s.Do(do)
	if errors.Is(err, resultstore.ErrTooLarge) {
		err = s.Do(do)
	}
	if s.Err == nil {
		s.Err = err
	}
	return err == nil
}

// Save implements [workflow.Run]: it stores the record in the transaction. It returns true also if
// there is nothing to store or the store refuses the record for good. Otherwise its result and
// s.Err are those of Step.
func (s *Steps) Save(id task.ID, name string, from *task.Envelope, meta *task.Metadata, rec resultstore.Record) bool {
	store, rec, err := s.Record(id, name, from, meta, rec)
	return store == nil || s.Step("", func(ctx context.Context) error {
		if err != nil {
			return err
		}
		return workflow.Accepted(s.W.Save(ctx, store, rec))
	})
}

// Prepare makes the tables of the stores if b is in a SQL database. The first SettleTx could not
// make them on SQLite, where the transaction of the handler holds the write lock. It asks each
// store once, for at most limit. Errors are ignored: SettleTx returns them.
func Prepare(ctx context.Context, b broker.Broker, limit time.Duration, stores ...resultstore.ResultStore) {
	if _, ok := capability.As[tx.Checker](b); !ok {
		return
	}
	for _, s := range stores {
		if _, ok := capability.As[resultstore.TxSaver](s); ok {
			ctx, cancel := context.WithTimeout(ctx, limit)
			_, _ = s.Load(ctx, "none")
			cancel()
		}
	}
}
