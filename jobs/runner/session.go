package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/internal/held"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/internal/page"
	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

const (
	// mostCalls limits the concurrent calls of the service for running jobs. mostShared is the limit
	// for jobs of a queue, whose calls share transactions.
	mostCalls, mostShared = 16, 256
	// submitters is the number of batches that are submitted at a time.
	submitters = 4
	// lastGrace is the time that handlers get to return after their contexts have ended.
	lastGrace = 5 * time.Second
	// mostClaimed is the number of bytes of claimed and unsubmitted jobs at which no more are claimed.
	// pageBytes is the wanted size of a claim, or of another page of jobs.
	mostClaimed, pageBytes = 32 << 20, 8 << 20
	// firstPage is the limit of the first page.
	firstPage = 64
)

// session is one Run of a runner. One goroutine claims jobs. Each job has a goroutine that runs it
// or waits for the end of its task. Another goroutine renews leases. A job that awaits an answer
// has no goroutine and is not held.
type session struct {
	r      *Runner
	c      *Config
	s      *jobs.Service
	source source
	names  []string

	hard context.Context // context of handlers and submissions; it ends at the hard stop
	kill context.CancelCauseFunc

	held *held.Set[jobs.ID, *heldJob]

	working  sync.WaitGroup
	batches  chan batch   // to submit
	claimed  atomic.Int64 // bytes of the data of batches
	sent     wake.Signal  // claimed has decreased
	size     page.Size    // of the claims
	waiting  sync.WaitGroup
	leave    chan struct{} // closed when no goroutine must wait for tasks any more
	free     chan struct{} // one element for each running call of the service
	calls    context.Context
	endCalls context.CancelFunc // ends calls; their results may then not be stored
}

// heldJob is a job that this runner has claimed.
type heldJob struct {
	held.Item
	jobs.Handout
	got    time.Time
	leased atomic.Bool // its lease must be renewed
	// its end comes from a record, which another runner may also have found
	record bool
	off    chan struct{}
	once   sync.Once

	// The fields of a dispatched job. Of its data only args stay, until its task is made.
	args     []byte
	task     task.ID // of its run
	prepared bool    // a producer has stored the message of the task
}

// batch contains claimed jobs to submit, and the approximate number of bytes of their data.
type batch struct {
	holds []*heldJob
	bytes int
}

// newHeldJob returns a claimed job as a heldJob. With Config.Submit its data move to args.
func (r *session) newHeldJob(h jobs.Handout) *heldJob {
	n := &heldJob{Handout: h, got: time.Now(), off: make(chan struct{})}
	if r.c.Submit != nil {
		n.Handout, n.args = page.Bare(h), h.Data
		n.task, n.prepared = r.r.taskOf(&n.Row)
	}
	return n
}

// shares reports whether the end of the job may share its transaction: its record stays, and no
// other job depends on it as far as is known.
func (h *heldJob) shares() bool { return rules.IsKept(&h.Row) && rules.StandsAlone(&h.Row) }

// waitsForTask reports whether the job waits for the end of its task.
func (h *heldJob) waitsForTask() bool { return !h.leased.Load() && !h.Settling() }

// release ends the wait for the task of the job. A repeated call has no effect.
func (h *heldJob) release() { h.once.Do(func() { close(h.off) }) }

// newSession returns a session for the jobs with these names. It starts no goroutine.
func newSession(r *Runner, names []string) (*session, error) {
	calls := mostCalls
	if r.c.Queue != nil {
		calls = mostShared
	}
	o := &session{
		r: r, c: &r.c, s: r.c.Service, names: names,
		batches: make(chan batch, r.c.Outstanding), sent: wake.New(), leave: make(chan struct{}), free: make(chan struct{}, calls),
	}
	o.size = pages(jobs.MaxTake)
	var err error
	if o.source, err = o.newSource(); err != nil {
		return nil, err
	}
	o.calls, o.endCalls = context.WithCancel(context.Background())
	o.hard, o.kill = context.WithCancelCause(context.Background())
	o.held = held.New(held.Config[jobs.ID, *heldJob]{
		Key: func(h *heldJob) jobs.ID { return h.ID }, Lease: r.c.Lease, Batch: mostRenewed,
		Renews: func(h *heldJob) bool { return h.leased.Load() && !h.Settling() }, Renew: o.renew, Lost: o.lose,
	})
	return o, nil
}

