package runner

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/internal/taskio"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// submitter submits the batches of claimed jobs until r.batches is closed. After each batch it
// wakes freeSlots. It runs in a goroutine.
func (r *session) submitter() {
	for b := range r.batches {
		r.submitAll(r.withoutEnd(b.holds))
		r.claimed.Add(-int64(b.bytes))
		r.sent.Notify()
	}
}

// withoutEnd returns the jobs of a batch whose tasks must be submitted. It checks, concurrently,
// the records of jobs that were claimed before in their current run: their task may exist already.
// It blocks until that is done.
//
// A job whose task has ended is ended by the record. For a task that waits for an answer, the lease
// is extended and a later sweep ends the job. Both are left out of the result, as are jobs whose
// record could not be read before the runner stopped.
func (r *session) withoutEnd(batch []*heldJob) []*heldJob {
	var again []*heldJob
	left := batch[:0:0]
	for _, h := range batch {
		if h.Token == h.Run { // every claim began a new run
			left = append(left, h)
		} else {
			again = append(again, h)
		}
	}
	ends := make([]end, len(again))
	var wg sync.WaitGroup
	for i, h := range again {
		wg.Go(func() { ends[i] = r.recorded(h, nil) })
	}
	wg.Wait()
	for i, h := range again {
		switch ends[i] {
		case unended:
			left = append(left, h)
		case awaits: // Submitted again, its handler would send its request twice.
			h.args = nil
			r.waiting.Go(func() { r.extendForTask(h, nil) })
		case ended, unsure, settledElsewhere:
		}
	}
	return left
}

// submission is a job whose task is submitted.
type submission struct {
	*heldJob
	call task.Call // call of the task; empty if a producer has stored the message
}

// submitAll submits the tasks of a batch, and blocks until each job waits for its task, or has
// failed, was postponed or released. It logs the first failure.
//
// While no task is confirmed, it repeats all of them with the same ids for the time of a lease,
// with the delays of Config.Backoff. Then, or as soon as some but not all are confirmed, refuse
// submits each remaining task once more, singly. A batch of one invalid task is not repeated first.
// If r.hard ends, it releases the remaining jobs without a change in the store.
func (r *session) submitAll(batch []*heldJob) {
	left := r.makeCalls(batch)
	began := time.Now()
	for attempt := 0; len(left) > 0; attempt++ {
		confirmed, pending, err := r.submit(left)
		var again []submission
		for i, p := range left {
			if confirmed[i] {
				r.submitted(p.heldJob, pending[i])
				continue
			}
			again = append(again, p)
		}
		someConfirmed := len(again) < len(left)
		left = again
		switch {
		case len(left) == 0:
			return
		// The tasks may have been submitted. Another runner continues when the leases end.
		case r.hard.Err() != nil:
			for _, p := range left {
				r.release(p.heldJob)
			}
			return
		case someConfirmed || time.Since(began) > r.c.Lease || len(left) == 1 && hopeless(err):
			r.refuse(left)
			return
		case attempt == 0:
			r.r.warn("cannot submit tasks of jobs; trying again", err)
		}
		wake.Sleep(r.hard, r.c.Backoff.Interval(attempt))
	}
}

// makeCalls returns the submissions of a batch, and drops the data of the jobs. It leaves out lost
// jobs. It fails jobs that were refused at the start of their attempt, or whose data do not fit
// their task. It postpones jobs whose name is not dispatched here.
func (r *session) makeCalls(batch []*heldJob) []submission {
	made := make([]submission, 0, len(batch))
	for _, h := range batch {
		switch {
		case h.Lost():
			continue
		case h.Refused != nil:
			r.fail(h, h.Refused, nil)
			continue
		case h.prepared:
			made = append(made, submission{heldJob: h})
			continue
		case r.r.definition(h.Name) == nil:
			r.postponeUnknown(h)
			continue
		}
		c, err := r.r.call(h)
		h.args = nil
		if err != nil {
			r.fail(h, err, nil)
			continue
		}
		made = append(made, submission{h, c})
	}
	return made
}

