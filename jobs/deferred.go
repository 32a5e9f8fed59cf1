package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// Deferrals keep tasks whose answer comes from outside while no broker has them: those that a handler expects something for, or has
// deferred. They are for consumers. A deferral is a job of a reserved queue, RUNNING from its first day, which no runner is given: its answer, or its timeout, is
// claimed by a consumer of the task's queue, and settled there as the end of the task's run.
//
// A task has at most one deferral, which passes from an attempt to the next. An attempt is known by its generation: what an older one
// asks for is [ErrStale]. All methods may be called from any goroutine, and by any number of processes.
type Deferrals struct{ s *Service }

// NewDeferrals returns the deferrals in the store of s.
func NewDeferrals(s *Service) *Deferrals { return &Deferrals{s} }

// deferredQueue begins the names of the queues of deferrals, one for each queue of the broker; and their unique keys, one for each task.
const deferredQueue = "swarmiji.deferred/"

// Deferral is an attempt of a task.
type Deferral struct {
	Queue      string // of the broker, from which the task came
	Name       string // of the task
	Task       task.ID
	Generation int
	// Data is a JSON object that says how the consumer goes on with the task.
	Data []byte
}

func (d *Deferral) uniqueKey() string { return deferralKey(d.Task) }

func deferralKey(id task.ID) string { return deferredQueue + string(id) }

// run is how a job counts the attempt.
func (d *Deferral) run() int64 { return int64(d.Generation) + 1 }

// deferring is a deferral in a transaction.
type deferring struct {
	*step
	d   *Deferral
	job *Job // nil: there is none yet
}

// with runs fn with what there is of the task's deferral. key: that of an answer, which fn may give it.
func (f *Deferrals) with(ctx context.Context, d *Deferral, key string, fn func(ctx context.Context, a *deferring) error) error {
	var l locks
	_ = errors.Join(l.addUniqueKey(d.Name, d.uniqueKey()), l.addKey(d.Name, key)) // that they are missing is no news
	return f.s.update(ctx, &l, func(ctx context.Context, t *step) error {
		a := &deferring{step: t, d: d}
		found, err := t.tx.Find(ctx, Query{Name: d.Name, UniqueKey: d.uniqueKey()})
		if err != nil {
			return err
		}
		for i := range found {
			if j := &found[i]; a.job == nil || j.Run >= a.job.Run {
				a.job = j
			}
		}
		if a.job == nil {
			return fn(ctx, a)
		}
		switch {
		case a.job.Run > d.run(), a.job.Run == d.run() && a.job.State.Over():
			return fmt.Errorf("%w: attempt %d of task %s is over", ErrStale, d.Generation, d.Task)
		case a.job.State.Over():
			a.job = nil
		}
		return fn(ctx, a)
	})
}

// begun reports whether the job is of this attempt.
func (a *deferring) begun() bool { return a.job != nil && a.job.Run == a.d.run() }

// take makes the job one of this attempt that expects an answer for key. An answer that came for the same key before, and that no attempt has seen, stays.
func (a *deferring) take(ctx context.Context, key string) error {
	d := a.d
	j := a.job
	if j == nil {
		j = &Job{
			Name: d.Name, State: Running, Priority: DefaultPriority, Created: a.now, NextRun: a.now, Queue: deferredQueue + d.Queue, UniqueKey: d.uniqueKey(),
		}
		a.job = j
	}
	if j.Phase != "" || j.Key != key {
		j.Answer, j.Reason = nil, ""
	}
	if j.Key != key {
		j.Key = key
		if err := a.free(ctx, j); err != nil {
			return err
		}
	}
	j.Data, j.Run, j.Attempts, j.Token = d.Data, d.run(), d.run(), j.Token+1
	j.Phase, j.LastRun, j.Scheduled, j.Respond = "", a.now, time.Time{}, true
	a.until(a.now.Add(task.DefaultAnswerWithin))
	return nil
}

// claimEarly gives the job the answer that has come early, if there is one.
func (a *deferring) claimEarly(ctx context.Context) error {
	if a.job.answered() {
		return nil
	}
	early, err := a.claim(ctx, a.job)
	if early != nil {
		a.job.Answer, a.job.Reason = early.Result, early.Refusal
	}
	return err
}

// until has the job be looked at at a time, and not before.
func (a *deferring) until(at time.Time) { a.job.Deadline, a.job.Due = at, at }

// keep writes the job.
func (a *deferring) keep(ctx context.Context) error {
	a.job.Changed = a.now
	return a.tx.Save(ctx, a.job)
}

// checkDeferral looks at what a consumer gives.
func checkDeferral(d *Deferral, key string) error {
	if key == "" {
		return &FieldError{Field: "key", Problem: missing}
	}
	if checkKey(key) != nil {
		return &FieldError{Field: "key", Problem: malformed}
	}
	if len(d.Data) > MaxData {
		return &FieldError{Field: "data", Problem: tooLong, Detail: "a task that waits for an answer is kept with its message"}
	}
	return nil
}

