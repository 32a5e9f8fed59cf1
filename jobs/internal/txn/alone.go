package txn

import (
	"context"
	"errors"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// runAlone makes one change in a transaction of its own, and calls e.after with its job in the
// same transaction. After the commit it calls Then. Do gets the locked job itself, or nil if no
// open job has the key. It tries again, until ctx ends, if the job has lost its key before it was
// locked. Returns ErrNotFound if a job selected by ID does not exist. Errors of c.Do or e.after
// roll everything back and are returned, as are the errors of Engine.Do.
//
// It tries again, with pauses, while another transaction holds the key or the job. With once it
// returns ErrHeld instead.
func (e *Engine) runAlone(ctx context.Context, c *Change, once bool) error {
	l := Locks{hasty: true, once: once}
	if c.Key != "" {
		_ = l.AddKey(c.Name, c.Key)
	}
	err := e.Do(ctx, &l, func(ctx context.Context, t *Step) error {
		id := c.ID
		if c.Key != "" {
			found, err := t.Tx.First(ctx, jobstore.OpenStates(), c.group())
			if err != nil {
				return err
			}
			if id = found[c.group()]; id == 0 {
				return c.Do(ctx, t, nil)
			}
		}
		j, err := t.job(ctx, id)
		if c.Key != "" && (errors.Is(err, jobstore.ErrNotFound) || err == nil && (j.State.Over() || j.Key != c.Key || j.Name != c.Name)) {
			return ErrLocks // the job no longer has the key
		}
		if err != nil {
			return err
		}
		if err := c.Do(ctx, t, j); err != nil {
			return err
		}
		return e.after(ctx, t, j)
	})
	if err == nil && c.Then != nil {
		c.Then()
	}
	return err
}

// OneOrBatch changes the job id by fn: as Batch does with one change if shares is true, else as
// One does. In a batch, fn must return ErrNeedsOwnTx if other jobs depend on the job. Returns the
// errors of One or Batch.
func (e *Engine) OneOrBatch(ctx context.Context, shares bool, id jobstore.ID, fn func(ctx context.Context, t *Step, j *jobstore.Row) error) error {
	if !shares {
		return e.One(ctx, id, fn)
	}
	return e.Batch(ctx, &Change{ID: id, Do: fn})
}
