package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// leadData is what the one who serves a queue tells of it.
type leadData struct {
	Node      string    `json:"node"`
	Limit     int64     `json:"limit"` // in thousandths; 0: none
	Strict    bool      `json:"strict"`
	Order     Order     `json:"order"`
	Throttler bool      `json:"throttler"`
	Looked    time.Time `json:"looked"`            // when it looked last
	Busy      bool      `json:"busy"`              // no worker was free for more then
	Refused   []ID      `json:"refused,omitempty"` // the first jobs that the throttler did not start
}

// mostRefused is how many jobs are told of that a throttler did not start.
const mostRefused = 100

// lead is a runner's part in serving a queue: it has the lease of the queue, or stands by for it.
type lead struct {
	s      *Service
	q      Queue
	node   string
	lease  time.Duration
	begin  func(*Row) error
	report func(error)

	held     func(*Row, error) // is told of jobs that are held because their windows cannot be read
	entrusts bool              // its jobs are left to tasks, which have time limits of their own: no attempt has a deadline

	signal chan struct{} // something has happened
	tell   chan struct{} // what is told of the queue has changed
	pace   pace          // this and what follows is next's
	roster *roster       // nil: to be read
	looked time.Time     // the store's, when the queue was looked at last

	mu     sync.Mutex
	token  int64 // 0: it stands by
	data   leadData
	end    context.CancelFunc // of keep; nil: it was not begun
	done   chan struct{}
	closed bool
}

// newLead makes a lead. begin sets Key and Respond of a job before it is saved as begun; report is told of what goes wrong.
func newLead(s *Service, q Queue, node string, lease time.Duration, begin func(*Row) error, report func(error)) *lead {
	return &lead{
		s: s, q: q, node: node, lease: wholeMicros(lease), begin: begin, report: report,
		held:   func(_ *Row, err error) { report(err) },
		signal: make(chan struct{}, 1), tell: make(chan struct{}, 1),
		data: leadData{Node: node, Limit: q.limit(), Strict: q.Strict, Order: q.Order, Throttler: q.Throttler != nil},
	}
}

// changed has the queue looked at: a job of it has ended here.
func (l *lead) changed() { poke(l.signal) }

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// start begins to keep the lease and to hear the store's word, if that was not done.
func (l *lead) start() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ErrClosed
	}
	if l.end != nil {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.end, l.done = cancel, make(chan struct{})
	unwatch := l.s.c.Store.Watch(l.hear)
	go func() {
		defer close(l.done)
		defer unwatch()
		l.keep(ctx)
	}()
	return nil
}

// hear is what the store calls.
func (l *lead) hear(names []string) {
	mine := names == nil
	for _, name := range names {
		mine = mine || name == QueueWord(l.q.Name) || name == jobstore.LeaseWord && l.fence() == 0
	}
	if mine {
		poke(l.signal)
	}
}

// fence is the token of the lease, 0 for who has not got it.
func (l *lead) fence() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.token
}

// lost notes that somebody else has the lease.
func (l *lead) lost(token int64) {
	l.mu.Lock()
	if l.token == token {
		l.token = 0
	}
	l.mu.Unlock()
	poke(l.signal)
}

// note keeps what a look has come to, for who asks why.
func (l *lead) note(now time.Time, busy bool, refused []ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	news := l.data.Busy != busy || !sameIDs(l.data.Refused, refused)
	l.data.Looked, l.data.Busy, l.data.Refused = now, busy, refused
	if news {
		poke(l.tell)
	}
}

func sameIDs(a, b []ID) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// keep renews the lease until ctx ends, and writes what is told of the queue, at most once a second.
func (l *lead) keep(ctx context.Context) {
	timer := time.NewTimer(l.lease / 3)
	defer timer.Stop()
	written := time.Time{}
	tell := l.tell
	for {
		select {
		case <-ctx.Done():
			return
		case <-tell:
			tell = nil // once is enough
			timer.Reset(max(0, min(time.Until(written.Add(time.Second)), l.lease/3)))
			continue
		case <-timer.C:
		}
		written, tell = time.Now(), l.tell
		wait := l.lease / 3
		if err := l.renew(ctx); err != nil && ctx.Err() == nil {
			l.report(fmt.Errorf("jobs: the lease of queue %q: %w", l.q.Name, err))
			wait = l.lease / 10
		}
		timer.Reset(wait)
	}
}