// Expect registers key for an attempt that runs: from now on an answer for it is kept for this attempt. Said again, the last key counts. Besides
// [ErrStale], which says that the attempt is over, or that it is deferred already, the error may be a [*FieldError] or a [*KeyTakenError].
func (f *Deferrals) Expect(ctx context.Context, d Deferral, key string) error {
	if err := checkDeferral(&d, key); err != nil {
		return err
	}
	return f.with(ctx, &d, key, func(ctx context.Context, a *deferring) error {
		if a.begun() && a.job.Phase != "" {
			return fmt.Errorf("%w: attempt %d of task %s is deferred", ErrStale, d.Generation, d.Task)
		}
		if err := a.take(ctx, key); err != nil {
			return err
		}
		return a.keep(ctx)
	})
}

// Awaited is what [Deferrals.Await] answers.
type Awaited struct {
	// Answered: there is an answer already.
	Answered bool
	// Before: the attempt was deferred before, by another delivery of its message.
	Before bool
}

// Await defers an attempt: it has ended, and is settled when its answer comes, or when none has come within a time. key "" is the one that it expects. For an
// attempt that is deferred it changes nothing. Errors are those of Expect.
func (f *Deferrals) Await(ctx context.Context, d Deferral, key string, within time.Duration) (out Awaited, err error) {
	if key != "" {
		if err := checkDeferral(&d, key); err != nil {
			return out, err
		}
	}
	for {
		known := key
		err = f.with(ctx, &d, key, func(ctx context.Context, a *deferring) error {
			known, out = key, Awaited{}
			if a.begun() && a.job.Phase != "" {
				out = Awaited{Answered: a.job.Phase == Answered, Before: true}
				return nil
			}
			if known == "" && a.begun() {
				known = a.job.Key
				return nil
			}
			if err := checkDeferral(&d, key); err != nil {
				return err
			}
			if err := a.take(ctx, key); err != nil {
				return err
			}
			if err := a.claimEarly(ctx); err != nil {
				return err
			}
			if out.Answered = a.job.answered(); out.Answered {
				a.job.Phase = Answered
				a.until(a.now)
			} else {
				a.job.Phase = Awaiting
				a.until(micros(a.now.Add(within)))
			}
			return a.keep(ctx)
		})
		if err != nil || known == key {
			return out, err
		}
		key = known // and now with its lock
	}
}

// Drop says that an attempt which expected an answer has ended without Await: it expects nothing any more, nor does one before it.
func (f *Deferrals) Drop(ctx context.Context, d Deferral) error {
	found, err := f.s.List(ctx, Query{Name: d.Name, UniqueKey: d.uniqueKey(), States: []State{Running}, Limit: 1})
	if err != nil || len(found) == 0 {
		return err
	}
	err = f.with(ctx, &d, "", func(ctx context.Context, a *deferring) error {
		if a.job == nil || a.job.Phase != "" && (a.begun() || a.job.Scheduled.IsZero()) {
			return nil // it is deferred, and by another attempt: this one is not its retry
		}
		return a.tx.Delete(ctx, a.job.ID) // also one whose retry, this attempt, was quicker than Next
	})
	if errors.Is(err, ErrStale) {
		return nil
	}
	return err
}

// Conclude says that an attempt has ended without Await, and without a success. If an answer was accepted for it, or for one before
// it, the attempt is deferred, and settled by that answer; a refusal is one too. Otherwise Conclude is Drop. It may be called again.
func (f *Deferrals) Conclude(ctx context.Context, d Deferral) (answered bool, err error) {
	for key := ""; ; {
		known := key
		err = f.with(ctx, &d, key, func(ctx context.Context, a *deferring) error {
			known, answered = key, false
			switch {
			case a.job == nil:
				return nil
			case a.job.Phase != "" && (a.begun() || a.job.Scheduled.IsZero()): // see Drop
				answered = a.begun()
				return nil
			case a.job.Key != key:
				known = a.job.Key
				return nil
			case a.job.Phase != "" || !a.job.answered():
				return a.tx.Delete(ctx, a.job.ID)
			}
			if err := a.take(ctx, key); err != nil {
				return err
			}
			answered, a.job.Phase = true, Answered
			a.until(a.now)
			return a.keep(ctx)
		})
		if err != nil || known == key {
			return answered, err
		}
		key = known // and now with its lock
	}
}

// Deferred reports whether an attempt is deferred, or was, and has been taken further since. A message of it that comes again is to be acknowledged, and
// nothing else.
func (f *Deferrals) Deferred(ctx context.Context, d Deferral) (bool, error) {
	is := false
	err := f.s.c.Store.View(ctx, func(ctx context.Context, tx Tx) error {
		is = false
		found, err := tx.Find(ctx, Query{Name: d.Name, UniqueKey: d.uniqueKey()})
		for i := range found {
			j := &found[i]
			is = is || j.Run > d.run() || j.Run == d.run() && (j.State.Over() || j.Phase != "")
		}
		return err
	})
	return is, err
}
