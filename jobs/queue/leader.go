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

// mostRefused limits the number of jobs that the Status names because a throttler did not start
// them.
const mostRefused = 100

// Leader serves a queue for one runner. It holds the lease of the queue, under which it alone
// starts jobs of the queue, or waits for the lease.
//
// One goroutine calls Next; the other methods are safe for concurrent use.
type Leader struct {
	store   jobstore.Store
	host    Host
	c       LeaderConfig
	q       Queue
	lease   time.Duration
	windows rules.Windows

	signal        wake.Signal // wakes Next
	statusChanged wake.Signal // the Status has changed
	// Only the goroutine of Next uses the next four fields, and later Close.
	pace       pace
	roster     *roster   // nil: it must be read
	admittedAt time.Time // the store's time of the last admission
	unwatch    func()    // ends the watch of the store, which the first Next begins

	mu     sync.Mutex
	token  int64 // 0: the leader does not have the lease
	data   line.Status
	closed bool
}

// Host contains the parts of the service that a [Leader] uses. All fields are required.
type Host struct {
	Store jobstore.Store
	// Closed, once closed, makes Next return [jobstore.ErrClosed].
	Closed <-chan struct{}
	// Complete adds the data of parents and children to claimed jobs.
	Complete func(ctx context.Context, out []jobstore.Handout) error
	// GiveBack undoes a claim that no caller has received.
	GiveBack func(h jobstore.Handout)
	// Taken counts claimed jobs.
	Taken func(n int)
}

// LeaderConfig configures a [Leader]. Queue, Lease and Report are required; Begin and Held may be
// nil.
type LeaderConfig struct {
	Queue Queue
	// Node names this process in explanations why a job does not run.
	Node string
	// Lease is the time for which the queue, and each claimed job, stays with this process without
	// renewal.
	Lease time.Duration
	// Begin sets Key and Respond of a job before the start of its attempt is saved. It runs in a
	// transaction and may run again. An error fails the attempt.
	Begin func(*jobstore.Row) error
	// Report receives errors that Next does not return. The goroutines of Next, KeepLease and Close
	// call it.
	Report func(error)
	// Held receives jobs that are held because their windows cannot be parsed. Default: Report
	// receives the error. The goroutine of Next calls it after the commit.
	Held func(*jobstore.Row, error)
	// NoDeadlines gives attempts no deadline, because the jobs are dispatched as tasks, which have
	// time limits of their own.
	NoDeadlines bool
}

// minLease is the shortest valid lease: a shorter one would end before its renewal.
const minLease = 10 * time.Millisecond

// NewLeader returns a leader without a lease: the first Next claims it. It sets the defaults of
// c.Queue and c.Held. It does no I/O and starts no goroutine. Returns all problems of c, joined; h
// is not checked.
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
		store: h.Store, host: h, c: c, q: q, lease: rules.WholeMicros(c.Lease), signal: wake.New(), statusChanged: wake.New(),
		data: line.Status{Node: c.Node, Limit: q.limit(), Strict: q.Strict, Order: q.Order, Throttler: q.Throttler != nil},
	}, nil
}

// Changed makes Next read the queue again at once; if Next does not wait, its next wait ends at
// once. Call it when a job of the queue has ended in this process. It does not block.
func (l *Leader) Changed() { l.signal.Notify() }

// onNotify wakes Next if a notification of the store concerns this leader. Such a notification
// names this queue, or, while the leader has no lease, a lease that has ended. nil names concern
// all leaders. The store calls it from any goroutine.
func (l *Leader) onNotify(names []string) {
	mine := names == nil
	for _, name := range names {
		mine = mine || name == jobstore.QueueWord(l.q.Name) || name == jobstore.LeaseWord && l.Fence() == 0
	}
	if mine {
		l.signal.Notify()
	}
}

// Fence returns the fencing token of the lease, a number that grows with each new leader. It
// returns 0 while the leader does not have the lease. It takes l.mu.
func (l *Leader) Fence() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.token
}

// lost records that another leader has the lease that this leader had with token, and wakes Next,
// which then waits for the lease. If the leader has a newer token, it only wakes Next. It takes
// l.mu.
func (l *Leader) lost(token int64) {
	l.mu.Lock()
	if l.token == token {
		l.token = 0
	}
	l.mu.Unlock()
	l.signal.Notify()
}

// setStatus records the result of an admission for the Status, which explanations read from the
// lease record. now is the store's time of the admission, busy says that no worker was free,
// refused lists jobs that the throttler did not start. If busy or refused changed, it wakes
// KeepLease, which stores the Status soon. It takes l.mu.
func (l *Leader) setStatus(now time.Time, busy bool, refused []jobstore.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	news := l.data.Busy != busy || !slices.Equal(l.data.Refused, refused)
	l.data.AdmittedAt, l.data.Busy, l.data.Refused = now, busy, refused
	if news {
		l.statusChanged.Notify()
	}
}