// submit tries to submit each task once: the calls together, and each stored message singly.
// confirmed and pending are in the order of submissions. err is not nil if a task is not confirmed;
// others may be confirmed nevertheless. It gives up after the duration of a lease, or when r.hard
// ends.
func (r *session) submit(submissions []submission) (confirmed []bool, pending []task.Pending, err error) {
	ctx, cancel := context.WithTimeout(r.hard, r.c.Lease)
	defer cancel()
	confirmed, pending = make([]bool, len(submissions)), make([]task.Pending, len(submissions))
	var calls []task.Call
	var places, ready []int
	for i, p := range submissions {
		if p.call.Name == "" {
			ready = append(ready, i)
			continue
		}
		calls, places = append(calls, p.call), append(places, i)
	}
	err = r.submitReady(ctx, submissions, ready, confirmed, pending)
	if len(calls) == 0 {
		return confirmed, pending, err
	}
	done, all, e := taskio.Submit(ctx, r.c.Submit, calls, mostCalls)
	for k, i := range places {
		confirmed[i], pending[i] = done[k], all[k]
	}
	return confirmed, pending, errors.Join(err, e)
}

// hopeless reports whether err means that submitting the same task again cannot succeed.
func hopeless(err error) bool {
	return errors.Is(err, task.ErrBadArgs) || errors.Is(err, task.ErrBadMetadata) || errors.Is(err, task.ErrBadName)
}

// refuse submits each task singly and once, to find the faulty ones. A job whose task is confirmed
// now waits for it. If repetition cannot help (hopeless), the job becomes FAILED. Otherwise the job
// is postponed in the same run, since the task may have been submitted. If r.hard has ended, the
// job is only released.
func (r *session) refuse(submissions []submission) {
	for i, p := range submissions {
		confirmed, pending, err := r.submit(submissions[i : i+1])
		switch {
		case confirmed[0]:
			r.submitted(p.heldJob, pending[0])
		case r.hard.Err() != nil:
			r.release(p.heldJob)
		case hopeless(err):
			r.fail(p.heldJob, err, nil)
		default:
			r.postpone(p.heldJob, err)
		}
	}
}

// postpone reports ProblemRefused for a job with the error why, and releases the job (conclude). It
// first extends the lease to Config.PutOff, so that the job is claimed again after that time in the
// same run. It counts the job as Stats.PutOff and blocks until the store replies.
func (r *session) postpone(h *heldJob, why error) {
	r.r.report(ProblemRefused, &h.Row, why)
	r.conclude(h, &r.r.stats.putOff, func(ctx context.Context) error { return r.s.Renew(ctx, h.ID, h.Token, r.c.PutOff) })
}

// submitted counts a confirmed task, and starts a goroutine that waits for its end and then ends
// the job. It does not block.
func (r *session) submitted(h *heldJob, p task.Pending) {
	r.r.stats.submitted.Add(1)
	r.waiting.Go(func() {
		if r.extendForTask(h, p) {
			r.await(h, p)
		}
	})
}

// extendForTask extends the lease of a job to Config.Timeout from now, the time that its task may
// take, and stops the renewals. It blocks until the store replies, and returns true if that was
// stored. Otherwise it releases the job and returns false.
//
// Then the run is over, another worker has the job (which is counted and reported as lost), or the
// store has failed (which is logged). p may be nil.
func (r *session) extendForTask(h *heldJob, p task.Pending) bool {
	h.leased.Store(false)
	err := r.callUntilReply(func(ctx context.Context) error { return r.s.Renew(ctx, h.ID, h.Token, r.c.Timeout) })
	switch {
	case err == nil:
		return true
	// a check of the records was faster, here or in another process
	case jobstore.RunOver(err) && (h.Settling() || over(p)):
	case jobstore.RunOver(err):
		r.lose(h, err)
	default:
		r.r.warn("cannot extend the lease of a dispatched job", err)
	}
	r.release(h)
	return false
}

// over reports whether a task is known to have ended. It is false for a nil p. It does not block.
func over(p task.Pending) bool {
	if p == nil {
		return false
	}
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}

// await blocks until a task ends, and then ends its job by the record of the task (recorded). If
// the record contains no end, the job stays held, and a later sweep ends it. It also returns when
// the job is released, and when the runner stops; it then releases the job. It does nothing for a
// nil p.
func (r *session) await(h *heldJob, p task.Pending) {
	if p == nil {
		return
	}
	select {
	case <-p.Done():
		r.recorded(h, p)
	case <-h.off:
	case <-r.leave:
		r.release(h)
	}
}
