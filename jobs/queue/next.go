package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// lookGap is at least between two looks: what comes meanwhile shares a transaction.
const lookGap = 2 * time.Millisecond

// Next returns jobs that are to be worked at, at most room of them, which is at least 1: jobs that begin an attempt, and jobs that run and have become due, whose Phase tells what there is to do. It
// waits until there are some, as the one who serves the queue; until it is that, it stands by. An error says that the store gave no answer, that ctx has ended, or
// [jobstore.ErrClosed]. One goroutine at a time calls it.
func (l *Leader) Next(ctx context.Context, room int) ([]jobstore.Handout, error) {
	if l.isClosed() {
		return nil, jobstore.ErrClosed
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

// lookOnce looks, and tells how long nothing is to be done if nothing comes.
func (l *Leader) lookOnce(ctx context.Context, room int) (out []jobstore.Handout, wait time.Duration, err error) {
	select {
	case <-l.signal: // what comes from now on is for the next look
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

// standBy waits until the lease can be had.
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

// sleep waits for a time, or a signal.
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

// upcoming is how long it is until the next job of the queue becomes due.
func (l *Leader) upcoming(ctx context.Context) (wait time.Duration, err error) {
	wait = time.Hour
	err = l.store.View(ctx, func(ctx context.Context, tx jobstore.Tx) error {
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		wait = time.Hour
		for _, state := range []jobstore.State{jobstore.Queued, jobstore.Running} {
			// Behind all that were due when the queue was looked at.
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

// pace keeps looks from costing more than they are worth.
type pace struct {
	before time.Time     // no look before
	took   time.Duration // the last one, if it found nothing
	stale  bool          // the roster holds jobs that have ended
	// nothing that weighs no more than light was found, and not quickly: it is not looked for until then.
	light  int64
	until  time.Time
	spared bool // it was to be looked for since
	// when a throttler went through the whole line, and how long that took
	wholeAt time.Time
	whole   time.Duration
}

const (
	partTime  = 100 * time.Millisecond // from what time on a part of a line is enough
	wholeTime = 10 * time.Second       // at least between looks at the whole of a long line
)

// enough returns what tells whether a look that has gone through a part of the line is to end there: there is something to start, or something has happened, and
// the whole of it was looked at not long ago.
func (p *pace) enough(began time.Time, signal <-chan struct{}) func(started bool) bool {
	overdue := time.Since(p.wholeAt) > max(wholeTime, 4*p.whole)
	return func(started bool) bool {
		return !overdue && (started || len(signal) > 0) && time.Since(began) > partTime
	}
}

// looked notes how a look went.
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

// rest is how long not to look.
func (p *pace) rest() time.Duration { return time.Until(p.before) }

// poll is after what time to look if nothing calls for it.
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

// sparing is find, but for searches that have found nothing of late.
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