// renew prolongs the lease, if there is one.
func (l *lead) renew(ctx context.Context) error {
	token := l.fence()
	if token == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.lease)
	defer cancel()
	err := l.write(ctx, token, l.lease)
	if errors.Is(err, ErrStale) {
		l.lost(token)
		return nil
	}
	return err
}

// write has the lease end after a time, and tells of the queue.
func (l *lead) write(ctx context.Context, token int64, lease time.Duration) error {
	var none locks
	return l.s.update(ctx, &none, func(ctx context.Context, t *step) error {
		rec, err := l.own(ctx, t, token)
		if err != nil {
			return err
		}
		return l.put(ctx, t, rec, lease)
	})
}

// own returns the lease, locked, or ErrStale if another has it.
func (l *lead) own(ctx context.Context, t *step, token int64) (*jobstore.QueueLease, error) {
	rec, err := t.tx.QueueLease(ctx, l.q.Name)
	if err == nil && (rec == nil || rec.Fence != token) {
		err = fmt.Errorf("%w: the lease of queue %q", ErrStale, l.q.Name)
	}
	return rec, err
}

// put saves the lease.
func (l *lead) put(ctx context.Context, t *step, rec *jobstore.QueueLease, lease time.Duration) error {
	l.mu.Lock()
	data, err := json.Marshal(l.data)
	l.mu.Unlock()
	if err != nil {
		return err
	}
	rec.Status, rec.Until = data, micros(t.now.Add(lease))
	return t.tx.SaveQueueLease(ctx, rec)
}

// claim takes the lease if nobody has it, else it tells for how long somebody does.
func (l *lead) claim(ctx context.Context) (wait time.Duration, err error) {
	if wait, err = l.taken(ctx); wait > 0 || err != nil {
		return wait, err
	}
	var token int64
	var none locks
	err = l.s.update(ctx, &none, func(ctx context.Context, t *step) error {
		wait = 0
		if err := t.tx.Lock(ctx, "queue "+l.q.Name); err != nil {
			return err
		}
		rec, err := t.tx.QueueLease(ctx, l.q.Name)
		switch {
		case err != nil:
			return err
		case rec == nil:
			rec = &jobstore.QueueLease{Queue: l.q.Name}
		case rec.Until.After(t.now):
			wait = rec.Until.Sub(t.now)
			return nil
		}
		rec.Fence++
		token = rec.Fence
		return l.put(ctx, t, rec, l.lease)
	})
	if err != nil || wait > 0 {
		return wait, err
	}
	l.mu.Lock()
	l.token = token
	l.mu.Unlock()
	l.roster, l.pace = nil, pace{wholeAt: time.Now()}
	return 0, nil
}

// taken tells for how long somebody has the lease, without a lock.
func (l *lead) taken(ctx context.Context) (wait time.Duration, err error) {
	err = l.s.c.Store.View(ctx, func(ctx context.Context, tx Tx) error {
		wait = 0
		rec, err := tx.QueueLease(ctx, l.q.Name)
		if err != nil || rec == nil {
			return err
		}
		now, err := tx.Now(ctx)
		wait = rec.Until.Sub(now)
		return err
	})
	return wait, err
}

// close gives the lease back, so that another takes over at once. It is idempotent, and not called while next is under way.
func (l *lead) close(ctx context.Context) {
	l.mu.Lock()
	l.closed = true
	end, done := l.end, l.done
	l.mu.Unlock()
	if end == nil {
		return
	}
	end()
	<-done
	l.mu.Lock()
	token := l.token
	l.token = 0
	l.mu.Unlock()
	if token == 0 {
		return
	}
	err := l.write(ctx, token, 0)
	if err != nil && !errors.Is(err, ErrStale) {
		l.report(fmt.Errorf("jobs: the lease of queue %q is not given back: %w", l.q.Name, err))
	}
}
