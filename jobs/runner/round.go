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
	// mostCalls is the most calls of the service at a time for running jobs. mostShared is the same
	// for jobs of a queue, whose calls share transactions.
	mostCalls, mostShared = 16, 256
	// submitters is how many batches are submitted at a time.
	submitters = 4
	// lastGrace is the time that handlers have to return after their contexts have ended.
	lastGrace = 5 * time.Second
	// While claimed jobs with mostClaimed bytes are not submitted, no more are claimed. pageBytes
	// is how many bytes a claim, or another page of jobs, should have.
	mostClaimed, pageBytes = 32 << 20, 8 << 20
	// firstPage is the limit of the first page.
	firstPage = 64
)

// round is one Run of a runner. The fetching goroutine claims jobs. Each job has a goroutine, which
// runs it or waits for the end of its task. One goroutine renews leases. A job that awaits an
// answer has no goroutine and is not held.
type round struct {
	r     *Runner
	c     *Config
	s     *jobs.Service
	from  source
	names []string

	hard context.Context // of handlers and submissions; it ends at the hard stop
	kill context.CancelCauseFunc

	held *held.Set[jobs.ID, *hold]

	working sync.WaitGroup
	batches chan batch   // to be submitted
	claimed atomic.Int64 // bytes of the data of batches
	sent    wake.Signal  // claimed became less
	size    page.Size    // of the claims
	waiting sync.WaitGroup
	leave   chan struct{} // closed when no goroutine is to wait for tasks any more
	free    chan struct{} // one element for each running call of the service
	calls   context.Context
	gone    context.CancelFunc // ends calls; unfinished ones stay undone
}

// hold is a job that this runner has claimed.
type hold struct {
	held.Item
	jobs.Handout
	got    time.Time
	leased atomic.Bool // its lease is to be renewed
	// its end comes from a record, which another runner may have found too
	record bool
	off    chan struct{}
	once   sync.Once

	// The fields of a dispatched job. Its only data are args, until its task is made.
	args     []byte
	task     task.ID // of its run
	prepared bool    // a producer has written the task
}

// batch is claimed jobs to submit, and about how many bytes their data have.
type batch struct {
	holds []*hold
	bytes int
}

// newHold returns the hold of a claimed job.
func (r *round) newHold(h jobs.Handout) *hold {
	n := &hold{Handout: h, got: time.Now(), off: make(chan struct{})}
	if r.c.Submit != nil {
		n.Handout, n.args = page.Bare(h), h.Data
		n.task, n.prepared = r.r.taskOf(&n.Row)
	}
	return n
}

// shares reports whether the end of the job may share its transaction: the job is kept, and
// concerns no other job as far as known.
func (h *hold) shares() bool { return rules.IsKept(&h.Row) && rules.StandsAlone(&h.Row) }

// entrusted reports whether the job waits for its task.
func (h *hold) entrusted() bool { return !h.leased.Load() && !h.Settling() }

// release ends the wait for its task.
func (h *hold) release() { h.once.Do(func() { close(h.off) }) }

func newRound(r *Runner, names []string) (*round, error) {
	calls := mostCalls
	if r.c.Queue != nil {
		calls = mostShared
	}
	o := &round{
		r: r, c: &r.c, s: r.c.Service, names: names,
		batches: make(chan batch, r.c.Outstanding), sent: wake.New(), leave: make(chan struct{}), free: make(chan struct{}, calls),
	}
	o.size = pages(jobs.MaxTake)
	var err error
	if o.from, err = o.source(); err != nil {
		return nil, err
	}
	o.calls, o.gone = context.WithCancel(context.Background())
	o.hard, o.kill = context.WithCancelCause(context.Background())
	o.held = held.New(held.Config[jobs.ID, *hold]{
		Key: func(h *hold) jobs.ID { return h.ID }, Lease: r.c.Lease, Batch: mostRenewed,
		Renews: func(h *hold) bool { return h.leased.Load() && !h.Settling() }, Renew: o.renew, Lost: o.lose,
	})
	return o, nil
}

