package schedule

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/held"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/when"
)

const (
	// maxClaim is the largest number of ticks in one call to the store.
	maxClaim = 1000
	// maxHeld is the largest number of ticks that a submitting listener holds.
	maxHeld = 4 * maxClaim
	// maxSubmitters is the number of goroutines that submit batches.
	maxSubmitters = 4
	// lastGrace limits how long handlers may continue after their contexts have ended.
	lastGrace = 5 * time.Second
)

// runner executes one Listener.Run. The fetching goroutine finds due ticks and claims them. Workers
// or submitters process them. One goroutine ends claims in the store, several with one call, and
// one renews leases.
type runner struct {
	l *Listener
	c *ListenerConfig

	hard context.Context // for handlers and submissions; canceled by kill
	kill context.CancelCauseFunc

	held     *held.Set[tickKey, *hold]
	renewing chan struct{} // capacity 1; full during a renewal

	mu       sync.Mutex
	reported map[tickKey]time.Time // last report of a postponed tick
	now      time.Time             // the store's time at nowAt
	nowAt    time.Time             // this process's time when now was set

	// Only the fetching goroutine uses these:
	specs map[string]when.Spec  // parsed specs by their text
	left  map[tickKey]time.Time // due ticks left to other listeners, and since when

	pace        pace
	woken       wake.Signal
	queue       chan *hold   // claimed ticks to run in place
	batches     chan []*hold // claimed ticks to submit
	ends        chan pendingFinish
	calls       context.Context // for calls to the store; canceled by cancelCalls, which aborts them
	cancelCalls context.CancelFunc
}

// tickKey identifies a tick: the id of its entry and its due time in Unix milliseconds.
type tickKey struct {
	id  string
	due int64
}

// keyOf returns the key of a tick in the runner's maps.
func keyOf(k *Tick) tickKey { return tickKey{k.ID, k.Due.UnixMilli()} }

// hold is a tick that this listener has claimed, with its decoded entry. held.Item holds whether
// its handler runs, whether the claim was lost, and whether its end is being stored.
type hold struct {
	tick    Tick
	content *Content
	id      task.ID
	remove  bool // the entry has no due time after this tick
	held.Item
}

// pendingFinish is a claim whose end must be stored.
type pendingFinish struct {
	*hold
	Finish
}

// newRunner returns the runner of one Listener.Run, with empty queues, and contexts that end only
// with kill and cancelCalls. It starts nothing.
func newRunner(l *Listener) *runner {
	r := &runner{
		l: l, c: &l.c, specs: map[string]when.Spec{}, reported: map[tickKey]time.Time{},
		woken: wake.New(), renewing: make(chan struct{}, 1),
		queue: make(chan *hold, maxClaim+l.c.Workers), batches: make(chan []*hold, maxHeld),
		ends: make(chan pendingFinish, maxClaim),
	}
	r.calls, r.cancelCalls = context.WithCancel(context.Background())
	r.hard, r.kill = context.WithCancelCause(context.Background())
	r.held = held.New(held.Config[tickKey, *hold]{
		Key: func(h *hold) tickKey { return keyOf(&h.tick) }, Lease: r.c.Lease, Batch: maxClaim,
		Renew: r.renew, Lost: func(h *hold, _ error) { r.markLost(h) },
	})
	return r
}

// run claims and runs due ticks until ctx ends, and then shuts down as [Listener.Run] describes. It
// starts the workers or submitters and the goroutines that end claims, renew leases and repair
// entries.
//
// It returns an error if handlers still run after the last grace period; their claims then stay
// until the leases end. Otherwise all its goroutines have ended, and it returns nil.
func (r *runner) run(ctx context.Context) error {
	defer r.kill(nil)
	defer r.cancelCalls()
	if w, ok := capability.As[Watcher](r.c.Store); ok {
		defer w.Watch(r.woken.Notify)()
	}
	var working, ending, renewing sync.WaitGroup
	if r.c.Submit == nil {
		for range r.c.Workers {
			working.Go(r.worker)
		}
	} else {
		for range maxSubmitters {
			working.Go(r.submitter)
		}
	}
	ending.Go(r.finishLoop)
	renewing.Go(func() { r.held.KeepRenewing(r.calls) })
	r.startRepairs(ctx, &renewing)

	r.fetch(ctx)

	r.release(r.queued())
	close(r.queue)
	close(r.batches)
	stopped := held.Over(&working)
	still := r.drain(stopped)
	if still == 0 {
		close(r.ends) // Only workers, which have ended, send to it.
	}
	var deadline <-chan time.Time
	if r.hard.Err() != nil {
		deadline = time.After(lastGrace)
	} else {
		deadline = time.After(r.c.ShutdownTimeout + lastGrace)
	}
	flushed := held.Over(&ending)
	if still == 0 {
		select {
		case <-flushed:
		case <-deadline:
		}
	}
	r.cancelCalls()
	<-flushed
	renewing.Wait()
	if still > 0 {
		return fmt.Errorf("schedule: %d handlers still run after the end of their contexts; their ticks will run again", still)
	}
	return nil
}

