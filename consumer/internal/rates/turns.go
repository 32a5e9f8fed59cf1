package rates

import (
	"math/rand/v2"
	"slices"
	"sort"
	"time"

	"github.com/swarmiji/swarmiji/task"
	"golang.org/x/time/rate"
)

// plan gives a run its turn, and returns the time until it would start. A run that was put back has
// its turn already.
func (b *bucket) plan(r Run, q *Line, now time.Time) (w *waiter, wait time.Duration) {
	at := r.Turn()
	if at.IsZero() {
		at = b.promise(now)
		return &waiter{r: r, line: q, at: at}, at.Sub(now)
	}
	return &waiter{r: r, line: q, at: at}, b.estimate(now, b.before(at))
}

// before returns how many runs wait whose turn is not after at.
func (b *bucket) before(at time.Time) int {
	return sort.Search(len(b.waiting), func(i int) bool { return b.waiting[i].at.After(at) })
}

// estimate returns the time until there is a token for a run behind n others.
func (b *bucket) estimate(now time.Time, n int) time.Duration {
	missing := float64(n+1) - b.limiter.TokensAt(now)
	return max(0, time.Duration(missing*float64(b.interval)))
}

// promise returns the next free turn. Tasks that were put back may never come: revoked,
// purged, expired, or claimed by another consumer. When one of their turns has passed unused, all of
// their turns are free.
func (b *bucket) promise(now time.Time) time.Time {
	if len(b.waiting) == 0 && now.Sub(b.used) > 2*b.interval+turnLate {
		b.back = time.Time{}
	}
	at := now.Add(b.estimate(now, len(b.waiting)))
	if n := len(b.waiting); n > 0 {
		at = later(at, b.waiting[n-1].at.Add(b.interval))
	}
	return later(at, b.back)
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// set changes the limit. A new limit does not fill the bucket.
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

// wait puts a waiter in the line.
func (rs *Rates) wait(b *bucket, w *waiter) {
	w.r.Reserve(true)
	b.waiting = slices.Insert(b.waiting, b.before(w.at), w)
	rs.serve(b)
}

// makeRoom puts back the task of a queue that has the last turn.
func (rs *Rates) makeRoom(b *bucket, q *Line, now time.Time) {
	for i := len(b.waiting) - 1; i >= 0; i-- {
		if w := b.waiting[i]; w.line == q && w.wake == nil {
			rs.takeOut(b, i, now)
			return
		}
	}
}

// expire puts back a task that has been set aside for the most time.
func (rs *Rates) expire(b *bucket, w *waiter) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.serve(b) // its turn may be now
	if i := slices.Index(b.waiting, w); i >= 0 {
		rs.takeOut(b, i, time.Now())
	}
}

// takeOut puts back a task that was set aside.
func (rs *Rates) takeOut(b *bucket, i int, now time.Time) {
	w := b.waiting[i]
	b.waiting = slices.Delete(b.waiting, i, i+1)
	w.ends.Stop()
	w.line.aside--
	w.r.Reserve(false)
	rs.putBack(b, w, now)
}

// putBack puts a task back until its turn. One whose turn has passed gets another.
func (rs *Rates) putBack(b *bucket, w *waiter, now time.Time) {
	at := w.at
	if !at.After(now) {
		at = b.promise(now)
	}
	if most := now.Add(maxRateDelay); at.After(most) {
		at = most.Add(-rand.N(maxRateDelay / 24)) // not all at once
	} else {
		b.back = later(b.back, at.Add(b.interval))
	}
	w.r.PutBack(at)
}

// replan gives the waiting runs new turns after a change of the limit.
func (rs *Rates) replan(b *bucket) {
	now, waiting := time.Now(), b.waiting
	b.waiting, b.back = nil, time.Time{}
	for _, w := range waiting {
		if b.limiter == nil {
			w.answer(true)
			continue
		}
		w.at = b.promise(now)
		b.waiting = append(b.waiting, w)
	}
	rs.serve(b)
}

// startDue starts the runs whose turn has come. It returns the time to the next turn; 0: no run
// waits.
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
		w.answer(!lost)
	}
	return 0
}

// serve starts the runs whose turn has come, and sets the timer for the next one.
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

// answer starts a run, or gives it back. The caller holds the mutex of Rates.
func (w *waiter) answer(start bool) {
	w.r.Reserve(false) // before it goes on: it may wait for something else next
	if w.wake != nil {
		w.wake <- start
		return
	}
	w.ends.Stop()
	w.line.aside--
	if start {
		w.r.Start()
	} else {
		w.r.GiveBack()
	}
}
