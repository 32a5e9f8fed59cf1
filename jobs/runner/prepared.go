package runner

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/task"
)

// prepares reports whether this runner submits the tasks whose messages producers have stored in
// jobs (tasks with conditions). That requires Config.Queue and a Submit that is a
// jobs.PreparedSubmitter.
func (r *Runner) prepares() bool {
	if r.c.Submit == nil || r.c.Queue == nil {
		return false
	}
	_, ok := r.c.Submit.(jobs.PreparedSubmitter)
	return ok
}

// taskOf returns the id of the task of a job's current run. prepared reports that a producer has
// stored the message of that task in the job, and this runner submits such messages.
func (r *Runner) taskOf(j *jobs.Row) (id task.ID, prepared bool) {
	if id, ok := jobs.TaskOf(&j.Job); ok && r.prepares() {
		return id, true
	}
	return jobs.TaskID(*j), false
}

// submitReady submits the stored messages of the submissions with the indexes in ready, several at
// a time, and blocks until all are done. It sets confirmed and pending at those indexes.
//
// Returns the error of the first submission, in their order, that is not confirmed. Each is sent
// once. After an error of reading messages, the submissions that remain are not tried.
func (r *session) submitReady(ctx context.Context, submissions []submission, ready []int, confirmed []bool, pending []task.Pending) error {
	if len(ready) == 0 {
		return nil
	}
	submit := r.c.Submit.(jobs.PreparedSubmitter) //nolint:forcetypeassert // prepared has looked
	errs := make([]error, len(submissions))
	free := make(chan struct{}, mostCalls)
	for part := range slices.Chunk(ready, messagePage) {
		ids := make([]jobs.ID, len(part))
		for n, i := range part {
			ids[n] = submissions[i].ID
		}
		messages, err := r.messages(ids)
		if err != nil {
			return err
		}
		var wg sync.WaitGroup
		for _, i := range part {
			free <- struct{}{}
			wg.Go(func() {
				pending[i], errs[i] = submit.SubmitPrepared(ctx, messages[submissions[i].ID])
				confirmed[i] = errs[i] == nil
				<-free
			})
		}
		wg.Wait()
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// messagePage is the number of messages that are read at a time. A message may have megabytes.
const messagePage = 4 * mostCalls

// messages returns the stored task messages of these jobs, by job id. Jobs without a message are
// left out. It waits for a free slot among the calls of the session (call) and gives up after the
// duration of a lease. Returns errors of the store.
func (r *session) messages(ids []jobs.ID) (found map[jobs.ID][]byte, err error) {
	err = r.call(func(ctx context.Context) error {
		found, err = r.s.Messages(ctx, ids...)
		return err
	})
	return found, err
}

// revokeWithdrawn revokes the tasks of CANCELLED jobs of the queue that have a stored task, since
// their submitters wait for a result. done contains the jobs that were handled before. Returns the
// jobs to pass as done to the next call.
//
// A failed revocation is logged and tried again by the next call. A message that the submitter
// refuses with task.ErrBadArgs counts as handled. If the jobs cannot be read or ctx ends, it stops
// early and returns done. Returns nil if the runner has no queue or cannot revoke.
func (r *session) revokeWithdrawn(ctx context.Context, done map[jobs.ID]bool) map[jobs.ID]bool {
	submit, ok := r.c.Submit.(jobs.PreparedSubmitter)
	if !ok || r.c.Queue == nil {
		return nil
	}
	now := map[jobs.ID]bool{}
	q := jobs.Filter{Queue: r.c.Queue.Name, States: []jobs.State{jobs.Cancelled}, Limit: messagePage}
	for ctx.Err() == nil {
		var found []jobs.Job
		err := r.call(func(ctx context.Context) (err error) {
			found, err = r.s.List(ctx, q)
			return err
		})
		if err != nil {
			return done
		}
		var ids []jobs.ID
		for i := range found {
			q.After = found[i].ID
			if _, prepared := jobs.TaskOf(&found[i]); prepared {
				ids = append(ids, found[i].ID)
			}
		}
		fresh := slices.DeleteFunc(slices.Clone(ids), func(id jobs.ID) bool { return done[id] })
		messages, err := r.messages(fresh)
		if err != nil {
			return done
		}
		for _, id := range ids {
			err := error(nil)
			if !done[id] {
				err = r.call(func(ctx context.Context) error { return submit.RevokePrepared(ctx, messages[id]) })
			}
			if err == nil || errors.Is(err, task.ErrBadArgs) { // otherwise the next sweep tries again
				now[id] = true
				continue
			}
			r.r.warn("cannot revoke the task of a withdrawn job; the next sweep tries again", err)
		}
		if len(found) < q.Limit {
			return now
		}
	}
	return done
}
