package jobs

import (
	"context"
	"errors"
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/jobs/internal/txn"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tx"
)

// errNoTx refuses CreateTx for stores that are in no database of the caller.
var errNoTx = fmt.Errorf("%w: this store cannot create jobs in a transaction of the caller: use sqljobs on the database of the transaction", ErrUnsupported)

// CreateTx is [Service.Create] in a transaction of the caller, which packages tx/sqltx and tx/pgxtx
// convert. The job exists if and only if the caller commits. CreateTx neither commits nor rolls
// back. The job does not count as [Stats].Created, since the commit is not seen.
//
// Locks of the caller's transaction last until its end. So jobs that would lock other jobs are
// refused with [ErrUnsupported]:
//
//   - SequenceKey: while the transaction is open, no job of the sequence could start or end.
//   - Parent: no attempt of the parent could be settled.
//   - Unique: the existing job could not change.
//
// A Key or UniqueKey is locked until the transaction ends; other calls that create a job with it
// wait for that. CreateTx itself never waits for such a lock. It returns [ErrUnavailable] if
// another transaction holds it.
//
// Further errors are those of Create. [ErrUnsupported] also means that the store is not a
// [jobstore.Joiner], or that t belongs to another database. It also means an isolation level of
// PostgreSQL other than READ COMMITTED. After these errors, a [FieldError] and a [KeyTakenError],
// nothing was written, and t can continue and commit. An error of the database may have ended t.
func (s *Service) CreateTx(ctx context.Context, t tx.Tx, spec Spec) (Created, error) {
	return s.createTx(ctx, t, spec, false)
}

// createTx creates a job in the transaction t of the caller, as CreateTx does. With once it creates
// no job if a job with the Name and the Key of spec exists in any state. The result then has the id
// of that job, and Existed is true. Returns the errors of CreateTx.
func (s *Service) createTx(ctx context.Context, t tx.Tx, spec Spec, once bool) (Created, error) {
	store, ok := capability.As[jobstore.Joiner](s.c.Store)
	if !ok {
		return Created{}, errNoTx
	}
	specs := s.withDefaults([]Spec{spec})
	if err := specs[0].canJoin(); err != nil {
		return Created{}, err
	}
	draft, err := s.draft(&specs[0])
	if err != nil {
		return Created{}, err
	}
	var l txn.Locks
	_ = l.AddKeys(&draft, draft.Name) // nothing has begun yet, so the missing locks are not an error
	var done []Created
	err = store.JoinTx(ctx, t, []string{draft.Name}, func(ctx context.Context, tx jobstore.Tx) error {
		return txn.In(ctx, tx, &l, func(ctx context.Context, step *txn.Step) (err error) {
			if once {
				key := jobstore.Group{By: jobstore.ByKey, Name: draft.Name, Key: draft.Key}
				found, err := tx.First(ctx, nil, key)
				if id, exists := found[key]; err != nil || exists {
					done = []Created{{ID: id, Existed: true}}
					return err
				}
			}
			done, err = (&maker{Step: step, s: s}).make(ctx, specs, []Row{draft})
			return err
		})
	})
	if err != nil {
		if one, ok := errors.AsType[*specError](err); ok {
			err = one.err
		}
		return Created{}, err
	}
	return done[0], nil
}

// canJoin returns an error that wraps ErrUnsupported if the spec has a SequenceKey, a Parent or
// Unique: such a job would lock other jobs until the caller's transaction ends. Otherwise it
// returns nil.
func (spec *Spec) canJoin() error {
	var field string
	switch {
	case spec.SequenceKey != "":
		field = "a sequence key"
	case spec.Parent != 0:
		field = "a parent"
	case spec.Unique:
		field = "Unique"
	default:
		return nil
	}
	return fmt.Errorf("%w: a job with %s would lock other jobs until the caller's transaction ends: create it after the commit", ErrUnsupported, field)
}

// CreateForTaskTx is [Service.CreateForTasks] for one task, in a transaction of the caller as
// [Service.CreateTx]. A producer calls it (producer.SubmitTx). A sequence key is refused.
//
// Errors wrap [broker.ErrUnsupported], [broker.ErrUnavailable] or [task.ErrBadMetadata] beside the
// error of CreateTx. A [*task.TakenError] names the task that has the unique key.
func (s *Service) CreateForTaskTx(ctx context.Context, t tx.Tx, c task.Conditioned) error {
	k := conditionedJobs{s: s, tasks: []task.Conditioned{c}, specs: make([]Spec, 1), errs: make([]error, 1)}
	if err := k.spec(0); err != nil {
		return err
	}
	_, err := s.createTx(ctx, t, k.specs[0], c.Chosen)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrUnsupported):
		return fmt.Errorf("create the job of a task: %w: %w", broker.ErrUnsupported, err)
	case errors.Is(err, ErrUnavailable):
		return fmt.Errorf("create the job of a task: %w: %w", broker.ErrUnavailable, err)
	}
	return k.refusal(ctx, 0, err)
}
