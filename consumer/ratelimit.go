package consumer

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/task"
)

// A task whose rate does not let it start is set aside: it stays reserved, its worker is free for others, and it starts when its turn
// comes. A queue has room for as many as its prefetch is larger than its workers. Beyond that the worker itself waits if that is short,
// and else the task is put back with a delay: all that is held would otherwise be of one task, and the others behind it would wait for
// ever.
const (
	maxAside     = 1000            // set aside where the prefetch has no limit
	ratePatience = time.Second     // for which a worker waits
	maxRateDelay = 2 * time.Minute // for which a task is put back: the limit may have changed by then
)

// RateDefault is the rate that has SetRateLimit take back what it did before.
const RateDefault = control.RateDefault

// rates holds a token bucket for each task name that has a rate limit. The bucket holds what one second gives, at least
// one token. The zero value is ready.
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
	waiting  []*waiter     // in the order they came
	timer    *time.Timer   // for the next token, while somebody waits
	back     time.Time     // up to which tasks are put back
}

// waiter is a run that waits for its rate.
type waiter struct {
	r    *run
	turn chan bool // gets true when the run may start, false when it must not; nil: it was set aside
}

// SetRateLimit sets the rate limit of a task in this process, such as "10/s", "600/m" or "5000/h", over what its metadata say.
// "" is no limit, [RateDefault] takes back what was set. It holds at once, for tasks that wait already too, and until the
// process ends. It may be called at any time, from any goroutine.
//
// A rate that cannot be read is [task.ErrBadMetadata], a task without a handler [task.ErrUnknownTask].
func (c *Consumer) SetRateLimit(name, limit string) error {
	if limit != RateDefault {
		if _, _, err := task.ParseRate(limit); err != nil {
			return err
		}
	}
	if _, _, ok := c.mux.Lookup(name); !ok {
		return fmt.Errorf("%w: %q", task.ErrUnknownTask, task.Text(name, 128))
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
		b.back = time.Time{}
		rs.serve(b)
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
	if b == nil || b.limiter == nil || len(b.waiting) == 0 && b.limiter.Allow() {
		rs.mu.Unlock()
		return true
	}
	w := &waiter{r: r}
	wait := b.estimate()
	switch {
	case q.aside < q.room():
		q.aside++
	case wait <= ratePatience:
		w.turn = make(chan bool, 1)
	default:
		at := b.putBack(wait)
		rs.mu.Unlock()
		r.sendBack(at)
		return false
	}
	q.c.reserved.add(r)
	b.waiting = append(b.waiting, w)
	if len(b.waiting) == 1 {
		rs.arm(b, wait)
	}
	rs.mu.Unlock()
	if w.turn == nil {
		return false
	}
	if <-w.turn {
		return true
	}
	r.unstarted()
	return false
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
	burst := max(1, int(perSecond))
	b.interval = per / time.Duration(n)
	if b.limiter == nil {
		b.limiter = rate.NewLimiter(perSecond, burst)
		return
	}
	b.limiter.SetLimit(perSecond)
	b.limiter.SetBurst(burst)
}

// estimate returns in how long whoever comes now would have its turn.
func (b *bucket) estimate() time.Duration {
	missing := float64(len(b.waiting)+1) - b.limiter.Tokens()
	return max(0, time.Duration(missing*float64(b.interval)))
}

// putBack returns when a task that is put back is to come again: when its turn may be, one after the other, and not all together.
func (b *bucket) putBack(wait time.Duration) time.Time {
	now := time.Now()
	first, last := now.Add(wait), now.Add(maxRateDelay)
	if b.back.Before(first) {
		b.back = first
	}
	at := b.back
	if at.After(last) {
		at = last
	} else {
		b.back = b.back.Add(b.interval)
	}
	return at.Add(rand.N(max(at.Sub(now)/10, time.Millisecond)))
}

// serve starts those whose turn has come, and returns in how long the next one's will; 0: nobody waits.
func (b *bucket) serve() time.Duration {
	for len(b.waiting) > 0 {
		w := b.waiting[0]
		lost := w.r.isLost()
		if !lost && b.limiter != nil {
			token := b.limiter.Reserve()
			if wait := token.Delay(); wait > 0 {
				token.Cancel()
				return wait
			}
		}
		b.waiting[0] = nil
		b.waiting = b.waiting[1:]
		w.answer(!lost)
	}
	return 0
}

// arm sets the timer of a bucket.
func (rs *rates) arm(b *bucket, wait time.Duration) {
	if b.timer != nil {
		b.timer.Reset(wait)
		return
	}
	b.timer = time.AfterFunc(wait, func() {
		rs.mu.Lock()
		defer rs.mu.Unlock()
		rs.serve(b)
	})
}

// serve starts those whose turn has come, and sets the timer for the next.
func (rs *rates) serve(b *bucket) {
	if wait := b.serve(); wait > 0 {
		rs.arm(b, wait)
	}
}

// answer starts a run, or gives it back. The mutex of the rates is held.
func (w *waiter) answer(start bool) {
	r, c := w.r, w.r.queue.c
	switch {
	case w.turn != nil:
		c.reserved.remove(r)
		w.turn <- start
		return
	case !start:
		r.unstarted()
	default:
		c.settling.Go(r.begin)
	}
	r.queue.aside--
	c.reserved.remove(r)
}

// begin starts a run that was set aside.
func (r *run) begin() {
	if at, ok := r.request.Effective.Expires.Get(); ok && !at.IsZero() && time.Now().After(at) {
		r.queue.settle(r, verdict{kind: expired, err: task.ErrExpired})
		return
	}
	r.queue.start(r)
}

// sendBack puts the task back until a moment. No attempt is counted.
func (r *run) sendBack(at time.Time) {
	r.queue.c.settling.Go(func() {
		next := r.copy()
		at := next.delay(time.Until(at))
		if r.replace(r.queue.source, next, at, "wait for its rate") {
			r.queue.c.cfg.Metrics.Snoozed.Inc(1)
		}
	})
}

// room returns how many tasks of the queue may be set aside.
func (q *queue) room() int {
	workers := q.team.workers()
	held := q.cfg.prefetch(workers)
	if held == noLimit {
		return maxAside
	}
	return max(0, held-workers)
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
