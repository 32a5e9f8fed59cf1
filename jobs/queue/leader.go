package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/jobs/internal/line"
	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/internal/txn"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// mostRefused is how many jobs the Status names that a throttler did not start.
const mostRefused = 100

// Leader serves a queue for one runner: it has the lease of the queue, or stands by for it.
//
// One goroutine calls Next; the other methods are safe for concurrent use.
type Leader struct {
	store   jobstore.Store
	host    Host
	c       LeaderConfig
	q       Queue
	lease   time.Duration
	windows rules.Windows

	signal wake.Signal // wakes Next
	tell   wake.Signal // the Status has changed
	// The next four belong to the goroutine of Next, and then to Close.
	pace    pace
	roster  *roster   // nil: it must be read
	looked  time.Time // the store's time of the last look
	unwatch func()    // ends the watch of the store, which the first Next begins

	mu     sync.Mutex
	token  int64 // 0: the leader stands by
	data   line.Status
	closed bool
}

// Host is the service whose jobs a [Leader] claims. All fields are required.
type Host struct {
	Store jobstore.Store
	// Closed ends Next with [jobstore.ErrClosed].
	Closed <-chan struct{}
	// Complete adds the data of parents and children to claimed jobs.
	Complete func(ctx context.Context, out []jobstore.Handout) error
	// GiveBack undoes a claim that no caller has seen.
	GiveBack func(h jobstore.Handout)
	// Taken counts claimed jobs.
	Taken func(n int)
}

// LeaderConfig says how a [Leader] serves its queue. Queue, Lease and Report must be set; Begin and
// Held may be nil.
type LeaderConfig struct {
	Queue Queue
	// Node names this process in the explanation why a job waits.
	Node string
	// Lease is how long the queue, and each claimed job, stays with this process without renewal.
	Lease time.Duration
	// Begin sets Key and Respond of a job before the start of its attempt is saved. It runs in a
	// transaction, and may run again. An error fails the attempt.
	Begin func(*jobstore.Row) error
	// Report receives errors that Next does not return.
	Report func(error)
	// Held receives jobs that are held because their windows cannot be read. Default: Report gets
	// the error.
	Held func(*jobstore.Row, error)
	// NoDeadlines: the jobs are left to tasks, which have time limits of their own. Attempts then
	// have no deadline.
	NoDeadlines bool
}

// minLease is the shortest lease: shorter ones end before they are renewed.
const minLease = 10 * time.Millisecond

