package consumer

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/task"
)

// A task that its rate does not let start gets a turn: the time of its start. Until then it is set
// aside: it stays reserved, and its worker is free for others. A queue sets aside up to half its
// prefetch, so that tasks of one name do not keep all others away. A task that has no room, or was
// set aside for a minute, is put back and comes again at its turn; new tasks get later turns. With a
// prefetch of 1 there is no room: the worker itself waits if the turn is near.
const (
	maxAside     = 1000            // set aside where the prefetch has no limit
	asideFor     = time.Minute     // for which a task is set aside at most
	ratePatience = time.Second     // for which a worker waits
	maxRateDelay = 24 * time.Hour  // for which a task is put back: the limit may have changed by then
	turnLate     = 5 * time.Second // how late for its turn a put-back task may be, beside an interval
)

// RateDefault is the rate that has SetRateLimit take back what it did before.
const RateDefault = control.RateDefault

// rates holds a token bucket for each task name that has a rate limit. The bucket holds what 100 ms
// give, at least one token. The zero value is ready.
type rates struct {
	changed atomic.Bool // there were overrides

	mu        sync.Mutex
	closed    bool
	buckets   map[string]*bucket
	overrides map[string]string // of SetRateLimit, by task
}

type bucket struct {
	declared string // the limit that the metadata said last
	limit    string // that holds
	limiter  *rate.Limiter
	interval time.Duration // from one token to the next
	waiting  []*waiter     // in the order of their turns
	timer    *time.Timer   // for the next turn, while somebody waits
	back     time.Time     // until then the turns are those of tasks that were put back
	used     time.Time     // when a task last took a token
}

// waiter is a run that waits for its rate.
type waiter struct {
	r    *run
	at   time.Time   // its turn
	ends *time.Timer // ends the time for which it is set aside
	wake chan bool   // gets true when the run may start, false when it must not; nil: it was set aside
}

// SetRateLimit sets the rate limit of a task in this process, such as "10/s", "600/m" or "5000/h",
// over what its metadata say. "" is no limit, [RateDefault] takes back what was set. It holds at
// once, for tasks that wait here already too, and until the process ends; a task that was put back
// in the broker comes when the limit before let it. It may be called at any time, from any
// goroutine.
//
// A rate that cannot be read is [task.ErrBadMetadata], a task without a handler [task.ErrUnknownTask].
func (c *Consumer) SetRateLimit(name, limit string) error {
	if limit != RateDefault {
		if _, _, err := task.ParseRate(limit); err != nil {
			return err
		}
	}
	if _, _, ok := c.mux.Lookup(name); !ok {
		return fmt.Errorf("%w: %q", task.ErrUnknownTask, utf.Cut(name, 128))
	}
	c.rates.override(name, limit)
	return nil
}

func (rs *rates) override(name, limit string) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	b := rs.buckets[name]
	if limit == RateDefault {
		delete(rs.overrides, name)
		if b != nil {
			limit = b.declared
		}
	} else {
		if rs.overrides == nil {
			rs.overrides = make(map[string]string)
		}
		rs.overrides[name] = limit
		rs.changed.Store(true)
	}
	if b != nil {
		b.set(limit)
		rs.replan(b)
	}
}

// admit reports whether the task's rate limit lets it start now. Otherwise it has taken the run over.
func (q *queue) admit(r *run) bool {
	limit := r.request.Effective.RateLimit.Or("")
	if limit == "" && !q.c.rates.changed.Load() {
		return true
	}
	return q.c.rates.admit(r, limit)
}

func (rs *rates) admit(r *run, declared string) bool {
	rs.mu.Lock()
	q := r.queue
	if rs.closed || !q.takes() { // giveBack has been, or comes when mu is free
		rs.mu.Unlock()
		r.unstarted()
		return false
	}
	b := rs.bucket(r.request.Name, declared)
	if b == nil || b.limiter == nil {
		rs.mu.Unlock()
		return true
	}
	now := time.Now()
	w, wait := b.plan(r, now)
	room := q.room()
	switch {
	case wait <= 0 && b.limiter.AllowN(now, 1):
		b.used = now
		rs.mu.Unlock()
		return true
	case room == 0 && wait > ratePatience:
		rs.putBack(b, w, now)
		rs.mu.Unlock()
		return false
	case room == 0:
		w.wake = make(chan bool, 1)
		rs.wait(b, w)
		rs.mu.Unlock()
		if <-w.wake {
			return true
		}
		r.unstarted()
		return false
	}
	q.aside++
	w.ends = time.AfterFunc(asideFor, func() { rs.expire(b, w) })
	rs.wait(b, w)
	if q.aside > room {
		rs.makeRoom(b, q, now)
	}
	rs.mu.Unlock()
	return false
}

// plan gives a run its turn, and tells in how long it would start. One that was put back has its
// turn already.
func (b *bucket) plan(r *run, now time.Time) (w *waiter, wait time.Duration) {
	at := r.request.Effective.NotBefore.Or(time.Time{})
	if at.IsZero() || !wire.Held(r.message, wire.HeaderTurn, at) {
		at = b.promise(now)
		return &waiter{r: r, at: at}, at.Sub(now)
	}
	return &waiter{r: r, at: at}, b.estimate(now, b.before(at))
}

