package intake

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
)

const (
	// followEvery is the time between two ticks, and the amount of work that a consumer holds.
	followEvery = 50 * time.Millisecond
	// mostFollowed limits a prefetch that follows the work, unless Config.Prefetch is larger.
	mostFollowed = 256
)

// pace decides about the prefetch of a queue whose prefetch follows the work.
type pace struct {
	free int // ticks in a row at which a worker was free
}

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
//   - Else the queue holds as many messages as the workers took, which is about 50 ms of work: at
//     least t.base, and at most mostFollowed or t.base. It becomes smaller only if the workers are
//     busy, since a queue that is empty holds nothing.
func (p *pace) next(now int, t tick) int {
	full := t.busy >= t.workers
	p.free++
	if full {
		p.free = 0
	}
	want := min(max(t.took, t.base), max(t.base, mostFollowed))
	switch {
	case full && t.took == 0:
		return min(now, t.workers)
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

// atRest reports whether nothing changes until a worker takes a message: no worker has taken one,
// and the prefetch is not below t.base although workers are free.
func (t tick) atRest(prefetch int) bool {
	return t.took == 0 && (t.busy >= t.workers || prefetch >= t.base)
}

// follower lets the prefetch of one queue follow the work of its workers. Its goroutine runs only
// while workers take messages, or are free beside a low prefetch.
type follower struct {
	q       *Queue
	t       *Workers
	running atomic.Bool
	low     atomic.Bool // the prefetch is below the base
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
// stops. It takes q.control, and waits for the broker.
func (f *follower) run() {
	clock := time.NewTicker(followEvery)
	defer clock.Stop()
	var p pace
	_, seen := f.t.activity()
	for {
		select {
		case <-clock.C:
		case <-f.q.fetch.Done():
			return
		}
		busy, taken := f.t.activity()
		n := f.t.Count()
		last := tick{base: f.q.cfg.Prefetch(n), workers: n, busy: busy, took: int(max(0, taken-seen))}
		rest := f.q.follow(&p, last)
		f.low.Store(f.q.Prefetch() < last.base)
		seen = taken
		if !rest {
			continue
		}
		f.running.Store(false)
		// a worker that began or ended since the tick has not started this goroutine again
		if b, n := f.t.activity(); b == busy && n == seen || !f.running.CompareAndSwap(false, true) {
			return
		}
	}
}

// activity returns the number of workers that handle a message, and the number of messages that the
// workers have taken. Workers that were removed do not count. It takes t.mu.
func (t *Workers) activity() (busy int, taken int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range t.members {
		if w.busy.Load() {
			busy++
		}
		taken += w.taken.Load()
	}
	return busy, taken
}

// follow changes the prefetch to what p decides after t, and reports whether the queue is at rest.
// It gives back surplus messages that no worker has taken. It changes nothing while the queue is
// paused, the workers are halted, the broker cannot change a prefetch, or an earlier change is
// repeated. After an error, which it logs, another goroutine repeats the change. It takes
// q.control.
func (q *Queue) follow(p *pace, t tick) (rest bool) {
	ctx, cancel := context.WithTimeout(q.fetch, openTimeout)
	defer cancel()
	q.control.Lock()
	defer q.control.Unlock()
	if _, ok := capability.As[broker.Resizer](q.subscription()); !ok || !q.Accepts() || q.workers.halted.Load() {
		return t.took == 0
	}
	now := q.Prefetch()
	want := p.next(now, t)
	if q.settingPrefetch {
		want = now
	}
	surplus := now - want
	if want < t.base {
		surplus = allHeld
	}
	if err := q.change(ctx, want, surplus); err != nil && q.fetch.Err() == nil {
		q.cfg.Log(slog.LevelWarn, "the prefetch cannot be changed; it is repeated", slog.Any("error", err))
	}
	return t.atRest(q.Prefetch())
}
