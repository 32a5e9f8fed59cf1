package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// admissionGap is the minimum time between two admissions. Changes within this time share an
// admission.
const admissionGap = 2 * time.Millisecond

// Next claims due jobs of the queue and returns at least one and at most slots of them. The data of
// their parents and children are filled in. slots must be at least 1. It blocks until a job may
// start, also while another leader has the lease: it claims the lease when that ends. It also waits
// for the lease again if it has lost the lease during an admission.
//
// Each job begins an attempt, or is a running job whose lease, answer or deadline is due. Its Phase
// tells the difference. A job with Refused set has failed before its attempt began.
//
// Returns [jobstore.ErrClosed] after Close of the leader or the service. Returns
// [jobstore.ErrUnavailable] if ctx ends or the store does not reply; claimed jobs may then stay
// RUNNING until their lease ends. If Host.Complete fails, Next calls Host.GiveBack for each claimed
// job and returns the error. One goroutine at a time may call it. The first call begins to watch
// the store, until Close.
func (l *Leader) Next(ctx context.Context, slots int) ([]jobstore.Handout, error) {
	if l.isClosed() {
		return nil, jobstore.ErrClosed
	}
	if l.unwatch == nil {
		l.unwatch = l.store.Watch(l.onNotify)
	}
	for {
		if l.Fence() == 0 {
			if err := l.standBy(ctx); err != nil {
				return nil, err
			}
		}
		if err := l.sleep(ctx, l.pace.delay(), nil); err != nil {
			return nil, err
		}
		out, wait, err := l.admitOnce(ctx, slots)
		switch {
		case errors.Is(err, jobstore.ErrStale), errors.Is(err, jobstore.ErrNotFound):
			l.lost(l.Fence())
			continue
		case err != nil:
			return nil, err
		case len(out) > 0:
			if err := l.host.Complete(ctx, out); err != nil {
				for i := range out {
					l.host.GiveBack(out[i])
				}
				return nil, err
			}
			return out, nil
		}
		if err := l.sleep(ctx, wait, l.signal); err != nil {
			return nil, err
		}
	}
}

// admitOnce makes one admission of up to slots jobs and records its duration in l.pace. It discards
// a signal that came before.
//
// If it claimed no job, the caller waits for the time wait, or for a signal, before the next
// admission. wait is 0 if jobs were claimed or another admission at once may find more. Returns
// the errors of runAdmission and upcoming.
func (l *Leader) admitOnce(ctx context.Context, slots int) (out []jobstore.Handout, wait time.Duration, err error) {
	select {
	case <-l.signal: // later signals are for the next admission
	default:
	}
	began := time.Now()
	out, again, err := l.runAdmission(ctx, slots)
	if err != nil {
		return nil, 0, err
	}
	l.pace.record(began, len(out), again)
	if again || len(out) > 0 {
		return out, 0, nil
	}
	wait, err = l.upcoming(ctx)
	return nil, min(wait, l.pace.poll(l.q.Poll)), err
}

// standBy blocks until this leader has claimed the lease. It discards a signal that came before a
// try. It tries again when the lease of the other leader ends, or after a signal. Returns the error
// of the store, ErrClosed after Close of the service, or ErrUnavailable if ctx ends.
func (l *Leader) standBy(ctx context.Context) error {
	for {
		select {
		case <-l.signal:
		default:
		}
		wait, err := l.claimLease(ctx)
		if err != nil || wait <= 0 {
			return err
		}
		if err := l.sleep(ctx, wait+time.Millisecond, l.signal); err != nil {
			return err
		}
	}
}

// sleep blocks for the duration d or until a signal, and then returns nil. A nil signal never
// comes. If d is 0 or below it does not block. Returns ErrClosed after Close of the service, and
// ErrUnavailable if ctx ends or has ended.
func (l *Leader) sleep(ctx context.Context, d time.Duration, signal <-chan struct{}) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", jobstore.ErrUnavailable, context.Cause(ctx))
	}
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-signal:
	case <-l.host.Closed:
		return jobstore.ErrClosed
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", jobstore.ErrUnavailable, context.Cause(ctx))
	}
	return nil
}