// before returns how many wait whose turn is not after at.
func (b *bucket) before(at time.Time) int {
	return sort.Search(len(b.waiting), func(i int) bool { return b.waiting[i].at.After(at) })
}

// estimate returns in how long there is a token for whoever comes after n others.
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

// wait puts a waiter in the line.
func (rs *rates) wait(b *bucket, w *waiter) {
	w.r.queue.c.reserved.add(w.r)
	b.waiting = slices.Insert(b.waiting, b.before(w.at), w)
	rs.serve(b)
}

// makeRoom puts back the one of a queue's tasks whose turn is the last.
func (rs *rates) makeRoom(b *bucket, q *queue, now time.Time) {
	for i := len(b.waiting) - 1; i >= 0; i-- {
		if w := b.waiting[i]; w.r.queue == q && w.wake == nil {
			rs.takeOut(b, i, now)
			return
		}
	}
}

// expire puts back a task that has been set aside for long enough.
func (rs *rates) expire(b *bucket, w *waiter) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.serve(b) // its turn may be now
	if i := slices.Index(b.waiting, w); i >= 0 {
		rs.takeOut(b, i, time.Now())
	}
}

// takeOut puts back a task that was set aside.
func (rs *rates) takeOut(b *bucket, i int, now time.Time) {
	w := b.waiting[i]
	b.waiting = slices.Delete(b.waiting, i, i+1)
	w.ends.Stop()
	w.r.queue.aside--
	w.r.queue.c.reserved.remove(w.r)
	rs.putBack(b, w, now)
}

// putBack puts a task back until its turn. One whose turn has passed gets another.
func (rs *rates) putBack(b *bucket, w *waiter, now time.Time) {
	at := w.at
	if !at.After(now) {
		at = b.promise(now)
	}
	if most := now.Add(maxRateDelay); at.After(most) {
		at = most.Add(-rand.N(maxRateDelay / 24)) // not all at once
	} else {
		b.back = later(b.back, at.Add(b.interval))
	}
	w.r.sendBackUntilTurn(at)
}

// replan gives those that wait turns by a limit that has changed.
func (rs *rates) replan(b *bucket) {
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

// bucket returns the bucket of a task. nil, or one without a limiter: there is no limit, or none that can be read, which the
// producer would have refused; a foreign writer's is ignored.
func (rs *rates) bucket(name, declared string) *bucket {
	limit := declared
	if o, ok := rs.overrides[name]; ok {
		limit = o
	}
	b := rs.buckets[name]
	if b == nil {
		if limit == "" {
			return nil
		}
		if rs.buckets == nil {
			rs.buckets = make(map[string]*bucket)
		}
		b = &bucket{}
		rs.buckets[name] = b
	}
	b.declared = declared
	if b.limit != limit {
		b.set(limit)
		rs.serve(b)
	}
	return b
}

// set changes the limit. One that is new does not fill the bucket again.
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

// startDue starts the runs whose turn has come. It returns the time to the next turn; 0: no run
// waits.
func (b *bucket) startDue() time.Duration {
	for len(b.waiting) > 0 {
		w := b.waiting[0]
		lost := w.r.isLost()
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

// serve starts those whose turn has come, and sets the timer for the next.
func (rs *rates) serve(b *bucket) {
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

// answer starts a run, or gives it back. The mutex of the rates is held.
func (w *waiter) answer(start bool) {
	r, c := w.r, w.r.queue.c
	c.reserved.remove(r) // before it goes on, and may have to wait for something else
	if w.wake != nil {
		w.wake <- start
		return
	}
	w.ends.Stop()
	r.queue.aside--
	if !start {
		r.unstarted()
		return
	}
	c.settling.Go(r.begin)
}

// begin starts a run that was set aside.
func (r *run) begin() {
	if at, ok := r.request.Effective.Expires.Get(); ok && !at.IsZero() && time.Now().After(at) {
		r.queue.settle(r, verdict{kind: expired, err: task.ErrExpired})
		return
	}
	r.queue.start(r)
}

// sendBackUntilTurn puts the task back until its turn. No attempt is counted.
func (r *run) sendBackUntilTurn(at time.Time) {
	r.queue.c.settling.Go(func() {
		next := r.copy()
		next.turn = true
		if r.replace(r.queue.source, next, next.until(at), "wait for its rate") {
			r.queue.c.cfg.Metrics.Snoozed.Inc(1)
		}
	})
}

// room returns how many tasks of the queue may be set aside: half of what it may hold.
func (q *queue) room() int {
	held := q.cfg.prefetch(q.team.workers())
	if held == noLimit {
		return maxAside
	}
	return held / 2
}

// giveBack gives back those of the waiting runs that which chooses.
func (rs *rates) giveBack(which func(*run) bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, b := range rs.buckets {
		rest := b.waiting[:0:0]
		for _, w := range b.waiting {
			if which(w.r) {
				w.answer(false)
			} else {
				rest = append(rest, w)
			}
		}
		b.waiting = rest
	}
}

// close gives back all that waits, and whatever comes.
func (rs *rates) close() {
	rs.mu.Lock()
	rs.closed = true
	for _, b := range rs.buckets {
		if b.timer != nil {
			b.timer.Stop()
		}
	}
	rs.mu.Unlock()
	rs.giveBack(func(*run) bool { return true })
}