func (r *round) run(ctx context.Context) error {
	defer r.kill(nil)
	defer r.gone()
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

	stepDown := r.keep()
	failure := r.fetch(ctx)

	cancel()
	sweeping.Go(stepDown) // another runner may start jobs while those of this one go on
	back := r.queued()
	close(r.batches)
	r.working.Go(func() { r.giveBack(back...) })
	stopped := held.Over(&r.working)
	ended := held.Stop(stopped, r.c.ShutdownTimeout, func() { r.kill(task.ErrShutdown) }, lastGrace)
	close(r.leave)
	if ended { // jobs that are being finished may take as long as a handler
		waited := held.Over(&r.waiting)
		held.Stop(waited, r.c.ShutdownTimeout, r.gone, lastGrace)
	}
	still := r.held.Running()
	r.gone()
	renewing.Wait()
	sweeping.Wait()
	if still > 0 {
		return errors.Join(failure, fmt.Errorf("jobs: %d handlers go on although their contexts have ended; their jobs will be run again", still))
	}
	<-stopped
	r.waiting.Wait()
	return failure
}

// fetch claims jobs until ctx ends or the service is closed.
func (r *round) fetch(ctx context.Context) error {
	failed := 0
	for ctx.Err() == nil {
		room := r.room(ctx)
		if room == 0 {
			break
		}
		got, err := r.from.Next(ctx, room)
		switch {
		case err == nil:
			failed = 0
			r.take(ctx, got)
			continue
		case ctx.Err() != nil:
			continue
		case errors.Is(err, jobs.ErrClosed), errors.Is(err, jobs.ErrBadJob):
			return err
		case failed == 0:
			r.r.warn("no jobs can be had", err)
		}
		wake.Sleep(ctx, r.c.Backoff.Interval(failed))
		failed++
	}
	return nil
}

// mostUnsettled is how many jobs a runner in place may hold whose handler has returned.
const mostUnsettled = 1000

// pages returns the sizes of pages of dispatched jobs. A page has at most so many jobs.
func pages(most int) page.Size { return page.Size{Bytes: pageBytes, First: firstPage, Most: most} }

// room waits until there is room for more jobs, and returns for how many. 0: ctx has ended.
func (r *round) room(ctx context.Context) int {
	for {
		all, idle := r.held.Len()
		room := min(r.c.Workers-all+idle, r.c.Workers+mostUnsettled-all)
		if r.c.Submit != nil {
			room = min(r.c.Outstanding-all, r.size.Limit())
			if r.claimed.Load() >= mostClaimed {
				room = 0
			}
		}
		if room > 0 {
			return min(room, jobs.MaxTake)
		}
		select {
		case <-r.held.Freed():
		case <-r.sent:
		case <-ctx.Done():
			return 0
		}
	}
}

// take starts the work on claimed jobs.
func (r *round) take(ctx context.Context, got []jobs.Handout) {
	b := batch{bytes: page.Handouts(got)}
	r.size.Read(len(got), b.bytes)
	for i := range got {
		h := r.newHold(got[i])
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
		r.hold(h)
		if r.c.Submit == nil {
			r.working.Go(func() { r.runInPlace(h) })
		} else {
			b.holds = append(b.holds, h)
		}
	}
	if len(b.holds) > 0 {
		r.claimed.Add(int64(b.bytes))
		r.batches <- b // it never blocks: no more jobs were asked for than fit
	}
}

// hold adds a job to the held set. An earlier claim of the same job is lost.
func (r *round) hold(h *hold) {
	if before, replaced := r.held.Hold(h); replaced {
		r.lose(before, nil)
	}
}

// release removes jobs from the held set.
func (r *round) release(hs ...*hold) {
	r.held.Release(hs...)
	for _, h := range hs {
		h.release()
	}
}

