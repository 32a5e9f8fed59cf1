package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// A dead letter that somebody requeues begins a new life: what was counted against the task counts
// no more, and what was recorded of it is replaced. What follows a task carries its life on: the
// records of steps that were skipped because it failed are reopened before the steps are sent, and
// error tasks of a later life have ids of their own. See internal/wire/life.go for what travels.

// beginLife makes e the envelope of the life that m is of. The copies of m carry that life in their envelopes, so that it begins
// once. A sealed task keeps its expiry: it is what protects it from being repeated, and anybody can write the life outside the seal.
func beginLife(e *task.Envelope, m *broker.Message, sealed bool) {
	life := wire.Life(m)
	if life <= e.Life {
		return
	}
	e.Life, e.Copy = life, wire.LifeCopy(m)
	e.Retries, e.Parked, e.Crashes = 0, 0, 0
	never := task.Set(time.Time{}) // times of the submission, in whatever layer, are over
	e.Meta.NotBefore = never
	if !sealed {
		e.Meta.Expires = never
	}
}

// outlived reports whether rec is of a later life than this message: the task goes on, or has
// ended, elsewhere.
func (r *run) outlived(rec *resultstore.Record) bool { return rec.Life > r.request.Life }

// ofEarlierLife reports whether rec is the end of an earlier life of the task, which this one replaces.
// Older versions record no life; the generation tells it then.
func (r *run) ofEarlierLife(rec *resultstore.Record) bool {
	return rec.Life < r.request.Life && rec.Generation < wire.FirstGeneration(r.request.Life) &&
		(rec.State == task.StateFailed || rec.State == task.StateExpired)
}

// errReopened has the saving of a record repeated.
var errReopened = errors.New("swarmiji: the task's record was of an earlier life, and was reopened")

// reopenOwn replaces the end that an earlier life of the task has recorded, where Requeue did not.
func (r *run) reopenOwn(ctx context.Context, store resultstore.ResultStore) error {
	rec, err := r.protected(task.StateRequeued, verdict{}, time.Time{})
	if err != nil {
		return err
	}
	rec.Generation, rec.Deliveries = wire.FirstGeneration(r.request.Life), 0
	if err := store.Save(ctx, rec); !errors.Is(err, resultstore.ErrStale) { // somebody else has
		return err
	}
	return nil
}

// reopen replaces the failures that earlier lives recorded of what follows this task, and reports
// whether to go on. It comes before the task's own success is stored: a reader of that success must
// not take the old failures of later steps for the end.
func (r *run) reopen() bool {
	e := r.request.Envelope
	if e.Life == 0 || len(e.Then) == 0 {
		return true
	}
	ok := true
	wire.EachStep(e.Then, func(l *task.Link) bool {
		ok = settlement{r}.Save(l.ID, l.Name, e, &l.Meta, resultstore.Record{State: task.StateRequeued, Generation: wire.FirstGeneration(e.Life)})
		return ok
	})
	return ok
}
