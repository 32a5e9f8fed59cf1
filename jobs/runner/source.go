package runner

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/internal/guard"
	"github.com/swarmiji/swarmiji/internal/held"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/jobs/queue"
)

// source provides the jobs of a session: a queue.Leader with Config.Queue, else a getSource.
type source interface {
	// Next claims at least one and at most slots jobs. It blocks until a job is due or ctx ends.
	Next(ctx context.Context, slots int) ([]jobs.Handout, error)
	// Changed tells the source that a job has ended in this process.
	Changed()
	// KeepLease renews the lease of the source until ctx ends. It blocks, unless the source has no
	// lease.
	KeepLease(ctx context.Context)
	// Close releases the source, so that another runner can use it at once.
	Close(ctx context.Context)
}

// newSource returns a leader of the configured queue, whose problems are logged, and reported if
// they concern a job. Attempts have no deadline if jobs are dispatched. Without Config.Queue it
// returns a source that calls Service.Get. Returns the error of NewLeader.
func (r *session) newSource() (source, error) {
	if r.c.Queue == nil {
		return getSource{r}, nil
	}
	l, err := r.s.NewLeader(queue.LeaderConfig{
		Queue: *r.c.Queue, Node: r.c.NodeID, Lease: r.c.Lease, NoDeadlines: r.c.Submit != nil, Begin: r.begin,
		Report: func(err error) { r.r.warn("the queue "+r.c.Queue.Name, err) },
		Held:   func(j *jobs.Row, err error) { r.r.report(ProblemWindow, j, err) },
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

// getSource provides jobs without a queue, by Service.Get.
type getSource struct{ r *session }

// Next claims at most slots due jobs of the session's names that have no queue. It blocks until a
// job is due or ctx ends. Returns the errors of Service.Get, such as ErrNoJob if ctx ends, and
// ErrClosed after Close of the service.
func (a getSource) Next(ctx context.Context, slots int) ([]jobs.Handout, error) {
	return a.r.s.Get(ctx, jobs.Request{Selector: jobs.Selector{Names: a.r.names}, Lease: a.r.c.Lease, Max: slots, Wait: true})
}

// KeepLease returns at once, since jobs without a queue have no lease of a queue.
func (getSource) KeepLease(context.Context) {}

// Changed does nothing: the end of a job lets no job of Get start.
func (getSource) Changed() {}

// Close does nothing.
func (getSource) Close(context.Context) {}

// begin sets Key and Respond of a job from its [Type], before the start of its attempt is saved. It
// does nothing for a job of another kind. An error or a panic of Key, or an invalid key, fails the
// attempt. It runs in a transaction and may run again.
func (r *session) begin(j *jobs.Row) (err error) {
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

// keepLease runs KeepLease of the source in a goroutine and returns at once. Call stepDown once: it
// ends KeepLease, waits for its goroutine, and closes the source, so that another runner can lead
// the queue. Closing may take lastGrace.
func (r *session) keepLease() (stepDown func()) {
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.source.KeepLease(ctx)
	}()
	return func() {
		end()
		<-ended
		ctx, cancel := context.WithTimeout(context.Background(), lastGrace)
		defer cancel()
		r.source.Close(ctx)
	}
}

// purgeEvery is the interval between purges of a runner.
const purgeEvery = time.Minute

// purge deletes expired jobs once a minute until ctx ends. It logs errors. Without expired jobs a
// purge costs one read of an index.
func (r *session) purge(ctx context.Context) {
	for wake.Sleep(ctx, purgeEvery) {
		if _, err := r.s.Purge(ctx); err != nil && ctx.Err() == nil {
			r.r.warn("cannot delete expired jobs; trying again in a minute", err)
		}
	}
}

// mostRenewed limits the number of leases that one transaction renews.
const mostRenewed = 500

// renew renews the leases of jobs (Service.RenewAll). errs contains the result of each job, in
// order; asked is a time before the new leases begin. If err is not nil, errs is nil, and the
// leases may have been renewed or not. It ignores its context, so that a stop does not interrupt
// it.
func (r *session) renew(_ context.Context, hs []*heldJob) (errs []error, asked time.Time, err error) {
	jobs := make([]*jobs.Row, len(hs))
	for i, h := range hs {
		jobs[i] = &h.Row
	}
	err = r.call(func(ctx context.Context) (err error) {
		errs, asked, err = r.s.RenewAll(ctx, jobs, r.c.Lease)
		return err
	})
	for i, e := range errs {
		if e != nil && !jobstore.RunOver(e) {
			errs[i] = held.ErrUnknown
		}
	}
	return errs, asked, err
}

// expire makes the context of the job's handler end before its lease ends, unless a renewal
// succeeds. It does nothing for dispatched jobs, and for a job with RetryAfter, which has no lease.
func (r *session) expire(h *heldJob) {
	if r.c.Submit == nil && h.State == jobs.Running {
		r.held.Expire(h, h.Asked)
	}
}
