package rates

import (
	"math/rand/v2"
	"slices"
	"sort"
	"time"

	"github.com/swarmiji/swarmiji/task"
	"golang.org/x/time/rate"
)

// plan returns a waiter for r with its start time. It does not add it to the waiting tasks. wait is
// the time until there is a token for r; 0 or less: now. A task that was put back keeps its start
// time and waits only behind waiting tasks with an earlier or the same start time. Call it with
// Rates.mu held.
func (b *bucket) plan(r Run, q *Queue, now time.Time) (w *waiter, wait time.Duration) {
	at := r.StartTime()
	if at.IsZero() {
		at = b.nextStart(now)
		return &waiter{r: r, queue: q, at: at}, at.Sub(now)
	}
	return &waiter{r: r, queue: q, at: at}, b.estimate(now, b.countBefore(at))
}

// countBefore returns the number of waiting tasks with a start time up to and including at. Call it
// with Rates.mu held.
func (b *bucket) countBefore(at time.Time) int {
	return sort.Search(len(b.waiting), func(i int) bool { return b.waiting[i].at.After(at) })
}

// estimate returns the time until there is a token for a task behind n others, 0 if there is one
// now. Call it with Rates.mu held.
func (b *bucket) estimate(now time.Time, n int) time.Duration {
	missing := float64(n+1) - b.limiter.TokensAt(now)
	return max(0, time.Duration(missing*float64(b.interval)))
}

// nextStart returns the next free start time: not before a token is free, after the waiting tasks,
// and after the times promised to put-back tasks. It reserves nothing. Put-back tasks may never
// come: they may be revoked, purged, expired or claimed by another consumer. If none has started
// for long enough and no task waits, it frees all promised times. Call it with Rates.mu held.
func (b *bucket) nextStart(now time.Time) time.Time {
	if len(b.waiting) == 0 && now.Sub(b.used) > 2*b.interval+startGrace {
		b.reservedUntil = time.Time{}
	}
	at := now.Add(b.estimate(now, len(b.waiting)))
	if n := len(b.waiting); n > 0 {
		at = later(at, b.waiting[n-1].at.Add(b.interval))
	}
	return later(at, b.reservedUntil)
}

// later returns the later one of two times.
func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// set changes the limit of the bucket, which then holds the tokens of 100 ms, at least one. It adds
// no tokens to an existing bucket. "" or a malformed limit removes the limiter. It does not move
// the waiting tasks. Call it with Rates.mu held.
func (b *bucket) set(limit string) {
	b.limit = limit
	n, per, err := task.ParseRate(limit)
	if err != nil || n == 0 {
		b.limiter = nil
		return
	}
	perSecond := rate.Limit(float64(n) / per.Seconds())
	burst := max(1, int(perSecond/10))
	b.interval = per / time.Duration(n)
	if b.limiter == nil {
		b.limiter = rate.NewLimiter(perSecond, burst)
		return
	}
	b.limiter.SetLimit(perSecond)
	b.limiter.SetBurst(burst)
}

// wait adds w to the waiting tasks in the order of their start times and marks its task as
// reserved. It then starts the tasks that are due, and sets the timer for the next one. It does not
// block. Call it with rs.mu held.
func (rs *Rates) wait(b *bucket, w *waiter) {
	w.r.Reserve(true)
	b.waiting = slices.Insert(b.waiting, b.countBefore(w.at), w)
	rs.serve(b)
}

// putBackLast puts one task of q back to the broker: of the tasks of b that are set aside, the one
// with the latest start time. Without such a task it does nothing. Call it with rs.mu held.
func (rs *Rates) putBackLast(b *bucket, q *Queue, now time.Time) {
	for i := len(b.waiting) - 1; i >= 0; i-- {
		if w := b.waiting[i]; w.queue == q && w.wake == nil {
			rs.putBackWaiter(b, i, now)
			return
		}
	}
}