// lose notes that another worker has the job, or ended it.
func (r *round) lose(h *hold, err error) {
	if h.Lose() {
		r.r.stats.lost.Add(1)
		r.r.report(ProblemLost, &h.Row, err)
	}
	if !h.Runs() { // a handler keeps its worker until it has returned
		r.release(h)
	}
}

// queued takes the jobs that have not begun out of the queue of batches.
func (r *round) queued() []*hold {
	var taken []*hold
	for {
		select {
		case b := <-r.batches:
			taken = append(taken, b.holds...)
		default:
			return taken
		}
	}
}

// call makes one call of the service. It may outlast Run's context.
func (r *round) call(fn func(context.Context) error) error {
	r.free <- struct{}{}
	defer func() { <-r.free }()
	ctx, cancel := context.WithTimeout(r.calls, r.c.Lease)
	defer cancel()
	return fn(ctx)
}

// persist makes a call about a job, and repeats it until there is an answer. Returns nil if it took
// effect, or the error for which it never can.
func (r *round) persist(fn func(context.Context) error) error {
	for attempt := 0; ; attempt++ {
		err := r.call(fn)
		switch {
		case err == nil:
			return nil
		case jobstore.RunOver(err) && attempt > 0: // the call before may have had its effect
			return nil
		case jobstore.RunOver(err), errors.Is(err, jobs.ErrState), errors.Is(err, jobs.ErrBadJob), errors.Is(err, jobs.ErrClosed):
			return err
		case attempt == 0:
			r.r.warn("the store does not answer", err)
		}
		if !wake.Sleep(r.calls, r.c.Backoff.Interval(attempt)) {
			return err
		}
	}
}

// settle is persist of a call that ends the hold of a job.
func (r *round) settle(h *hold, fn func(context.Context) error) error {
	h.Settle()
	return r.persist(fn)
}

// conclude ends a run by fn, releases the job, then counts. If the result cannot be stored the job
// is FAILED.
func (r *round) conclude(h *hold, n *atomic.Int64, fn func(context.Context) error) bool {
	err := r.settle(h, fn)
	if (errors.Is(err, jobs.ErrState) || errors.Is(err, jobs.ErrBadJob)) && !jobstore.RunOver(err) {
		return r.fail(h, err, nil)
	}
	r.from.Changed()
	return r.concluded(h, n, err)
}

// fail ends a run as failed.
func (r *round) fail(h *hold, reason error, data []byte) bool {
	goesOn := false
	err := r.settle(h, func(ctx context.Context) (err error) {
		goesOn, err = r.s.FailUnlessAnswered(ctx, jobs.Fail{ID: h.ID, Token: h.Token, Data: data, Reason: task.Remote(reason).Error(), Shared: h.shares()})
		return err
	})
	r.from.Changed()
	if err == nil && goesOn { // its answer came first
		return r.concluded(h, &r.r.stats.deferred, nil)
	}
	if err == nil {
		r.r.report(ProblemFailed, &h.Row, reason)
	}
	return r.concluded(h, &r.r.stats.failed, err)
}

func (r *round) concluded(h *hold, n *atomic.Int64, err error) bool {
	switch {
	case err == nil:
		n.Add(1)
	case jobstore.RunOver(err) && h.record: // the service has counted it as stale
	case jobstore.RunOver(err):
		r.lose(h, err)
	default:
		r.r.warn("the end of a run is not written", err)
	}
	r.release(h)
	return err == nil
}

// giveBack releases the leases of jobs, so that other runners can claim them at once.
func (r *round) giveBack(hs ...*hold) {
	var wg sync.WaitGroup
	for _, h := range hs {
		wg.Go(func() {
			err := r.settle(h, func(ctx context.Context) error { return r.s.GiveBack(ctx, h.Handout) })
			r.concluded(h, &r.r.stats.givenBack, err)
		})
	}
	wg.Wait()
}
