package jobs

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/internal/errand"
	"github.com/swarmiji/swarmiji/internal/guard"
)

// source is where the jobs of a round come from.
type source interface {
	// next waits until there is something to do, and hands it out: at most room jobs.
	next(ctx context.Context, room int) ([]Handout, error)
	// changed says that something has ended here.
	changed()
	// close ends it: others may go on at once.
	close(ctx context.Context)
}

// source returns that of a round.
func (r *round) source() source {
	if r.c.Queue == nil {
		return asking{r}
	}
	l := newLead(r.s, *r.c.Queue, r.c.NodeID, r.c.Lease, r.begin, func(err error) { r.r.warn("the queue "+r.c.Queue.Name, err) })
	l.held = func(j *Job, err error) { r.r.report(ProblemWindow, j, err) }
	l.entrusts = r.c.Submit != nil
	return l
}

// asking is a source of jobs that are in no queue.
type asking struct{ r *round }

func (a asking) next(ctx context.Context, room int) ([]Handout, error) {
	return a.r.s.Get(ctx, Request{Selector: Selector{Names: a.r.names}, Lease: a.r.c.Lease, Max: room, Wait: true})
}

func (asking) changed()              {}
func (asking) close(context.Context) {}

// begin sets what the type of a job says of an attempt that is to begin, before that is written. It runs in a transaction, and may run again. An error is that
// of the attempt.
func (r *round) begin(j *Job) (err error) {
	handler, _, ok := r.r.handlers.Lookup(j.Name)
	if !ok {
		return nil
	}
	a, ok := handler.(*dialog)
	if !ok {
		return nil
	}
	defer guard.Recover(&err)
	key, err := a.key(j.Data)
	if err != nil {
		return err
	}
	j.Key, j.Respond = key, a.response != nil
	return nil
}

// stepDown lets others have the queue.
func (r *round) stepDown() {
	ctx, cancel := context.WithTimeout(context.Background(), lastGrace)
	defer cancel()
	r.from.close(ctx)
}

// purgeEvery is how often a runner deletes the jobs that have been kept for long enough.
const purgeEvery = time.Minute

// purge deletes what has expired, until ctx ends. Where there is nothing it costs one look at an index.
func (r *round) purge(ctx context.Context) {
	for errand.Pause(ctx, purgeEvery) {
		if _, err := r.s.Purge(ctx); err != nil && ctx.Err() == nil {
			r.r.warn("jobs that have expired are not deleted", err)
		}
	}
}

// mostRenewed is how many leases are renewed in one transaction.
const mostRenewed = 500

// renew renews the leases of jobs.
func (r *round) renew(_ context.Context, hs []*hold) (errs []error, asked time.Time, err error) {
	jobs := make([]*Job, len(hs))
	for i, h := range hs {
		jobs[i] = &h.Job
	}
	err = r.call(func(ctx context.Context) (err error) {
		errs, asked, err = r.s.renewAll(ctx, jobs, r.c.Lease)
		return err
	})
	return errs, asked, err
}

// expire has the handler of a job end before the lease does. A job with RetryAfter has no lease.
func (r *round) expire(h *hold) {
	if r.c.Submit == nil && h.State == Running {
		r.held.Expire(h, h.asked)
	}
}