// NewLeader returns a leader. It does no I/O. Returns all problems of c.Queue, joined.
func NewLeader(h Host, c LeaderConfig) (*Leader, error) {
	errs := []error{c.Queue.Complete()}
	if c.Lease < minLease {
		errs = append(errs, fmt.Errorf("queue: LeaderConfig.Lease is %v, not %v or more", c.Lease, minLease))
	}
	if c.Report == nil {
		errs = append(errs, errors.New("queue: LeaderConfig.Report is not set"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if c.Held == nil {
		c.Held = func(_ *jobstore.Row, err error) { c.Report(err) }
	}
	q := c.Queue
	return &Leader{
		store: h.Store, host: h, c: c, q: q, lease: rules.WholeMicros(c.Lease), signal: wake.New(), tell: wake.New(),
		data: line.Status{Node: c.Node, Limit: q.limit(), Strict: q.Strict, Order: q.Order, Throttler: q.Throttler != nil},
	}, nil
}

// Changed makes Next look at the queue. Call it when a job of the queue has ended in this process.
func (l *Leader) Changed() { l.signal.Notify() }

// hear wakes Next if a word concerns this queue, or a free lease while the leader stands by. The
// store calls it.
func (l *Leader) hear(names []string) {
	mine := names == nil
	for _, name := range names {
		mine = mine || name == jobstore.QueueWord(l.q.Name) || name == jobstore.LeaseWord && l.Fence() == 0
	}
	if mine {
		l.signal.Notify()
	}
}

// Fence returns the fencing token of the lease; 0 while the leader stands by.
func (l *Leader) Fence() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.token
}

// lost notes that another leader has the lease.
func (l *Leader) lost(token int64) {
	l.mu.Lock()
	if l.token == token {
		l.token = 0
	}
	l.mu.Unlock()
	l.signal.Notify()
}

// note keeps the result of a look for the Status.
func (l *Leader) note(now time.Time, busy bool, refused []jobstore.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	news := l.data.Busy != busy || !slices.Equal(l.data.Refused, refused)
	l.data.Looked, l.data.Busy, l.data.Refused = now, busy, refused
	if news {
		l.tell.Notify()
	}
}

// KeepLease renews the lease and writes the Status, until ctx ends. Run it in a goroutine of its
// own beside Next. Without it the lease ends.
func (l *Leader) KeepLease(ctx context.Context) {
	timer := time.NewTimer(l.lease / 3)
	defer timer.Stop()
	written := time.Time{}
	tell := l.tell
	for {
		select {
		case <-ctx.Done():
			return
		case <-tell:
			tell = nil // one change of the Status is enough
			timer.Reset(max(0, min(time.Until(written.Add(time.Second)), l.lease/3)))
			continue
		case <-timer.C:
		}
		written, tell = time.Now(), l.tell
		wait := l.lease / 3
		if err := l.renew(ctx); err != nil && ctx.Err() == nil {
			l.c.Report(fmt.Errorf("jobs: the lease of queue %q: %w", l.q.Name, err))
			wait = l.lease / 10
		}
		timer.Reset(wait)
	}
}

// renew renews the lease, if this leader has it.
func (l *Leader) renew(ctx context.Context) error {
	token := l.Fence()
	if token == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.lease)
	defer cancel()
	err := l.write(ctx, token, l.lease)
	if errors.Is(err, jobstore.ErrStale) {
		l.lost(token)
		return nil
	}
	return err
}

// write saves the Status and a lease that ends after a time.
func (l *Leader) write(ctx context.Context, token int64, lease time.Duration) error {
	var none txn.Locks
	return txn.Do(ctx, l.store, &none, func(ctx context.Context, t *txn.Step) error {
		rec, err := l.own(ctx, t, token)
		if err != nil {
			return err
		}
		return l.put(ctx, t, rec, lease)
	})
}

// own returns the lease, locked. Returns ErrStale if another leader has it.
func (l *Leader) own(ctx context.Context, t *txn.Step, token int64) (*jobstore.QueueLease, error) {
	rec, err := t.Tx.QueueLease(ctx, l.q.Name)
	if err == nil && (rec == nil || rec.Fence != token) {
		err = fmt.Errorf("%w: the lease of queue %q", jobstore.ErrStale, l.q.Name)
	}
	return rec, err
}

// put saves the lease with the Status.
func (l *Leader) put(ctx context.Context, t *txn.Step, rec *jobstore.QueueLease, lease time.Duration) error {
	l.mu.Lock()
	data, err := json.Marshal(l.data)
	l.mu.Unlock()
	if err != nil {
		return err
	}
	rec.Status, rec.Until = data, rules.Micros(t.Now.Add(lease))
	return t.Tx.SaveQueueLease(ctx, rec)
}

// claim claims the lease if it is free. Otherwise wait is the time until it ends.
func (l *Leader) claim(ctx context.Context) (wait time.Duration, err error) {
	if wait, err = l.taken(ctx); wait > 0 || err != nil {
		return wait, err
	}
	var token int64
	var none txn.Locks
	err = txn.Do(ctx, l.store, &none, func(ctx context.Context, t *txn.Step) error {
		wait = 0
		if err := t.Tx.Lock(ctx, "queue "+l.q.Name); err != nil {
			return err
		}
		rec, err := t.Tx.QueueLease(ctx, l.q.Name)
		switch {
		case err != nil:
			return err
		case rec == nil:
			rec = &jobstore.QueueLease{Queue: l.q.Name}
		case rec.Until.After(t.Now):
			wait = rec.Until.Sub(t.Now)
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

// taken returns the time until the lease ends. It takes no lock. 0 or below: the lease is free.
func (l *Leader) taken(ctx context.Context) (wait time.Duration, err error) {
	err = l.store.View(ctx, func(ctx context.Context, tx jobstore.Tx) error {
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

// Close releases the lease, so that another leader takes over at once, and ends the watch of the
// store. Call it after KeepLease and Next have returned. It is idempotent.
func (l *Leader) Close(ctx context.Context) {
	l.mu.Lock()
	l.closed = true
	token := l.token
	l.token = 0
	l.mu.Unlock()
	if l.unwatch != nil {
		l.unwatch()
		l.unwatch = nil
	}
	if token == 0 {
		return
	}
	err := l.write(ctx, token, 0)
	if err != nil && !errors.Is(err, jobstore.ErrStale) {
		l.c.Report(fmt.Errorf("jobs: the lease of queue %q is not given back: %w", l.q.Name, err))
	}
}

func (l *Leader) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}