// drain waits until stopped is closed, which means that all workers or submitters have ended. It
// returns 0 then, and otherwise how many handlers still run, at least 1.
//
// After ShutdownTimeout it ends the contexts of handlers and submissions with cause
// task.ErrShutdown and waits for at most lastGrace longer.
func (r *runner) drain(stopped <-chan struct{}) int {
	if held.Stop(stopped, r.c.ShutdownTimeout, func() { r.kill(task.ErrShutdown) }, lastGrace) {
		return 0
	}
	return max(r.held.Running(), 1)
}

// fetch asks the store for due ticks and passes them to claimDue, again and again until ctx ends.
// In between it waits for capacity, for the next due time, for a wake of the store's [Watcher], or
// for Poll.
//
// While the store does not answer, it retries with a growing delay and logs the first error.
func (r *runner) fetch(ctx context.Context) {
	failed := 0
	for {
		free := r.waitForCapacity(ctx)
		if ctx.Err() != nil {
			return
		}
		most, left := min(free+2*len(r.left), maxClaim), len(r.left)
		asked := time.Now()
		call, cancel := context.WithTimeout(ctx, r.c.Lease)
		b, err := r.c.Store.Due(call, most)
		cancel()
		if err != nil {
			if ctx.Err() == nil {
				if failed == 0 {
					r.c.Logger.Warn("schedule: the store does not answer; trying again", "schedule", r.c.Name, "error", err)
				}
				wake.Sleep(ctx, r.c.Backoff.Interval(failed))
				failed++
			}
			continue
		}
		failed = 0
		took := r.claimDue(ctx, &b, asked, free)
		switch {
		case len(b.Ticks) < most && !b.More:
			r.woken.Wait(ctx, r.wait(&b, asked))
		case took == 0 && len(r.left) <= left: // other listeners were faster
			wake.Sleep(ctx, min(r.c.Poll, 20*time.Millisecond))
		}
	}
}

// wait returns how long fetch may sleep: until the next due time in b, at most Poll, at least 1 ms.
// asked is the time before b was requested.
func (r *runner) wait(b *Batch, asked time.Time) time.Duration {
	wait := r.c.Poll
	if !b.Next.IsZero() {
		wait = min(wait, b.Next.Sub(b.Now)-time.Since(asked))
	}
	return max(wait, time.Millisecond)
}

// stuck is the time without a freed worker after which queued ticks are released.
const stuck = time.Second

// waitForCapacity waits until half of the listener's capacity is free, or ctx ends. It returns how
// many ticks may be claimed, at most maxClaim. The number may be 0 or less if ctx ended.
//
// The capacity in place is the number of workers plus the ticks that may wait for them
// (pace.ahead). With Submit it is maxHeld.
//
// In place, when no tick has ended for the time stuck, it releases the queued ticks and raises the
// average run time of pace. Other listeners may have free workers for these ticks.
func (r *runner) waitForCapacity(ctx context.Context) int {
	t := time.NewTimer(stuck)
	defer t.Stop()
	for {
		limit := maxHeld
		if r.c.Submit == nil {
			limit = r.c.Workers + r.pace.ahead(r.c.Workers)
		}
		all, _ := r.held.Len()
		free := limit - all
		if free > 0 && free >= limit/2 || ctx.Err() != nil {
			return min(free, maxClaim)
		}
		select {
		case <-r.held.Freed():
		case <-ctx.Done():
		case <-t.C:
			if r.c.Submit == nil { // Other listeners may have free workers.
				if back := r.queued(); len(back) > 0 {
					r.pace.slow()
					r.release(back)
				}
			}
			t.Reset(stuck)
		}
	}
}

// queued removes all ticks that no worker or submitter has taken from r.queue and r.batches, and
// returns them. It does not block. The ticks stay claimed and held; the caller must release them.
func (r *runner) queued() []*hold {
	var taken []*hold
	for {
		select {
		case h := <-r.queue:
			taken = append(taken, h)
		case batch := <-r.batches:
			taken = append(taken, batch...)
		default:
			return taken
		}
	}
}

// pace measures how long handlers run and decides how many claimed ticks may wait in the queue: as
// many as the workers run in waitBehind. Safe for concurrent use.
type pace struct {
	mu   sync.Mutex
	mean time.Duration // moving average of the run times; 0: none yet
}

// waitBehind is the time in which the workers should run the ticks that wait in the queue, see
// pace.
const waitBehind = 100 * time.Millisecond

// note adds the duration of a run to the moving average, in which it counts an eighth. The first
// duration becomes the average. It takes p.mu.
func (p *pace) note(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mean == 0 {
		p.mean = max(d, 1)
		return
	}
	p.mean = max((p.mean*7+d)/8, 1)
}

// slow raises the average to at least stuck, so that no ticks are claimed ahead of the workers
// until shorter runs lower it again. It takes p.mu.
func (p *pace) slow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mean = max(p.mean, stuck)
}

// ahead returns how many ticks may wait for a free worker, at most maxClaim: as many as the workers
// run in waitBehind. It is 0 while the average run takes longer than waitBehind, and before the
// first run. It takes p.mu.
func (p *pace) ahead(workers int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mean == 0 || p.mean > waitBehind {
		return 0
	}
	return min(workers*int(waitBehind/p.mean), maxClaim)
}
