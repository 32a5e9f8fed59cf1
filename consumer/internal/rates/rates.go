// Package rates keeps tasks from starting faster than their rate limits allow.
//
// A task that its rate does not let start gets a turn: the time of its start. Until then it is set
// aside: it stays reserved, and its worker is free for other tasks. A queue sets aside up to half
// its prefetch, so that tasks of one name do not block all others.
//
// A task without room, or set aside for a minute, is put back and comes again at its turn. New
// tasks get later turns. With a prefetch of 1 there is no room: the worker waits if the turn is
// near.
package rates

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/control"
	"golang.org/x/time/rate"
)

// MaxAside is how many tasks of a queue may be set aside if its prefetch has no limit.
const MaxAside = 1000

const (
	asideFor     = time.Minute     // the most time that a task is set aside
	ratePatience = time.Second     // the most time that a worker waits
	maxRateDelay = 24 * time.Hour  // the most delay of a put-back task: the limit may change
	turnLate     = 5 * time.Second // how late for its turn a put-back task may be, beside an interval
)

// Run is a task that is to start. No method calls back into [Rates].
type Run interface {
	// Turn is the turn for which the task was put back. Zero: it was not put back.
	Turn() time.Time
	// Lost reports whether the broker has taken the delivery back.
	Lost() bool
	// Reserve sets whether the task waits here.
	Reserve(waits bool)
	// Start starts it, and does not wait for its end.
	Start()
	// GiveBack returns it to the broker, which delivers it again at once.
	GiveBack()
	// PutBack returns it to the broker, which delivers it again at a time. No attempt is counted.
	PutBack(at time.Time)
}

// Line is a queue whose tasks wait here.
type Line struct {
	// Open reports whether tasks of the queue may start at all.
	Open func() bool
	// Room returns how many tasks of the queue may be set aside.
	Room func() int

	aside int // guarded by Rates.mu
}

// Rates holds a token bucket for each task name that has a rate limit. The bucket holds what 100 ms
// give, at least one token. The zero value is ready.
type Rates struct {
	changed atomic.Bool // there were overrides

	mu        sync.Mutex
	closed    bool
	buckets   map[string]*bucket
	overrides map[string]string // of SetRateLimit, by task
}

type bucket struct {
	declared string // the last limit of the metadata
	limit    string // the limit in force
	limiter  *rate.Limiter
	interval time.Duration // from one token to the next
	waiting  []*waiter     // in the order of their turns
	timer    *time.Timer   // for the next turn, while a run waits
	back     time.Time     // turns until then belong to put-back tasks
	used     time.Time     // when a task last took a token
}

// waiter is a run that waits for its rate.
type waiter struct {
	r    Run
	line *Line
	at   time.Time   // its turn
	ends *time.Timer // ends the time for which it is set aside
	wake chan bool   // gets true when the run may start, false when it must not; nil: it was set aside
}

// Override sets the limit of a task instead of that of its metadata. [control.RateDefault] undoes
// it.
func (rs *Rates) Override(name, limit string) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	b := rs.buckets[name]
	if limit == control.RateDefault {
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

// Admit reports whether the rate limit of the task lets r start now. Otherwise it takes r over: it
// starts r at its turn, or puts it back. If there is no room, a worker may wait for up to a second.
// declared is the limit of the metadata.
func (rs *Rates) Admit(r Run, q *Line, name, declared string) bool {
	if declared == "" && !rs.changed.Load() {
		return true
	}
	rs.mu.Lock()
	if rs.closed || !q.Open() { // GiveBack has run, or runs when mu is free
		rs.mu.Unlock()
		r.GiveBack()
		return false
	}
	b := rs.bucket(name, declared)
	if b == nil || b.limiter == nil {
		rs.mu.Unlock()
		return true
	}
	now := time.Now()
	w, wait := b.plan(r, q, now)
	room := q.Room()
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
		r.GiveBack()
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

// bucket returns the bucket of a task. nil, or a bucket without a limiter: there is no limit, or it
// cannot be read. A producer refuses such a limit; one of a foreign sender is ignored.
func (rs *Rates) bucket(name, declared string) *bucket {
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

// GiveBack gives back all waiting runs of a queue; nil: of all queues.
func (rs *Rates) GiveBack(q *Line) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, b := range rs.buckets {
		rest := b.waiting[:0:0]
		for _, w := range b.waiting {
			if q == nil || w.line == q {
				w.answer(false)
			} else {
				rest = append(rest, w)
			}
		}
		b.waiting = rest
	}
}

// Close gives back all waiting runs, and all later ones.
func (rs *Rates) Close() {
	rs.mu.Lock()
	rs.closed = true
	for _, b := range rs.buckets {
		if b.timer != nil {
			b.timer.Stop()
		}
	}
	rs.mu.Unlock()
	rs.GiveBack(nil)
}
