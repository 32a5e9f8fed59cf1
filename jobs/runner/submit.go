package runner

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/internal/errand"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// submitter submits claimed jobs.
func (r *round) submitter() {
	for b := range r.batches {
		r.submitAll(r.unknown(b.holds))
		r.claimed.Add(-int64(b.bytes))
		r.sent.Notify()
	}
}

// unknown returns the jobs of a batch whose end is unknown. A job that was claimed before in this
// run may have ended.
func (r *round) unknown(batch []*hold) []*hold {
	var again []*hold
	left := batch[:0:0]
	for _, h := range batch {
		if h.Token == h.Run { // each of its claims was the first of a run
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
		case awaits: // submitted again, its handler would send its request twice
			h.args = nil
			r.waiting.Go(func() { r.entrust(h, nil) })
		case ended, unsure, theirs:
		}
	}
	return left
}

// parcel is a job on its way to a broker.
type parcel struct {
	*hold
	call task.Call // unless a producer has written the task already
}

// submitAll submits a batch. A task that was not confirmed is submitted again with the same id, for
// the time of a lease. Then its job is postponed. If others of its batch were confirmed, the task
// itself is at fault.
func (r *round) submitAll(batch []*hold) {
	left := r.pack(batch)
	began := time.Now()
	for attempt := 0; len(left) > 0; attempt++ {
		confirmed, pending, err := r.submit(left)
		var again []parcel
		for i, p := range left {
			if confirmed[i] {
				r.submitted(p.hold, pending[i])
				continue
			}
			again = append(again, p)
		}
		through := len(again) < len(left)
		left = again
		switch {
		case len(left) == 0:
			return
		// they may have been submitted: another runner goes on when their leases end
		case r.hard.Err() != nil:
			for _, p := range left {
				r.release(p.hold)
			}
			return
		case through || time.Since(began) > r.c.Lease || len(left) == 1 && hopeless(err):
			r.refuse(left)
			return
		case attempt == 0:
			r.r.warn("nothing can be submitted", err)
		}
		wake.Sleep(r.hard, r.c.Backoff.Interval(attempt))
	}
}

// pack makes the calls of a batch, and drops the data. Jobs without a possible call fail. Jobs
// without a definition here are postponed.
func (r *round) pack(batch []*hold) []parcel {
	packed := make([]parcel, 0, len(batch))
	for _, h := range batch {
		switch {
		case h.Lost():
			continue
		case h.Refused != nil:
			r.fail(h, h.Refused, nil)
			continue
		case h.prepared:
			packed = append(packed, parcel{hold: h})
			continue
		case r.r.definition(h.Name) == nil:
			r.strange(h)
			continue
		}
		c, err := r.r.call(h)
		h.args = nil
		if err != nil {
			r.fail(h, err, nil)
			continue
		}
		packed = append(packed, parcel{h, c})
	}
	return packed
}

// submit submits calls together, and each prepared task by itself.
func (r *round) submit(parcels []parcel) (confirmed []bool, pending []task.Pending, err error) {
	ctx, cancel := context.WithTimeout(r.hard, r.c.Lease)
	defer cancel()
	confirmed, pending = make([]bool, len(parcels)), make([]task.Pending, len(parcels))
	var calls []task.Call
	var places, ready []int
	for i, p := range parcels {
		if p.call.Name == "" {
			ready = append(ready, i)
			continue
		}
		calls, places = append(calls, p.call), append(places, i)
	}
	err = r.submitReady(ctx, parcels, ready, confirmed, pending)
	if len(calls) == 0 {
		return confirmed, pending, err
	}
	done, all, e := errand.Submit(ctx, r.c.Submit, calls, mostCalls)
	for k, i := range places {
		confirmed[i], pending[i] = done[k], all[k]
	}
	return confirmed, pending, errors.Join(err, e)
}

// hopeless reports whether no repetition can help a refused task.
func hopeless(err error) bool {
	return errors.Is(err, task.ErrBadArgs) || errors.Is(err, task.ErrBadMetadata) || errors.Is(err, task.ErrBadName)
}

// refuse handles jobs that could not be submitted. Each is tried by itself, to find the faulty one.
// That one fails if repetition cannot help. Otherwise it is tried again later, in the same run,
// since the task may have been submitted.
func (r *round) refuse(parcels []parcel) {
	for i, p := range parcels {
		confirmed, pending, err := r.submit(parcels[i : i+1])
		switch {
		case confirmed[0]:
			r.submitted(p.hold, pending[0])
		case r.hard.Err() != nil:
			r.release(p.hold)
		case hopeless(err):
			r.fail(p.hold, err, nil)
		default:
			r.putOff(p.hold, err)
		}
	}
}

func (r *round) putOff(h *hold, why error) {
	r.r.report(ProblemRefused, &h.Row, why)
	r.conclude(h, &r.r.stats.putOff, func(ctx context.Context) error { return r.s.Renew(ctx, h.ID, h.Token, r.c.PutOff) })
}

// submitted waits for the end of the task of a job.
func (r *round) submitted(h *hold, p task.Pending) {
	r.r.stats.submitted.Add(1)
	r.waiting.Go(func() {
		if r.entrust(h, p) {
			r.await(h, p)
		}
	})
}

// entrust extends the lease of a job to the time that its task may take.
func (r *round) entrust(h *hold, p task.Pending) bool {
	h.leased.Store(false)
	err := r.persist(func(ctx context.Context) error { return r.s.Renew(ctx, h.ID, h.Token, r.c.Timeout) })
	switch {
	case err == nil:
		return true
	// a check of the records was quicker, here or elsewhere
	case jobstore.RunOver(err) && (h.Settling() || over(p)):
	case jobstore.RunOver(err):
		r.lose(h, err)
	default:
		r.r.warn("a lease is not renewed", err)
	}
	r.release(h)
	return false
}

// over reports whether a task is known to have ended.
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

// await waits for the end of a task, and finishes its job by the record. Without a record a later
// sweep may find the end.
func (r *round) await(h *hold, p task.Pending) {
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
