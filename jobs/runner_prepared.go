package jobs

import (
	"context"
	"errors"
	"sync"

	"github.com/swarmiji/swarmiji/task"
)

// prepares reports whether tasks that a producer has written are dispatched.
func (r *Runner) prepares() bool {
	if r.c.Submit == nil || r.c.Queue == nil {
		return false
	}
	_, ok := r.c.Submit.(PreparedSubmitter)
	return ok
}

// taskOf returns the id of the task that a job's run is, and whether that is one which a producer has written.
func (r *Runner) taskOf(j *Row) (id task.ID, prepared bool) {
	if id, ok := TaskOf(&j.Job); ok && r.prepares() {
		return id, true
	}
	return TaskID(*j), false
}

// submitReady submits what is prepared, several at a time, and returns why one of those was not that are not confirmed.
func (r *round) submitReady(ctx context.Context, parcels []parcel, ready []int, confirmed []bool, pending []task.Pending) error {
	if len(ready) == 0 {
		return nil
	}
	submit := r.c.Submit.(PreparedSubmitter) //nolint:forcetypeassert // prepared has looked
	errs := make([]error, len(parcels))
	free := make(chan struct{}, mostCalls)
	var wg sync.WaitGroup
	for _, i := range ready {
		free <- struct{}{}
		wg.Go(func() {
			pending[i], errs[i] = submit.SubmitPrepared(ctx, parcels[i].Data)
			confirmed[i] = errs[i] == nil
			<-free
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// revokeWithdrawn ends the tasks of jobs of the queue that were withdrawn: nobody will run them, and their submitters wait. done are the jobs of which that is known; it
// returns those that are to be known the next time.
func (r *round) revokeWithdrawn(ctx context.Context, done map[ID]bool) map[ID]bool {
	submit, ok := r.c.Submit.(PreparedSubmitter)
	if !ok || r.c.Queue == nil {
		return nil
	}
	now := map[ID]bool{}
	q := Query{Queue: r.c.Queue.Name, States: []State{Cancelled}, Limit: sweepPage}
	for ctx.Err() == nil {
		var page []Row
		err := r.call(func(ctx context.Context) (err error) {
			page, err = r.s.Rows(ctx, q)
			return err
		})
		if err != nil {
			return done
		}
		for i := range page {
			j := &page[i]
			q.After = j.ID
			if _, prepared := TaskOf(&j.Job); !prepared {
				continue
			}
			err := error(nil)
			if !done[j.ID] {
				err = r.call(func(ctx context.Context) error { return submit.RevokePrepared(ctx, j.Data) })
			}
			if err == nil || errors.Is(err, task.ErrBadArgs) { // else it is tried again
				now[j.ID] = true
				continue
			}
			r.r.warn("the task of a job that was withdrawn is not revoked", err)
		}
		if len(page) < sweepPage {
			return now
		}
	}
	return done
}