// KeepLease renews the lease of the queue and stores the Status, until ctx ends. It blocks: run it
// in a goroutine beside Next. Without it the lease ends.
//
// It writes after each third of the lease. A change of the Status causes an earlier write, at most
// one per second. After an error it calls LeaderConfig.Report and tries again after a tenth of the
// lease. While another leader has the lease it writes nothing.
func (l *Leader) KeepLease(ctx context.Context) {
	timer := time.NewTimer(l.lease / 3)
	defer timer.Stop()
	written := time.Time{}
	statusChanged := l.statusChanged
	for {
		select {
		case <-ctx.Done():
			return
		case <-statusChanged:
			statusChanged = nil // further changes of the Status do not delay the write
			timer.Reset(max(0, min(time.Until(written.Add(time.Second)), l.lease/3)))
			continue
		case <-timer.C:
		}
		written, statusChanged = time.Now(), l.statusChanged
		wait := l.lease / 3
		if err := l.renew(ctx); err != nil && ctx.Err() == nil {
			l.c.Report(fmt.Errorf("jobs: cannot renew the lease of queue %q: %w", l.q.Name, err))
			wait = l.lease / 10
		}
		timer.Reset(wait)
	}
}

// renew renews the lease and stores the Status. It does nothing if this leader does not have the
// lease. If another leader has claimed it, renew records the loss, wakes Next and returns nil. It
// gives up after the duration of the lease. Returns other errors of the store.
func (l *Leader) renew(ctx context.Context) error {
	token := l.Fence()
	if token == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.lease)
	defer cancel()
	err := l.writeLease(ctx, token, l.lease)
	if errors.Is(err, jobstore.ErrStale) {
		l.lost(token)
		return nil
	}
	return err
}

// writeLease stores the Status and sets the end of the lease to now plus lease, in a transaction of
// its own that locks the record. A lease of 0 releases it. Returns ErrStale if token is not the
// fencing token of the record: another leader has the lease. Returns errors of the store. It takes
// l.mu.
func (l *Leader) writeLease(ctx context.Context, token int64, lease time.Duration) error {
	var none txn.Locks
	return txn.Do(ctx, l.store, &none, func(ctx context.Context, t *txn.Step) error {
		rec, err := l.lockLease(ctx, t, token)
		if err != nil {
			return err
		}
		return l.saveLease(ctx, t, rec, lease)
	})
}

// lockLease locks the lease record in t and returns it. Returns ErrStale if the record is missing
// or token is not its fencing token. It does not check whether the lease has ended. Returns errors
// of the store.
func (l *Leader) lockLease(ctx context.Context, t *txn.Step, token int64) (*jobstore.QueueLease, error) {
	rec, err := t.Tx.QueueLease(ctx, l.q.Name)
	if err == nil && (rec == nil || rec.Fence != token) {
		err = fmt.Errorf("%w: the lease of queue %q", jobstore.ErrStale, l.q.Name)
	}
	return rec, err
}

// saveLease stores rec, the lease record, in t with the present Status and an end of now plus
// lease. It takes l.mu. It changes Status and Until of rec. Returns errors of the store.
func (l *Leader) saveLease(ctx context.Context, t *txn.Step, rec *jobstore.QueueLease, lease time.Duration) error {
	l.mu.Lock()
	data, err := json.Marshal(l.data)
	l.mu.Unlock()
	if err != nil {
		return err
	}
	rec.Status, rec.Until = data, rules.Micros(t.Now.Add(lease))
	return t.Tx.SaveQueueLease(ctx, rec)
}

// claimLease takes the lease if it is free, with the next fencing token. Then wait is 0, Fence
// returns the token, and the roster and the pace are reset. If another leader has the lease, wait
// is the time until it ends, and nothing changes.
//
// It reads first and writes only if the lease seems free. It takes l.mu. Returns errors of the
// store; Fence then still returns 0.
func (l *Leader) claimLease(ctx context.Context) (wait time.Duration, err error) {
	if wait, err = l.leaseLeft(ctx); wait > 0 || err != nil {
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
		return l.saveLease(ctx, t, rec, l.lease)
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

// leaseLeft returns the time until the lease ends, whichever leader has it. 0 or below means that
// the lease is free or has never existed. It locks nothing. Returns errors of the store.
func (l *Leader) leaseLeft(ctx context.Context) (wait time.Duration, err error) {
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

// Close releases the lease, so that another leader can take it at once, and ends the watch of the
// store. Later calls of Next return ErrClosed. Call Close after KeepLease and Next have returned.
//
// It waits for the store until ctx ends. It reports a failure to LeaderConfig.Report, except
// ErrStale; the lease then ends by itself. Without a lease it writes nothing. It takes l.mu, but
// does not hold it while it waits. Idempotent.
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
	err := l.writeLease(ctx, token, 0)
	if err != nil && !errors.Is(err, jobstore.ErrStale) {
		l.c.Report(fmt.Errorf("jobs: cannot release the lease of queue %q; it ends by itself: %w", l.q.Name, err))
	}
}

// isClosed reports whether Close of the leader was called. It takes l.mu.
func (l *Leader) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}
