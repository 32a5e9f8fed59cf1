// Package rates delays the start of tasks by their rate limits.
//
// Each task that exceeds its rate limit gets a start time. Until then it is set aside: it stays in
// this process as reserved, and its worker is free for other tasks. At most half of the prefetch of
// a queue is set aside, so that tasks of one name do not block all others.
//
// A task is put back to the broker after a minute, or at once if the limit of tasks set aside is
// reached. The broker delivers it again at its start time. Later tasks get later start times.
//
// With a prefetch of 1 no task can be set aside: the worker waits if the start time is near.
package rates

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/control"
	"golang.org/x/time/rate"
)

// MaxAside is the largest number of tasks of a queue without a prefetch limit that are set aside.
const MaxAside = 1000

const (
	maxAsideTime    = time.Minute    // longest time for which a task is set aside
	maxWorkerWait   = time.Second    // longest wait of a worker
	maxPutBackDelay = 24 * time.Hour // longest delay of a put-back task, since the limit may change
	// with an interval, how late a put-back task may come for its start time
	startGrace = 5 * time.Second
)

// Run is a task that waits for its rate limit. Its methods may be called with the lock of [Rates]
// held and must not call methods of Rates.
type Run interface {
	// StartTime returns the start time for which the task was put back. Zero: it was not put back.
	StartTime() time.Time
	// Lost reports whether the broker has taken the delivery back.
	Lost() bool
	// Reserve adds the task to the reserved tasks of the consumer (true) or removes it (false).
	Reserve(waits bool)
	// Start starts the task and does not wait for its end.
	Start()
	// GiveBack returns the task to the broker, which delivers it again at once.
	GiveBack()
	// PutBack returns the task to the broker, which delivers it again at the given time. No attempt is
	// counted.
	PutBack(at time.Time)
}

// Queue is a queue of the broker whose tasks wait in [Rates].
type Queue struct {
	// Open reports whether tasks of the queue may start at all.
	Open func() bool
	// Capacity returns how many tasks of the queue may be set aside.
	Capacity func() int

	aside int // number of tasks set aside; guarded by Rates.mu
}

// Rates holds a token bucket for each task name with a rate limit. A bucket holds the tokens of 100
// ms, at least one. The zero value is ready for use. Safe for concurrent use.
type Rates struct {
	changed atomic.Bool // Override was called

	mu        sync.Mutex
	closed    bool
	buckets   map[string]*bucket
	overrides map[string]string // limits of Override, by task name
}

// bucket is the token bucket of one task name, with the tasks that wait for its tokens. All fields
// are guarded by Rates.mu.
type bucket struct {
	declared      string // latest limit of the metadata
	limit         string // limit in force
	limiter       *rate.Limiter
	interval      time.Duration // time between two tokens
	waiting       []*waiter     // sorted by start time
	timer         *time.Timer   // fires at the next start time
	reservedUntil time.Time     // until then all start times are promised to put-back tasks
	used          time.Time     // time of the last token that a task took
}

// waiter is a task that waits for its start time.
type waiter struct {
	r     Run
	queue *Queue
	at    time.Time   // start time
	ends  *time.Timer // ends the time for which the task is set aside
	// receives true when the task may start, false when it must not; nil: the task is set aside
	wake chan bool
}

// Override sets the limit of a task instead of the limit of its metadata. It gives the waiting
// tasks of that name new start times and starts those that are due. Without waiting tasks it only
// stores the limit. "" or a malformed limit means no limit: all of them start.
// [control.RateDefault] removes the override; the limit of the metadata then applies again. It
// takes rs.mu.
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
		rs.reschedule(b)
	}
}

// Admit reports whether the rate limit of the task lets r start now. name is the name of the task,
// and declared the limit in its metadata. It takes rs.mu, but not while it waits. The first case
// that applies counts:
//
//   - declared is empty and Override was never called: it returns true.
//   - Close was called, or the queue is not open: it gives r back and returns false.
//   - There is no limit, or a token is free: it returns true.
//   - The queue may set tasks aside: it sets r aside and returns false. If the queue then has too
//     many tasks set aside, the one of this name with the latest start time is put back to the
//     broker.
//   - The start time is more than a second away: it puts r back at once and returns false.
//   - Otherwise it blocks until the start time and returns true. A GiveBack or Close ends the wait:
//     Admit gives r back and returns false.
//
// If Admit returns false, it owns r: it starts r at its start time, or has given it to the broker.
func (rs *Rates) Admit(r Run, q *Queue, name, declared string) bool {
	if declared == "" && !rs.changed.Load() {
		return true
	}
	rs.mu.Lock()
	if rs.closed || !q.Open() { // GiveBack or Close has run, or waits for mu
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
	room := q.Capacity()
	switch {
	case wait <= 0 && b.limiter.AllowN(now, 1):
		b.used = now
		rs.mu.Unlock()
		return true
	case room == 0 && wait > maxWorkerWait:
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
	w.ends = time.AfterFunc(maxAsideTime, func() { rs.expire(b, w) })
	rs.wait(b, w)
	if q.aside > room {
		rs.putBackLast(b, q, now)
	}
	rs.mu.Unlock()
	return false
}

// bucket returns the bucket of a task and sets its limit to the one in force: the override, else
// declared. If that changed, it starts the waiting tasks that are due. It makes the bucket if there
// is a limit. Without a bucket and a limit it returns nil. The limiter of the bucket is nil if the
// limit is missing or malformed. Producers refuse a malformed limit; from other senders it is
// ignored. Call it with rs.mu held.
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

// GiveBack gives all waiting tasks of a queue back to the broker, with Run.GiveBack; of all queues
// if q is nil. A worker that waits in Admit is woken and gives its task back itself. It takes
// rs.mu.
func (rs *Rates) GiveBack(q *Queue) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, b := range rs.buckets {
		rest := b.waiting[:0:0]
		for _, w := range b.waiting {
			if q == nil || w.queue == q {
				w.resolve(false)
			} else {
				rest = append(rest, w)
			}
		}
		b.waiting = rest
	}
}

// Close gives back all waiting tasks, see GiveBack, and stops the timers. Later calls of Admit for
// tasks with a limit give their task back too. It takes rs.mu and does not wait until the tasks are
// given back.
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
