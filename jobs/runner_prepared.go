package jobs

import (
	"context"
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
func (r *Runner) taskOf(j *Job) (id task.ID, prepared bool) {
	if id, ok := TaskOf(j); ok && r.prepares() {
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
