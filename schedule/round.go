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
	// mostTaken is how many ticks are claimed at a time.
	mostTaken = 1000
	// mostHeld is how many ticks a listener that submits holds at a time.
	mostHeld = 4 * mostTaken
	// submitters is how many batches are submitted at a time.
	submitters = 4
	// putOffOwner owns the claims of ticks that were put off: nobody runs them.
	putOffOwner = "-"
	// lastGrace is how long handlers may take to end after their contexts have.
	lastGrace = 5 * time.Second
)

// round is one Run of a listener. The fetching goroutine asks the store and claims; workers or submitters do what was claimed; one goroutine
// ends claims, several in one call; one renews them.
type round struct {
	l *Listener
	c *ListenerConfig

	hard context.Context // of handlers and submissions; its end is the hard stop
	kill context.CancelCauseFunc

	held *held.Set[tickKey, *hold]

	mu    sync.Mutex
	told  map[tickKey]time.Time // when it was told that a tick is put off
	now   time.Time             // the store's time
	nowAt time.Time             // when it was that

	// Of the fetching goroutine:
	specs map[string]when.Spec  // read a moment ago
	left  map[tickKey]time.Time // since when ticks that are due are left to other listeners

	pace    pace
	woken   wake.Signal
	queue   chan *hold   // in place: claimed, not begun
	batches chan []*hold // to be submitted
	ends    chan end
	calls   context.Context // of calls of the store; it ends when what is not done by then stays undone
	gone    context.CancelFunc
}

type tickKey struct {
	id  string
	due int64
}

func keyOf(k *Tick) tickKey { return tickKey{k.ID, k.Due.UnixMilli()} }

// hold is a tick that this listener has claimed.
type hold struct {
	tick    Tick
	content *Content
	id      task.ID
	remove  bool // the entry has no run after this one
	held.Item
}

// end is a claim that is to be ended.
type end struct {
	*hold
	Finish
}

func newRound(l *Listener) *round {
	r := &round{
		l: l, c: &l.c, specs: map[string]when.Spec{}, told: map[tickKey]time.Time{},
		woken: wake.New(),
		queue: make(chan *hold, mostTaken+l.c.Workers), batches: make(chan []*hold, mostHeld),
		ends: make(chan end, mostTaken),
	}
	r.calls, r.gone = context.WithCancel(context.Background())
	r.hard, r.kill = context.WithCancelCause(context.Background())
	r.held = held.New(held.Config[tickKey, *hold]{
		Key: func(h *hold) tickKey { return keyOf(&h.tick) }, Lease: r.c.Lease, Batch: mostTaken,
		Renew: r.renew, Lost: func(h *hold, _ error) { r.lostIt(h) },
	})
	return r
}

func (r *round) run(ctx context.Context) error {
	defer r.kill(nil)
	defer r.gone()
	if w, ok := capability.As[Watcher](r.c.Store); ok {
		defer w.Watch(r.woken.Notify)()
	}
	var working, ending, renewing sync.WaitGroup
	if r.c.Submit == nil {
		for range r.c.Workers {
			working.Go(r.worker)
		}
	} else {
		for range submitters {
			working.Go(r.submitter)
		}
	}
	ending.Go(r.finish)
	renewing.Go(func() { r.held.KeepRenewing(r.calls) })
	r.mending(ctx, &renewing)

	r.fetch(ctx)

	r.giveBack(r.queued())
	close(r.queue)
	close(r.batches)
	stopped := held.Over(&working)
	still := r.drain(stopped)
	if still == 0 {
		close(r.ends) // workers alone send to it
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
	r.gone()
	<-flushed
	renewing.Wait()
	if still > 0 {
		return fmt.Errorf("schedule: %d runs go on although their contexts have ended; their ticks will be run again", still)
	}
	return nil
}

// drain waits for what runs, for as long as it may, and returns how many still run.
func (r *round) drain(stopped <-chan struct{}) int {
	if held.Stop(stopped, r.c.ShutdownTimeout, func() { r.kill(task.ErrShutdown) }, lastGrace) {
		return 0
	}
	return max(r.held.Running(), 1)
}

// fetch asks for what is due and claims it until ctx ends.
func (r *round) fetch(ctx context.Context) {
	failed := 0
	for {
		room := r.room(ctx)
		if ctx.Err() != nil {
			return
		}
		most, left := min(room+2*len(r.left), mostTaken), len(r.left)
		asked := time.Now()
		call, cancel := context.WithTimeout(ctx, r.c.Lease)
		b, err := r.c.Store.Due(call, most)
		cancel()
		if err != nil {
			if ctx.Err() == nil {
				if failed == 0 {
					r.c.Logger.Warn("schedule: the store does not answer", "schedule", r.c.Name, "error", err)
				}
				wake.Sleep(ctx, r.c.Backoff.Interval(failed))
				failed++
			}
			continue
		}
		failed = 0
		took := r.take(ctx, &b, asked, room)
		switch {
		case len(b.Ticks) < most && !b.More:
			r.woken.Wait(ctx, r.wait(&b, asked))
		case took == 0 && len(r.left) <= left: // others are quicker
			wake.Sleep(ctx, min(r.c.Poll, 20*time.Millisecond))
		}
	}
}

// wait is how long nothing is due, by what the store has said.
func (r *round) wait(b *Batch, asked time.Time) time.Duration {
	wait := r.c.Poll
	if !b.Next.IsZero() {
		wait = min(wait, b.Next.Sub(b.Now)-time.Since(asked))
	}
	return max(wait, time.Millisecond)
}

// stuck is how long nothing need happen before ticks that wait behind others are given back.
const stuck = time.Second

// room waits until it is worth while to ask for ticks, and returns for how many.
func (r *round) room(ctx context.Context) int {
	t := time.NewTimer(stuck)
	defer t.Stop()
	for {
		limit := mostHeld
		if r.c.Submit == nil {
			limit = r.c.Workers + r.pace.ahead(r.c.Workers)
		}
		all, _ := r.held.Len()
		free := limit - all
		if free > 0 && free >= limit/2 || ctx.Err() != nil {
			return min(free, mostTaken)
		}
		select {
		case <-r.held.Freed():
		case <-ctx.Done():
		case <-t.C:
			if r.c.Submit == nil { // what waits behind long runs others may have room for
				if back := r.queued(); len(back) > 0 {
					r.pace.slow()
					r.giveBack(back)
				}
			}
			t.Reset(stuck)
		}
	}
}

// queued takes what has not begun out of the queues.
func (r *round) queued() []*hold {
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

// pace says how many ticks may wait behind the workers: as many as are run in a tenth of a second.
type pace struct {
	mu   sync.Mutex
	mean time.Duration // of recent runs; 0: there were none
}

const waitBehind = 100 * time.Millisecond

func (p *pace) note(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mean == 0 {
		p.mean = max(d, 1)
		return
	}
	p.mean = max((p.mean*7+d)/8, 1)
}

func (p *pace) slow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mean = max(p.mean, stuck)
}

func (p *pace) ahead(workers int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mean == 0 || p.mean > waitBehind {
		return 0
	}
	return min(workers*int(waitBehind/p.mean), mostTaken)
}
