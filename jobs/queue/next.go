package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// lookGap is the least time between two looks. Changes of that time share a look.
const lookGap = 2 * time.Millisecond

// Next returns at most room jobs to work at; room is at least 1. It waits until there is one. While
// another leader has the lease, it stands by.
//
// The jobs begin an attempt, or they run and have become due. The Phase of a running job tells what
// is to do.
//
// Returns [jobstore.ErrClosed] after Close of the leader or the service, and ErrUnavailable if the
// store gave no answer or ctx has ended. One goroutine at a time calls it.
func (l *Leader) Next(ctx context.Context, room int) ([]jobstore.Handout, error) {
	if l.isClosed() {
		return nil, jobstore.ErrClosed
	}
	if l.unwatch == nil {
		l.unwatch = l.store.Watch(l.hear)
	}
	for {
		if l.Fence() == 0 {
			if err := l.standBy(ctx); err != nil {
				return nil, err
			}
		}
		if err := l.sleep(ctx, l.pace.rest(), nil); err != nil {
			return nil, err
		}
		out, wait, err := l.lookOnce(ctx, room)
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

// lookOnce looks once. wait is the time until the next look, if no signal comes.
func (l *Leader) lookOnce(ctx context.Context, room int) (out []jobstore.Handout, wait time.Duration, err error) {
	select {
	case <-l.signal: // a later signal is for the next look
	default:
	}
	began := time.Now()
	out, again, err := l.look(ctx, room)
	if err != nil {
		return nil, 0, err
	}
	l.pace.looked(began, len(out), again)
	if again || len(out) > 0 {
		return out, 0, nil
	}
	wait, err = l.upcoming(ctx)
	return nil, min(wait, l.pace.poll(l.q.Poll)), err
}

// standBy waits until this leader has the lease.
func (l *Leader) standBy(ctx context.Context) error {
	for {
		select {
		case <-l.signal:
		default:
		}
		wait, err := l.claim(ctx)
		if err != nil || wait <= 0 {
			return err
		}
		if err := l.sleep(ctx, wait+time.Millisecond, l.signal); err != nil {
			return err
		}
	}
}

// sleep waits for a time or for a signal.
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

// upcoming returns the time until the next job of the queue becomes due, at most an hour.
func (l *Leader) upcoming(ctx context.Context) (wait time.Duration, err error) {
	wait = time.Hour
	err = l.store.View(ctx, func(ctx context.Context, tx jobstore.Tx) error {
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		wait = time.Hour
		for _, state := range []jobstore.State{jobstore.Queued, jobstore.Running} {
			// Search after all jobs that were due at the last look.
			after := jobstore.Row{Job: jobstore.Job{ID: 1<<53 - 1, Priority: jobstore.MaxPriority}, Due: l.looked}
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
	return max(wait, lookGap), err
}

// pace limits the cost of looks.
type pace struct {
	before time.Time     // no look before this time
	took   time.Duration // the duration of the last look, if it found nothing
	stale  bool          // the roster holds jobs that have ended
	// A slow search found no job of weight light or less. It is not repeated until then.
	light  int64
	until  time.Time
	spared bool // such a search was skipped since
	// When a throttler last read the whole line, and how long that took.
	wholeAt time.Time
	whole   time.Duration
}

const (
	partTime  = 100 * time.Millisecond // after this time a look may end with a part of the line
	wholeTime = 10 * time.Second       // the least time between looks at the whole of a long line
)

// enough returns a function that reports whether a look may end with a part of the line. It may if
// a job starts or a signal waits, and the whole line was read not long ago.
func (p *pace) enough(began time.Time, signal <-chan struct{}) func(started bool) bool {
	overdue := time.Since(p.wholeAt) > max(wholeTime, 4*p.whole)
	return func(started bool) bool {
		return !overdue && (started || len(signal) > 0) && time.Since(began) > partTime
	}
}

// looked records the duration and the result of a look.
func (p *pace) looked(began time.Time, found int, again bool) {
	now := time.Now()
	p.took = now.Sub(began)
	p.before = now.Add(max(lookGap, p.took))
	if again {
		p.before = time.Time{}
	} else if found > 0 {
		p.took = 0
	}
}

// rest returns the time until a look is allowed.
func (p *pace) rest() time.Duration { return time.Until(p.before) }

// poll returns the time until the next look if no signal comes.
func (p *pace) poll(every time.Duration) time.Duration {
	if p.stale {
		return max(lookGap, p.took)
	}
	wait := max(every, calm*p.took)
	if left := time.Until(p.until); p.spared && left > 0 {
		wait = min(wait, left)
	}
	return wait
}

// sparing returns find without the searches that were slow and found nothing a short time ago.
func (p *pace) sparing(find func(context.Context, jobstore.Line, int) ([]jobstore.Row, error)) func(context.Context, jobstore.Line, int) ([]jobstore.Row, error) {
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
			p.light, p.until = most, time.Now().Add(calm*took)
		}
		return found, err
	}
}