// run claims and runs jobs until ctx ends. It then stops in this order: claims, submissions,
// handlers, waits for tasks, renewals. Returns an error if handlers have not returned in time.
func (r *session) run(ctx context.Context) error {
	defer r.kill(nil)
	defer r.endCalls()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var renewing, sweeping sync.WaitGroup
	renewing.Go(func() { r.held.KeepRenewing(r.calls) })
	sweeping.Go(func() { r.purge(ctx) })
	if r.c.Submit != nil {
		for range submitters {
			r.working.Go(r.submitter)
		}
		sweeping.Go(func() { r.sweep(ctx) })
	}

	stepDown := r.keepLease()
	failure := r.fetch(ctx)

	cancel()
	sweeping.Go(stepDown) // another runner may start jobs while those of this runner still run
	back := r.takeQueued()
	close(r.batches)
	r.working.Go(func() { r.giveBack(back...) })
	stopped := held.Over(&r.working)
	ended := held.Stop(stopped, r.c.ShutdownTimeout, func() { r.kill(task.ErrShutdown) }, lastGrace)
	close(r.leave)
	if ended { // storing the ends of jobs may take as long as a handler
		waited := held.Over(&r.waiting)
		held.Stop(waited, r.c.ShutdownTimeout, r.endCalls, lastGrace)
	}
	still := r.held.Running()
	r.endCalls()
	renewing.Wait()
	sweeping.Wait()
	if still > 0 {
		return errors.Join(failure, fmt.Errorf("jobs: %d handlers have not returned after the end of their contexts; their jobs will run again", still))
	}
	<-stopped
	r.waiting.Wait()
	return failure
}

// fetch claims jobs and starts their work until ctx ends or the service is closed. While the store
// fails it tries again. Returns an error after which trying again cannot help, else nil.
func (r *session) fetch(ctx context.Context) error {
	failed := 0
	for ctx.Err() == nil {
		slots := r.freeSlots(ctx)
		if slots == 0 {
			break
		}
		got, err := r.source.Next(ctx, slots)
		switch {
		case err == nil:
			failed = 0
			r.startWork(ctx, got)
			continue
		case ctx.Err() != nil:
			continue
		case errors.Is(err, jobs.ErrClosed), errors.Is(err, jobs.ErrBadJob):
			return err
		case failed == 0:
			r.r.warn("cannot claim jobs; trying again", err)
		}
		wake.Sleep(ctx, r.c.Backoff.Interval(failed))
		failed++
	}
	return nil
}

// mostUnsettled limits the jobs of a runner without Submit whose handler has returned and whose end
// is not stored yet.
const mostUnsettled = 1000

// pages returns the sizes of pages of dispatched jobs. A page has at most most jobs.
func pages(most int) page.Size { return page.Size{Bytes: pageBytes, First: firstPage, Most: most} }

// freeSlots blocks until the runner can claim more jobs and returns their maximum number. 0: ctx
// has ended.
func (r *session) freeSlots(ctx context.Context) int {
	for {
		all, idle := r.held.Len()
		slots := min(r.c.Workers-all+idle, r.c.Workers+mostUnsettled-all)
		if r.c.Submit != nil {
			slots = min(r.c.Outstanding-all, r.size.Limit())
			if r.claimed.Load() >= mostClaimed {
				slots = 0
			}
		}
		if slots > 0 {
			return min(slots, jobs.MaxTake)
		}
		select {
		case <-r.held.Freed():
		case <-r.sent:
		case <-ctx.Done():
			return 0
		}
	}
}

// startWork starts the handlers of claimed jobs, or queues the jobs for submission. It reports jobs
// with GivenUp. If ctx has ended, it gives the jobs back.
func (r *session) startWork(ctx context.Context, got []jobs.Handout) {
	b := batch{bytes: page.Handouts(got)}
	r.size.Read(len(got), b.bytes)
	for i := range got {
		h := r.newHeldJob(got[i])
		switch {
		case h.GivenUp:
			r.r.stats.failed.Add(1)
			r.r.report(ProblemGivenUp, &h.Row, errors.New(h.Reason))
			continue
		case ctx.Err() != nil:
			r.working.Go(func() { r.giveBack(h) })
			continue
		}
		h.leased.Store(true)
		r.expire(h)
		r.track(h)
		if r.c.Submit == nil {
			r.working.Go(func() { r.runInPlace(h) })
		} else {
			b.holds = append(b.holds, h)
		}
	}
	if len(b.holds) > 0 {
		r.claimed.Add(int64(b.bytes))
		r.batches <- b // it never blocks: no more jobs are claimed than fit
	}
}

// track adds a job to the held set. An earlier claim of the same job is marked as lost.
func (r *session) track(h *heldJob) {
	if before, replaced := r.held.Hold(h); replaced {
		r.lose(before, nil)
	}
}

