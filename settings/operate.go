package settings

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// PauseQueue pauses a queue for all consumers that use the store, also for those that start later.
// An existing pause is replaced. A zero p.At becomes the current time. Returns [ErrBad] for an
// invalid name or pause, and the errors of the store.
func PauseQueue(ctx context.Context, s Store, queue string, p Pause) error {
	return setPause(ctx, s, QueuePause(queue), p)
}

// PauseTask pauses the tasks with a name in all queues, see [TaskPause]. An existing pause is
// replaced. A zero p.At becomes the current time. Returns [ErrBad] for an invalid name or pause,
// and the errors of the store.
func PauseTask(ctx context.Context, s Store, name string, p Pause) error {
	return setPause(ctx, s, TaskPause(name), p)
}

// ResumeQueue ends the pause of a queue and closes its breaker: it removes both values. It reports
// whether one of them was set. Returns the errors of the store.
func ResumeQueue(ctx context.Context, s Store, queue string) (found bool, err error) {
	return removeBoth(ctx, s, QueuePause(queue), QueueBreaker(queue))
}

// ResumeTask ends the pause of the tasks with a name and closes their breaker: it removes both
// values. It reports whether one of them was set. Returns the errors of the store.
func ResumeTask(ctx context.Context, s Store, name string) (found bool, err error) {
	return removeBoth(ctx, s, TaskPause(name), TaskBreaker(name))
}

// LimitQueue sets the limit of a queue. A limit without Rate and Concurrency removes it. Returns
// [ErrBad] for an invalid name or limit, and the errors of the store.
func LimitQueue(ctx context.Context, s Store, queue string, l Limit) error {
	return setLimit(ctx, s, QueueLimit(queue), l)
}

// LimitTask sets the limit of the tasks with a name. A limit without Rate and Concurrency removes
// it. Returns [ErrBad] for an invalid name or limit, and the errors of the store.
func LimitTask(ctx context.Context, s Store, name string, l Limit) error {
	return setLimit(ctx, s, TaskLimit(name), l)
}

// ServeQueue makes the consumers of a group serve a queue as q says, or leave it. Returns [ErrBad]
// for an invalid name or number, [ErrFull] if the group has MaxServed queues, and the errors of the
// store.
func ServeQueue(ctx context.Context, s Store, group, queue string, q Served) error {
	err := errors.Join(checkTexts(q.By, ""), task.CheckName(queue))
	if q.Workers < 0 || q.Workers > MaxWorkers {
		err = errors.Join(err, fmt.Errorf("%d workers, want 0 to %d", q.Workers, MaxWorkers))
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBad, err)
	}
	if q.At.IsZero() {
		q.At = now()
	}
	return GroupQueues(group).Update(ctx, s, func(g *Group, _ bool) error {
		if g.Queues == nil {
			g.Queues = make(map[string]Served)
		}
		g.Queues[queue] = q
		if len(g.Queues) > MaxServed {
			return fmt.Errorf("%w: a group has at most %d queues", ErrFull, MaxServed)
		}
		return nil
	})
}

// setPause checks and stores a pause.
func setPause(ctx context.Context, s Store, k Key[Pause], p Pause) error {
	if p.At.IsZero() {
		p.At = now()
	}
	if err := p.Check(); err != nil {
		return err
	}
	return k.Set(ctx, s, p)
}

// setLimit checks and stores a limit, or removes an empty one.
func setLimit(ctx context.Context, s Store, k Key[Limit], l Limit) error {
	if err := CheckLimit(&l); err != nil {
		return err
	}
	if l.Rate == "" && l.Concurrency == 0 {
		_, err := k.Remove(ctx, s)
		return err
	}
	if l.At.IsZero() {
		l.At = now()
	}
	return k.Set(ctx, s, l)
}

// maxRate is the largest rate per second that all limiters accept.
const maxRate = 1_000_000

// CheckLimit returns all problems of l, joined; each wraps [ErrBad].
func CheckLimit(l *Limit) error {
	err := checkTexts(l.By, "")
	n, per, rateErr := task.ParseRate(l.Rate)
	if rateErr == nil && float64(n) > maxRate*per.Seconds() {
		rateErr = fmt.Errorf("the rate %s is above %d per second", l.Rate, maxRate)
	}
	if rateErr != nil {
		err = errors.Join(err, fmt.Errorf("%w: %w", ErrBad, rateErr))
	}
	if l.Concurrency < 0 || l.Concurrency > MaxWorkers {
		err = errors.Join(err, fmt.Errorf("%w: a concurrency of %d, want 0 to %d", ErrBad, l.Concurrency, MaxWorkers))
	}
	return err
}

// removeBoth removes the values of two keys and reports whether one of them had a value. It tries
// both and returns their errors joined.
func removeBoth[A, B any](ctx context.Context, s Store, a Key[A], b Key[B]) (bool, error) {
	first, err := a.Remove(ctx, s)
	second, berr := b.Remove(ctx, s)
	return first || second, errors.Join(err, berr)
}

// now returns the current time in UTC, cut to whole milliseconds.
func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }
