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

// session is one Run of a runner. One goroutine claims jobs. Each claimed job has a goroutine that
// runs it or waits for the end of its task. Another goroutine renews leases. A job that awaits an
// answer has no goroutine and is not held.
type session struct {
	r      *Runner
	c      *Config
	s      *jobs.Service
	source source
	names  []string

	// hard is the context of handlers and submissions. The hard stop ends it with task.ErrShutdown.
	hard context.Context
	kill context.CancelCauseFunc

	// held contains the claimed jobs whose end is not stored yet; it renews their leases.
	held *held.Set[jobs.ID, *heldJob]

	// working counts goroutines that run handlers, submit, or give back jobs; waiting counts those
	// that wait for the end of tasks.
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

// heldJob is a job that this runner has claimed. Its held.Item records whether it is lost, and
// whether its end is being stored ("settling").
type heldJob struct {
	held.Item
	jobs.Handout
	// got is the time of the claim, by this process's clock.
	got    time.Time
	leased atomic.Bool // its lease must be renewed
	// record reports that the end of the job comes from the record of its task, which another runner
	// may also have found.
	record bool
	// off is closed when this runner stops holding the job.
	off  chan struct{}
	once sync.Once

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

// newHeldJob returns a claimed job as a heldJob. It does not add the job to r.held (track). With
// Config.Submit the data move to args, and the fields that only a handler needs are dropped.
func (r *session) newHeldJob(h jobs.Handout) *heldJob {
	n := &heldJob{Handout: h, got: time.Now(), off: make(chan struct{})}
	if r.c.Submit != nil {
		n.Handout, n.args = page.Bare(h), h.Data
		n.task, n.prepared = r.r.taskOf(&n.Row)
	}
	return n
}

// shares reports whether the end of the job may share its transaction with other changes. It may if
// the record of the job stays and, as far as is known, no other job depends on it.
func (h *heldJob) shares() bool { return rules.IsKept(&h.Row) && rules.StandsAlone(&h.Row) }

// waitsForTask reports whether the task of the job was submitted and its end is still awaited: the
// lease is not renewed and no goroutine stores an end.
func (h *heldJob) waitsForTask() bool { return !h.leased.Load() && !h.Settling() }

// release closes h.off, which ends the wait for the task of the job. A repeated call has no effect.
// session.release also removes the job from r.held.
func (h *heldJob) release() { h.once.Do(func() { close(h.off) }) }

// newSession returns a session for the jobs with these names, or for Config.Queue. It starts no
// goroutine and does no I/O. Returns the error of newSource.
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

// run claims and runs jobs until ctx ends or the service is closed. Its goroutines renew leases,
// submit tasks, delete expired jobs and sweep. It blocks until all work has ended, in this order:
// claims, submissions, handlers, waits for tasks, renewals. giveBack returns the jobs that were not
// submitted, and stepDown releases the lease of a queue.
//
// Handlers may run for ShutdownTimeout; then their contexts end. Returns the error of fetch. Also
// returns an error if handlers have not returned in time; it then does not wait for them.
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

// fetch claims jobs and starts their work until ctx ends, and then returns nil. It waits while no
// slot is free. While the store fails it logs once and tries again with Config.Backoff. Returns
// ErrClosed if the service was closed, and ErrBadJob if it refuses the claim itself.
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

// pages returns a page.Size for reading dispatched jobs: it adapts the limit of each page to the
// bytes of earlier ones. A page has at most most jobs.
func pages(most int) page.Size { return page.Size{Bytes: pageBytes, First: firstPage, Most: most} }

// freeSlots blocks until the runner can claim more jobs, and returns how many, at most
// jobs.MaxTake. Returns 0 if ctx has ended while it waited.
//
// Handlers: one slot for each free worker, if fewer than mostUnsettled ends are not stored yet.
// Dispatched jobs: up to Outstanding, unless too many bytes wait for submission.
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

// startWork adds claimed jobs to r.held (track), which renews their leases. It starts a goroutine
// for each handler, or passes the jobs to the submitters as one batch. It does not wait for them.
//
// A job with GivenUp (FAILED after ten claims) is counted and reported only. If ctx has ended,
// giveBack returns the other jobs, in goroutines. The size of the claim goes to r.size, which
// limits the next one.
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

// track adds a job to r.held, which renews its lease until release. An earlier claim of the same
// job in this process is marked as lost.
func (r *session) track(h *heldJob) {
	if before, replaced := r.held.Hold(h); replaced {
		r.lose(before, nil)
	}
}

// release removes jobs from r.held, so that their leases are no longer renewed, and ends the waits
// for their tasks. It writes nothing to the store. Repeated calls are harmless.
func (r *session) release(hs ...*heldJob) {
	r.held.Release(hs...)
	for _, h := range hs {
		h.release()
	}
}

// lose marks a job as lost to another worker, and ends the context of its handler. The first call
// for a job counts it and reports ProblemLost with err, which may be nil. lose releases the job
// unless a handler runs, which occupies its worker until it returns.
func (r *session) lose(h *heldJob, err error) {
	if h.Lose() {
		r.r.stats.lost.Add(1)
		r.r.report(ProblemLost, &h.Row, err)
	}
	if !h.Runs() { // a handler occupies its worker until it returns
		r.release(h)
	}
}

// takeQueued removes all batches that no submitter has received, and returns their jobs. It does
// not block.
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

// call waits for a free slot among the calls of the session (mostCalls or mostShared), also after
// the stop of the runner. Then it calls fn with a context that ends after the duration of a lease,
// and returns its error. That context is derived from r.calls, so a call may outlast Run's
// context.
func (r *session) call(fn func(context.Context) error) error {
	r.free <- struct{}{}
	defer func() { <-r.free }()
	ctx, cancel := context.WithTimeout(r.calls, r.c.Lease)
	defer cancel()
	return fn(ctx)
}

// callUntilReply calls fn until the store replies, with delays of Config.Backoff. It logs the first
// failure. Returns nil if the call took effect. Returns the error if it is final: the attempt is
// over, the change is invalid, or the service is closed.
//
// After the first try, an attempt that is over counts as success: an earlier try may have taken
// effect. When the runner ends its calls, it returns the last error.
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

// settle marks the job as settling, so that a failed renewal no longer counts as a loss, and
// returns the result of callUntilReply.
func (r *session) settle(h *heldJob, fn func(context.Context) error) error {
	h.Settle()
	return r.callUntilReply(fn)
}

// conclude ends an attempt by fn, which stores the end, releases the job and wakes the source. It
// adds one to n if fn took effect. It blocks until the store replies. If the service refuses the
// change itself, for example because of its data, the job becomes FAILED instead. It reports
// whether fn, or that failure, took effect.
func (r *session) conclude(h *heldJob, n *atomic.Int64, fn func(context.Context) error) bool {
	err := r.settle(h, fn)
	if (errors.Is(err, jobs.ErrState) || errors.Is(err, jobs.ErrBadJob)) && !jobstore.RunOver(err) {
		return r.fail(h, err, nil)
	}
	r.source.Changed()
	return r.concluded(h, n, err)
}

// fail ends the run of a job as FAILED with a reason and data (nil: they stay), reports
// ProblemFailed, counts it, and releases the job. If the answer of the job has come, the job
// becomes due with it instead, and counts as deferred. It blocks until the store replies, and
// reports whether the call took effect.
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

// concluded handles the result err of storing the end of an attempt, and releases the job in each
// case. It reports whether err is nil; then it adds one to n. If the attempt was over, the job is
// marked as lost, unless its end came from a record. Any other error is logged.
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

// giveBack returns the claims of jobs to the store (Service.GiveBack), concurrently, so that other
// runners can claim the jobs at once. It blocks until the store has replied for each job, or the
// runner ends its calls. It releases all jobs and counts those that were given back. Errors go to
// concluded: a job whose attempt is over is marked as lost, and any other error is logged.
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
