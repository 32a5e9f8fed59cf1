package sqlconn

import (
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/internal/wake"
)

// remindAfter lists when the topics of a transaction are sent whose commit the Conn does not see:
// after a short one, a usual one and a long one.
var remindAfter = [...]time.Duration{5 * time.Millisecond, 50 * time.Millisecond, 500 * time.Millisecond}

// reminder notifies watchers of topics whose commit is not seen, in this process too. It sends each
// topic at the times of remindAfter. Calls for one topic share their sends: there are at most three
// pending ones for a topic. Safe for concurrent use.
type reminder struct {
	send func(topics []string)

	mu      sync.Mutex
	topics  map[string]*reminders
	running bool
	closed  bool
	added   wake.Signal
	end     chan struct{}
	done    sync.WaitGroup
}

// reminders holds the pending sends of one topic.
type reminders struct {
	last time.Time                   // of the last call
	next [len(remindAfter)]time.Time // zero: none
}

// newReminder returns a reminder that sends with send. It starts no goroutine.
func newReminder(send func(topics []string)) *reminder {
	return &reminder{send: send, topics: make(map[string]*reminders), added: wake.New(), end: make(chan struct{})}
}

// add plans the sends of the topics and starts the goroutine if it does not run. It does not block.
// After close it does nothing. It takes r.mu.
func (r *reminder) add(topics []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || len(topics) == 0 {
		return
	}
	now := time.Now()
	for _, t := range topics {
		p := r.topics[t]
		if p == nil {
			p = new(reminders)
			r.topics[t] = p
		}
		p.last = now
		for i, after := range remindAfter {
			if p.next[i].IsZero() {
				p.next[i] = now.Add(after)
			}
		}
	}
	if !r.running {
		r.running = true
		r.done.Go(r.run)
		return
	}
	r.added.Notify()
}

// run is the body of the goroutine: it calls send with the topics that are due, until none is
// pending or close was called. It takes r.mu, but not while it sends or waits.
func (r *reminder) run() {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		topics, wait, more := r.take()
		if len(topics) > 0 {
			r.send(topics)
		}
		if !more {
			return
		}
		t.Reset(wait)
		select {
		case <-t.C:
		case <-r.added:
		case <-r.end:
		}
	}
}

// take returns the topics that are due at this moment, and the time until the next one. more is
// false if no send is pending, and after close: then run must return. It takes r.mu.
func (r *reminder) take() (topics []string, wait time.Duration, more bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	var next time.Time
	for topic, p := range r.topics {
		if p.fire(now) {
			topics = append(topics, topic)
		}
		left := false
		for _, at := range p.next {
			if !at.IsZero() {
				left = true
				if next.IsZero() || at.Before(next) {
					next = at
				}
			}
		}
		if !left {
			delete(r.topics, topic)
		}
	}
	r.running = len(r.topics) > 0 && !r.closed
	return topics, next.Sub(now), r.running
}

// fire reports whether a send of the topic is due at now, and removes it. If the topic was added
// again after this send was planned, fire plans another one. Call it with mu of the reminder held.
func (p *reminders) fire(now time.Time) (due bool) {
	for i, after := range remindAfter {
		if p.next[i].IsZero() || p.next[i].After(now) {
			continue
		}
		due = true
		if p.next[i] = p.last.Add(after); !p.next[i].After(now) {
			p.next[i] = time.Time{}
		}
	}
	return due
}

// close drops the pending sends and waits for the goroutine. It is idempotent. It takes r.mu, but
// does not hold it while it waits.
func (r *reminder) close() {
	r.mu.Lock()
	if !r.closed {
		r.closed = true
		close(r.end)
	}
	r.mu.Unlock()
	r.done.Wait()
}