// release removes jobs from the held set and ends the waits for their tasks.
func (r *session) release(hs ...*heldJob) {
	r.held.Release(hs...)
	for _, h := range hs {
		h.release()
	}
}

// lose marks a job as lost to another worker, counts and reports it once, and ends the context of
// its handler. Unless a handler runs, it also releases the job.
func (r *session) lose(h *heldJob, err error) {
	if h.Lose() {
		r.r.stats.lost.Add(1)
		r.r.report(ProblemLost, &h.Row, err)
	}
	if !h.Runs() { // a handler occupies its worker until it returns
		r.release(h)
	}
}

// takeQueued removes all jobs from the queue of batches and returns them.
func (r *session) takeQueued() []*heldJob {
	var taken []*heldJob
	for {
		select {
		case b := <-r.batches:
			taken = append(taken, b.holds...)
		default:
			return taken
		}
	}
}

// call calls fn with a context that ends after a lease. It waits while too many calls run. The call
// may outlast Run's context.
func (r *session) call(fn func(context.Context) error) error {
	r.free <- struct{}{}
	defer func() { <-r.free }()
	ctx, cancel := context.WithTimeout(r.calls, r.c.Lease)
	defer cancel()
	return fn(ctx)
}

// callUntilReply calls fn until the store replies, with delays. Returns nil if the call took
// effect, or the error for which it never can. It stops with the last error when the runner ends
// its calls.
func (r *session) callUntilReply(fn func(context.Context) error) error {
	for attempt := 0; ; attempt++ {
		err := r.call(fn)
		switch {
		case err == nil:
			return nil
		case jobstore.RunOver(err) && attempt > 0: // the previous call may have taken effect
			return nil
		case jobstore.RunOver(err), errors.Is(err, jobs.ErrState), errors.Is(err, jobs.ErrBadJob), errors.Is(err, jobs.ErrClosed):
			return err
		case attempt == 0:
			r.r.warn("the store does not reply; trying again", err)
		}
		if !wake.Sleep(r.calls, r.c.Backoff.Interval(attempt)) {
			return err
		}
	}
}

// settle marks the job as settling and calls callUntilReply.
func (r *session) settle(h *heldJob, fn func(context.Context) error) error {
	h.Settle()
	return r.callUntilReply(fn)
}

// conclude ends an attempt by fn, releases the job, and adds one to n. If the service refuses fn,
// for example because of its data, the job becomes FAILED. It reports whether fn took effect.
func (r *session) conclude(h *heldJob, n *atomic.Int64, fn func(context.Context) error) bool {
	err := r.settle(h, fn)
	if (errors.Is(err, jobs.ErrState) || errors.Is(err, jobs.ErrBadJob)) && !jobstore.RunOver(err) {
		return r.fail(h, err, nil)
	}
	r.source.Changed()
	return r.concluded(h, n, err)
}

// fail ends the run of a job as FAILED with a reason, reports it, and releases the job. If the
// answer of the job has come, the job continues with it instead. It reports whether the call took
// effect.
func (r *session) fail(h *heldJob, reason error, data []byte) bool {
	delivered := false
	err := r.settle(h, func(ctx context.Context) (err error) {
		delivered, err = r.s.FailUnlessAnswered(ctx, jobs.Fail{ID: h.ID, Token: h.Token, Data: data, Reason: task.Remote(reason).Error(), Shared: h.shares()})
		return err
	})
	r.source.Changed()
	if err == nil && delivered { // its answer came first
		return r.concluded(h, &r.r.stats.deferred, nil)
	}
	if err == nil {
		r.r.report(ProblemFailed, &h.Row, reason)
	}
	return r.concluded(h, &r.r.stats.failed, err)
}

// concluded counts the result err of ending an attempt and releases the job. If another worker has
// the job, it is lost. It reports whether err is nil.
func (r *session) concluded(h *heldJob, n *atomic.Int64, err error) bool {
	switch {
	case err == nil:
		n.Add(1)
	case jobstore.RunOver(err) && h.record: // the service has counted it as stale
	case jobstore.RunOver(err):
		r.lose(h, err)
	default:
		r.r.warn("cannot store the end of an attempt; the job is claimed again after its lease", err)
	}
	r.release(h)
	return err == nil
}

// giveBack returns the claims of jobs concurrently, so that other runners can claim the jobs at
// once. It blocks until all are returned.
func (r *session) giveBack(hs ...*heldJob) {
	var wg sync.WaitGroup
	for _, h := range hs {
		wg.Go(func() {
			err := r.settle(h, func(ctx context.Context) error { return r.s.GiveBack(ctx, h.Handout) })
			r.concluded(h, &r.r.stats.givenBack, err)
		})
	}
	wg.Wait()
}
