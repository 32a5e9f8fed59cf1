package intake

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/task"
)

const (
	// followEvery is the time between two ticks, and the amount of work that a consumer holds.
	followEvery = 50 * time.Millisecond
	// mostFollowed limits a prefetch that follows the work, unless Config.Prefetch is larger.
	mostFollowed = 256
)

// pace decides about the prefetch of a queue whose prefetch follows the work.
type pace struct {
	divided bool // the subscription is divided, see [broker.Divider]
	free    int  // ticks in a row at which a worker was free
	long    int  // ticks for which long tasks are remembered
	still   int  // ticks in a row at which all workers were busy and took no message
	stopped bool // the prefetch was 0 since tasks were short or workers were free
}

const (
	// rememberLong is the number of ticks for which long tasks are remembered, a second.
	rememberLong = 20
	// stopAfter is the number of ticks of long tasks after which a divided subscription is stopped.
	stopAfter = 20
)

// tick describes the workers of a queue at the end of 50 ms.
type tick struct {
	base    int // Config.Prefetch for the number of workers
	workers int
	busy    int // workers that handled a message at the end
	took    int // messages that workers have taken since the tick before
}

// next returns the prefetch for the time after t. now is the prefetch until then.
//
//   - Workers that took no message and are all busy run long tasks. The queue holds no others, so
//     that another consumer gets them, until the tasks are short or workers are free.
//   - A divided subscription would hold messages of other levels and lanes even so. If the workers
//     run long tasks for a second, it is stopped with 0, and again beside each further long task.
//   - Else the queue holds as many messages as the workers took, which is about 50 ms of work: at
//     least t.base, and at most mostFollowed or t.base. It becomes smaller only if the workers are
//     busy, since a queue that is empty holds nothing.
//   - For rememberLong ticks after a long task it holds at most t.base, since more would be given
//     back beside the next one.
func (p *pace) next(now int, t tick) int {
	full := t.busy >= t.workers
	p.free++
	p.still++
	if full {
		p.free = 0
	}
	if !full || t.took > 0 {
		p.still = 0
	}
	if p.free >= 2 || t.took >= 2*t.workers {
		p.stopped = false
	}
	want := min(max(t.took, t.base), max(t.base, mostFollowed))
	if p.long > 0 {
		p.long--
		want = t.base
	}
	switch {
	case full && t.took == 0:
		p.long = rememberLong
		if p.divided && (p.stopped || p.still >= stopAfter) {
			p.stopped = true
			return 0
		}
		return min(now, t.workers)
	case now == 0:
		return t.workers // even if all are busy: the messages that they took may be short tasks
	case now < t.base && p.free < 2 && t.took < 2*t.workers:
		return now
	case want > now:
		return want
	case full && t.took < t.workers:
		return min(now, t.base)
	case full && want < now/2:
		return want
	}
	return now
}

// atRest reports whether nothing changes until a worker takes or ends a message. No worker has
// taken one, and the prefetch is not below t.base although workers are free. A divided subscription
// is stopped if all workers are busy.
func (t tick) atRest(prefetch int, divided bool) bool {
	if t.busy >= t.workers {
		return t.took == 0 && (!divided || prefetch == 0)
	}
	return t.took == 0 && prefetch >= t.base
}

// follower lets the prefetch of one queue follow the work of its workers. Its goroutine runs only
// while workers take messages, or are free beside a low prefetch.
type follower struct {
	q       *Queue
	t       *Workers
	running atomic.Bool
	low     atomic.Bool // the prefetch is below the base

	// Its goroutine alone uses these.
	pace     pace
	failures int       // failed changes in a row
	again    time.Time // no change before that, after a failure
}

// begins is called when a worker has taken a message, and when the prefetch was changed. It starts
// the goroutine of the follower if that does not run.
func (f *follower) begins() {
	if !f.running.Load() && f.running.CompareAndSwap(false, true) {
		f.q.cfg.Go(f.run)
	}
}

// ends is called when a worker has handled a message. Beside a low prefetch the worker may get no
// other message, so that ends starts the goroutine of the follower as begins does.
func (f *follower) ends() {
	if f.low.Load() {
		f.begins()
	}
}

// run changes the prefetch of the queue every followEvery, until a tick is at rest or fetching
// stops. A prefetch of 0 it changes at once, so that a free worker does not wait. It takes
// q.control, and waits for the broker. If the broker cannot change a prefetch, it returns and is
// not started again.
func (f *follower) run() {
	if _, ok := capability.As[broker.Resizer](f.q.subscription()); !ok {
		return // running stays true
	}
	if d, ok := capability.As[broker.Divider](f.q.subscription()); ok {
		f.pace.divided = d.Divided()
	}
	clock := time.NewTicker(followEvery)
	defer clock.Stop()
	last := f.t.activity()
	for wait := f.q.Prefetch() != 0; ; wait = true {
		if wait {
			select {
			case <-clock.C:
			case <-f.q.fetch.Done():
				return
			}
		}
		now := f.t.activity()
		t := tick{base: f.q.prefetchOf(now.workers), workers: now.workers, busy: now.busy, took: int(max(0, now.taken-last.taken))}
		if f.q.bounded.Load() { // it holds no more, whatever the workers take
			t.took = min(t.took, t.base)
		}
		rest := f.follow(t)
		prefetch := f.q.Prefetch()
		f.low.Store(prefetch < t.base)
		last = now
		if !rest {
			continue
		}
		f.running.Store(false)
		// a change since the tick has not started this goroutine again
		if f.t.activity() == now && f.q.Prefetch() == prefetch || !f.running.CompareAndSwap(false, true) {
			return
		}
	}
}

// activity tells what workers do and have done. Workers that were removed do not count.
type activity struct {
	workers int   // their configured number
	busy    int   // those that handle a message
	taken   int64 // messages that they have taken
}

// activity returns the present activity of the workers. It takes t.mu.
func (t *Workers) activity() activity {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := activity{workers: t.count()}
	for _, w := range t.members {
		if w.busy.Load() {
			a.busy++
		}
		a.taken += w.taken.Load()
	}
	return a
}

// follow changes the prefetch to what f.pace decides after t, and reports whether the queue is at
// rest. It gives back surplus messages that no worker has taken. It changes nothing while the queue
// is paused, the workers are halted, their number has changed, or an earlier change is repeated.
//
// After an error another goroutine sets the prefetch of the configuration. follow changes nothing
// for a while, longer each time, and logs the first error. It takes q.control.
func (f *follower) follow(t tick) (rest bool) {
	q := f.q
	q.control.Lock()
	defer q.control.Unlock()
	ctx, cancel := context.WithTimeout(q.fetch, openTimeout)
	defer cancel()
	switch {
	case !q.Accepts() || q.workers.halted.Load():
		return t.took == 0
	case q.settingPrefetch || t.workers != q.workers.Count() || time.Now().Before(f.again):
		return false
	}
	now := q.Prefetch()
	want := f.pace.next(now, t)
	surplus := now - want
	if want < min(now, t.base) {
		surplus = allHeld
	}
	err := q.change(ctx, want, surplus)
	if err == nil {
		f.failures = 0
		return t.atRest(q.Prefetch(), f.pace.divided)
	}
	if f.failures == 0 && q.fetch.Err() == nil {
		q.cfg.Log(slog.LevelWarn, "the prefetch cannot be changed; it is repeated", slog.Any("error", err))
	}
	f.again = time.Now().Add(task.Backoff{}.Interval(f.failures))
	f.failures++
	return false
}