// expire ends the time for which the task of w is set aside. It first starts the due tasks of b,
// those of other waiters too. If w then still waits, it puts the task of w back to the broker. It
// takes rs.mu and holds it meanwhile.
func (rs *Rates) expire(b *bucket, w *waiter) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.serve(b) // it may be due now
	if i := slices.Index(b.waiting, w); i >= 0 {
		rs.putBackWaiter(b, i, time.Now())
	}
}

// putBackWaiter removes the waiter with index i, whose task is set aside, from the waiting tasks.
// It stops its timer and puts its task back to the broker. Call it with rs.mu held.
func (rs *Rates) putBackWaiter(b *bucket, i int, now time.Time) {
	w := b.waiting[i]
	b.waiting = slices.Delete(b.waiting, i, i+1)
	w.ends.Stop()
	w.queue.aside--
	w.r.Reserve(false)
	rs.putBack(b, w, now)
}

// putBack returns the task of w to the broker, which delivers it again at its start time. That time
// is then promised to the task: later tasks get later ones. If the start time has passed, the task
// gets a new one. A start time more than maxPutBackDelay away is replaced by a random one shortly
// before that limit, and promises nothing. Call it with rs.mu held.
func (rs *Rates) putBack(b *bucket, w *waiter, now time.Time) {
	at := w.at
	if !at.After(now) {
		at = b.nextStart(now)
	}
	if most := now.Add(maxPutBackDelay); at.After(most) {
		at = most.Add(-rand.N(maxPutBackDelay / 24)) // spread them
	} else {
		b.reservedUntil = later(b.reservedUntil, at.Add(b.interval))
	}
	w.r.PutBack(at)
}

// reschedule gives the waiting tasks new start times after a change of the limit, in their order,
// and starts those that are due. It forgets the times promised to put-back tasks. Without a limit
// it starts all of them. Call it with rs.mu held.
func (rs *Rates) reschedule(b *bucket) {
	now, waiting := time.Now(), b.waiting
	b.waiting, b.reservedUntil = nil, time.Time{}
	for _, w := range waiting {
		if b.limiter == nil {
			w.resolve(true)
			continue
		}
		w.at = b.nextStart(now)
		b.waiting = append(b.waiting, w)
	}
	rs.serve(b)
}

// startDue removes the tasks that are due and have a token from b.waiting and starts them; without
// a limiter it starts all. Waiting tasks before them that the broker has taken back are removed
// too, and given back. It returns the time until the next task may start, or 0 if no task waits.
// Call it with Rates.mu held.
func (b *bucket) startDue() time.Duration {
	for len(b.waiting) > 0 {
		w := b.waiting[0]
		lost := w.r.Lost()
		if !lost && b.limiter != nil {
			if early := time.Until(w.at); early > 0 {
				return early
			}
			token := b.limiter.Reserve()
			if wait := token.Delay(); wait > 0 {
				token.Cancel()
				return wait
			}
			b.used = time.Now()
		}
		b.waiting[0] = nil
		b.waiting = b.waiting[1:]
		w.resolve(!lost)
	}
	return 0
}

// serve starts the waiting tasks of the bucket that are due. It sets the timer that calls serve
// again for the next one, with rs.mu held. Without waiting tasks it sets no timer. Call it with
// rs.mu held.
func (rs *Rates) serve(b *bucket) {
	wait := b.startDue()
	switch {
	case wait <= 0:
	case b.timer != nil:
		b.timer.Reset(wait)
	default:
		b.timer = time.AfterFunc(wait, func() {
			rs.mu.Lock()
			defer rs.mu.Unlock()
			rs.serve(b)
		})
	}
}

// resolve ends the wait of a task: it starts the task (true) or gives it back to the broker
// (false). It ends the reservation, and for a task set aside the timer and the count queue.aside. A
// worker that waits for the task gets the answer instead. The caller removes w from the waiting
// tasks. Call it with Rates.mu held.
func (w *waiter) resolve(start bool) {
	w.r.Reserve(false) // first: a started task may be reserved again for another wait
	if w.wake != nil {
		w.wake <- start
		return
	}
	w.ends.Stop()
	w.queue.aside--
	if start {
		w.r.Start()
	} else {
		w.r.GiveBack()
	}
}