// upcoming returns the time until the next job of the queue becomes due, at most an hour and at
// least admissionGap. It ignores jobs that were due at the last admission, which have not started.
// It reads in a View, without locks. Returns errors of the store.
func (l *Leader) upcoming(ctx context.Context) (wait time.Duration, err error) {
	wait = time.Hour
	err = l.store.View(ctx, func(ctx context.Context, tx jobstore.Tx) error {
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		wait = time.Hour
		for _, state := range []jobstore.State{jobstore.Queued, jobstore.Running} {
			// Search behind all jobs that were due at the last admission.
			after := jobstore.Row{Job: jobstore.Job{ID: 1<<53 - 1, Priority: jobstore.MaxPriority}, Due: l.admittedAt}
			found, err := tx.Line(ctx, jobstore.Line{Queue: l.q.Name, State: state, By: now.Add(wait), After: &after}, 1)
			if err != nil {
				return err
			}
			if len(found) > 0 {
				wait = min(wait, found[0].Due.Sub(now)+time.Microsecond)
			}
		}
		return nil
	})
	return max(wait, admissionGap), err
}

// pace limits the cost of admissions: it decides how long the leader waits between them and which
// reads it leaves out. Only the goroutine of Next uses it.
type pace struct {
	before time.Time     // no admission before this time
	took   time.Duration // duration of the last admission, if it claimed no job
	stale  bool          // the roster contains jobs that have ended
	// A slow search found no job of weight light or less. It is not repeated before until.
	light  int64
	until  time.Time
	spared bool // such a search was skipped since
	// wholeAt is the time at which a throttler last read all due jobs, and whole the duration of that
	// read.
	wholeAt time.Time
	whole   time.Duration
}

const (
	// after this time a throttler may see only a part of the due jobs
	partTime  = 100 * time.Millisecond
	wholeTime = 10 * time.Second // minimum time between full reads of many due jobs
)

// mayEndEarly returns a function that tells whether a throttler's reading of the due jobs may end
// before the last job; its argument reports that the plan starts a job. It may if partTime has
// passed since began, and the plan starts a job or a signal waits. It may not while a full read is
// overdue: the last full read is more than wholeTime and four times its duration ago.
func (p *pace) mayEndEarly(began time.Time, signal <-chan struct{}) func(started bool) bool {
	overdue := time.Since(p.wholeAt) > max(wholeTime, 4*p.whole)
	return func(started bool) bool {
		return !overdue && (started || len(signal) > 0) && time.Since(began) > partTime
	}
}

// record records the admission that began at began, and computes the earliest time of the next
// one. found is the number of claimed jobs. The pause is as long as the admission, at least
// admissionGap.
//
//   - again is true: no pause, so the next admission may follow at once.
//   - again is false and found is above 0: the pause stays, but p.took becomes 0, so that poll
//     does not count the admission as slow.
func (p *pace) record(began time.Time, found int, again bool) {
	now := time.Now()
	p.took = now.Sub(began)
	p.before = now.Add(max(admissionGap, p.took))
	if again {
		p.before = time.Time{}
	} else if found > 0 {
		p.took = 0
	}
}

// delay returns the time until the next admission is allowed. 0 or below: it is allowed now.
func (p *pace) delay() time.Duration { return time.Until(p.before) }

// poll returns the longest time until the next admission if no signal comes. every is Queue.Poll,
// which applies unless
//
//   - the last admission claimed nothing and was slow: slowScanFactor times its duration, if
//     longer;
//   - a search was skipped: until that search may be repeated, if earlier;
//   - the roster contains ended jobs: the duration of the last admission, at least admissionGap.
func (p *pace) poll(every time.Duration) time.Duration {
	if p.stale {
		return max(admissionGap, p.took)
	}
	wait := max(every, slowScanFactor*p.took)
	if left := time.Until(p.until); p.spared && left > 0 {
		wait = min(wait, left)
	}
	return wait
}

// skipSlowSearches wraps find, which searches jobs up to a weight. The result skips a search and
// returns no job if a recent search for the same or a higher weight was slow and found nothing.
// Slow means longer than scanTime. Recent means less than slowScanFactor times its duration ago.
// Searches without a maximum weight are never skipped. It returns errors of find unchanged; such a
// search never counts as slow.
func (p *pace) skipSlowSearches(find func(context.Context, jobstore.Line, int) ([]jobstore.Row, error)) func(context.Context, jobstore.Line, int) ([]jobstore.Row, error) {
	return func(ctx context.Context, q jobstore.Line, limit int) ([]jobstore.Row, error) {
		most, set := q.MaxWeight.Get()
		if !set {
			return find(ctx, q, limit)
		}
		now := time.Now()
		if most <= p.light && now.Before(p.until) {
			p.spared = true
			return nil, nil
		}
		p.spared = false
		found, err := find(ctx, q, limit)
		if took := time.Since(now); err == nil && len(found) == 0 && took > scanTime {
			p.light, p.until = most, time.Now().Add(slowScanFactor*took)
		}
		return found, err
	}
}
