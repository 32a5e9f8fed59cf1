package runner

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/internal/guard"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/queue"
)

// source is the source of the jobs of a round.
type source interface {
	// Next waits until a job is claimed, and returns at most room jobs.
	Next(ctx context.Context, room int) ([]jobs.Handout, error)
	// Changed says that a job has ended here.
	Changed()
	// KeepLease keeps the lease of the source until ctx ends.
	KeepLease(ctx context.Context)
	// Close ends the source. Others may go on at once.
	Close(ctx context.Context)
}

// source returns the source of a round.
func (r *round) source() (source, error) {
	if r.c.Queue == nil {
		return asking{r}, nil
	}
	l, err := r.s.Lead(queue.LeaderConfig{
		Queue: *r.c.Queue, Node: r.c.NodeID, Lease: r.c.Lease, NoDeadlines: r.c.Submit != nil, Begin: r.begin,
		Report: func(err error) { r.r.warn("the queue "+r.c.Queue.Name, err) },
		Held:   func(j *jobs.Row, err error) { r.r.report(ProblemWindow, j, err) },
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

// asking is the source of jobs without a queue.
type asking struct{ r *round }

func (a asking) Next(ctx context.Context, room int) ([]jobs.Handout, error) {
	return a.r.s.Get(ctx, jobs.Request{Selector: jobs.Selector{Names: a.r.names}, Lease: a.r.c.Lease, Max: room, Wait: true})
}

func (asking) KeepLease(context.Context) {}
func (asking) Changed()                  {}
func (asking) Close(context.Context)     {}

// begin sets the fields of a job that its type decides, before the start of its attempt is saved.
// It runs in a transaction, and may run again. An error fails the attempt.
func (r *round) begin(j *jobs.Row) (err error) {
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

// keep runs KeepLease of the source. The returned function ends it, and lets other runners lead the
// queue.
func (r *round) keep() (stepDown func()) {
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.from.KeepLease(ctx)
	}()
	return func() {
		end()
		<-ended
		ctx, cancel := context.WithTimeout(context.Background(), lastGrace)
		defer cancel()
		r.from.Close(ctx)
	}
}

// purgeEvery is the time between purges of a runner.
const purgeEvery = time.Minute

// purge deletes expired jobs until ctx ends. Without any, it costs one read of an index.
func (r *round) purge(ctx context.Context) {
	for wake.Sleep(ctx, purgeEvery) {
		if _, err := r.s.Purge(ctx); err != nil && ctx.Err() == nil {
			r.r.warn("jobs that have expired are not deleted", err)
		}
	}
}

// mostRenewed is how many leases are renewed in one transaction.
const mostRenewed = 500

// renew renews the leases of jobs.
func (r *round) renew(_ context.Context, hs []*hold) (errs []error, asked time.Time, err error) {
	jobs := make([]*jobs.Row, len(hs))
	for i, h := range hs {
		jobs[i] = &h.Row
	}
	err = r.call(func(ctx context.Context) (err error) {
		errs, asked, err = r.s.RenewAll(ctx, jobs, r.c.Lease)
		return err
	})
	return errs, asked, err
}

// expire ends the handler of a job before its lease ends. A job with RetryAfter has no lease.
func (r *round) expire(h *hold) {
	if r.c.Submit == nil && h.State == jobs.Running {
		r.held.Expire(h, h.Asked)
	}
}
