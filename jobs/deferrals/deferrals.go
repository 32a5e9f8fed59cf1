// Package deferrals stores tasks that wait for answers in a store of jobs. It implements the port
// of package deferral. The answers come through [jobs.Service].Complete, Reject and AnswerAll.
package deferrals

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/deferral"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// Config configures a [Store]. Only Jobs is required.
type Config struct {
	// Jobs receives the answers. The deferrals are stored in its store.
	Jobs *jobs.Service
	// Retention is the time for which a deferral that is over stays. Within this time a late or
	// repeated answer is distinguished from an unknown one, and the task is not run again under its
	// id. Retain results for the same time. Default: [jobs.DefaultRetention]. At most
	// [task.MaxTimeLimit].
	Retention time.Duration
	// Logger logs errors that are not returned to a caller. Default: slog.Default().
	Logger *slog.Logger
}

// Store implements [deferral.Store]. Any number of processes may use one database. All methods are
// safe for concurrent use.
type Store struct {
	jobs  *jobs.Service
	store jobs.Store
	keep  time.Duration
	log   *slog.Logger
}

var (
	_ deferral.Store = (*Store)(nil)
	_ deferral.Waker = (*Store)(nil)
)

// New returns a Store over the store of c.Jobs. It does no I/O and starts no goroutine. Default of
// Retention: jobs.DefaultRetention. Default of Logger: slog.Default().
//
// Returns a nil Store and all problems of c, joined: Jobs is not set, or Retention is out of
// range.
func New(c Config) (*Store, error) {
	var errs []error
	if c.Jobs == nil {
		errs = append(errs, errors.New("deferrals: Config.Jobs is not set"))
	}
	if c.Retention == 0 {
		c.Retention = jobs.DefaultRetention
	}
	if c.Retention < 0 || c.Retention > task.MaxTimeLimit {
		errs = append(errs, fmt.Errorf("deferrals: Config.Retention %s is not from 0 to %s", c.Retention, task.MaxTimeLimit))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return &Store{jobs: c.Jobs, store: c.Jobs.Store(), keep: c.Retention, log: c.Logger}, nil
}

// change is an attempt and its deferral in a transaction that may change the deferral.
type change struct {
	tx  jobstore.Tx
	now time.Time
	a   *deferral.Attempt
	d   *jobstore.Deferral // nil: the task has no open deferral yet
}

// update calls fn in a transaction that has locked the deferral of the task and, unless key is "",
// the answer to key. fn may run again. change.d is nil if the task has no open deferral.
//
// Returns [deferral.ErrStale], without calling fn, if the attempt is over or a later one has begun.
// Returns the error of fn or of the store, as wrap converts it.
func (s *Store) update(ctx context.Context, a *deferral.Attempt, key string, fn func(ctx context.Context, c *change) error) error {
	return wrap(s.store.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error {
		if err := tx.Lock(ctx, jobstore.DeferralLock(a.Task)); err != nil {
			return err
		}
		if key != "" {
			if err := tx.Lock(ctx, jobstore.AnswerLock(a.Name, key)); err != nil {
				return err
			}
		}
		found, err := tx.Deferrals(ctx, a.Task)
		if err != nil {
			return err
		}
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		c := &change{tx: tx, now: now, a: a}
		if len(found) > 0 {
			switch d := &found[0]; {
			case d.Generation > a.Generation, d.Generation == a.Generation && !d.Open():
				return fmt.Errorf("%w: attempt %d of task %s is over", deferral.ErrStale, a.Generation, a.Task)
			case d.Open():
				c.d = d
			}
		}
		return fn(ctx, c)
	}))
}

// begun reports whether the deferral belongs to this attempt. It is false if the task has no open
// deferral.
func (c *change) begun() bool { return c.d != nil && c.d.Generation == c.a.Generation }

// deferred reports whether the deferral belongs to this attempt, and the attempt has ended to wait
// for its answer.
func (c *change) deferred() bool { return c.begun() && c.d.Phase != jobstore.DeferralReserved }

// awaitsOther reports whether the deferral belongs to an earlier attempt that has ended, and that
// waits for its answer or has the answer. It is false if a consumer has begun to settle the earlier
// attempt, since this attempt may then be its retry.
func (c *change) awaitsOther() bool {
	return c.d != nil && !c.begun() && c.d.Phase != jobstore.DeferralReserved && !c.d.Claimed
}

// fits reports whether the stored answer may settle this attempt. It is false for the answer that
// an earlier attempt awaited to continue, if this one did not get that far: it is not its result.
func (c *change) fits() bool {
	return c.a.Resumes() || !(&deferral.Attempt{State: c.d.State}).Resumes()
}

// takeOver assigns the deferral to this attempt: with key, the state of the attempt, and in phase
// DeferralReserved (the attempt runs, and its answer is accepted). It creates a missing deferral.
// The attempt must report within task.DefaultAnswerWithin.
//
// A stored answer to the same key stays, unless an attempt has already ended to wait for it. Any
// other answer is dropped. It increases Fence and clears Claimed, so a consumer that has claimed
// the deferral changes nothing. Returns jobs.ErrKeyTaken if another task or job has the key, and
// errors of the store. The caller saves the deferral.
func (c *change) takeOver(ctx context.Context, key string) error {
	if c.d == nil {
		c.d = &jobstore.Deferral{Task: c.a.Task}
	}
	d := c.d
	if d.Phase != jobstore.DeferralReserved || d.Key != key || d.Name != c.a.Name {
		d.Verdict, d.Answer, d.Refusal = jobstore.NoVerdict, nil, ""
	}
	if d.Key != key || d.Name != c.a.Name {
		if err := c.checkFree(ctx, key); err != nil {
			return err
		}
	}
	d.Queue, d.Name, d.Key, d.Generation, d.AtMostOnce, d.State = c.a.Queue, c.a.Name, key, c.a.Generation, c.a.AtMostOnce, c.a.State
	d.Phase, d.Claimed = jobstore.DeferralReserved, false
	d.Fence++
	c.until(c.now.Add(task.DefaultAnswerWithin))
	return nil
}

// checkFree returns an error that wraps jobs.ErrKeyTaken and names the owner if another task, or a
// job, awaits an answer to key. nil: the key is free, or this task has it. It waits for the store
// and returns its errors.
func (c *change) checkFree(ctx context.Context, key string) error {
	k := jobstore.Group{By: jobstore.ByKey, Name: c.a.Name, Key: key}
	tasks, err := c.tx.OpenDeferrals(ctx, k)
	if err != nil {
		return err
	}
	if other, taken := tasks[k]; taken && other != c.a.Task {
		return &jobs.KeyTakenError{Key: key, Task: other}
	}
	found, err := c.tx.First(ctx, jobstore.OpenStates(), k)
	if id, taken := found[k]; err == nil && taken {
		err = &jobs.KeyTakenError{Key: key, Job: id}
	}
	return err
}

// claimEarly moves an early answer or refusal (stored before its request) to the key into the
// deferral, and deletes it from the store. It does nothing if the deferral has an answer, or no
// unexpired early answer exists. The caller saves the deferral. It waits for the store and returns
// its errors.
func (c *change) claimEarly(ctx context.Context) error {
	if c.d.Answered() {
		return nil
	}
	e, err := c.tx.Early(ctx, c.d.Name, c.d.Key)
	if err != nil || e == nil || !e.Expires.After(c.now) {
		return err
	}
	c.d.Verdict, c.d.Answer = jobstore.VerdictAnswer, e.Result
	if e.Refusal != "" {
		c.d.Verdict, c.d.Answer, c.d.Refusal = jobstore.VerdictRefusal, nil, e.Refusal
	}
	return c.tx.DeleteEarly(ctx, e.Name, e.Key)
}

// decide ends the wait for an answer: the deferral is due now in phase DeferralDecided. The caller
// saves it.
func (c *change) decide() {
	c.d.Phase = jobstore.DeferralDecided
	c.until(c.now)
}

// until sets Deadline and Due of the deferral to at, the time at which a consumer must handle it.
func (c *change) until(at time.Time) { c.d.Deadline, c.d.Due = at, at }

// check returns deferral.ErrRefused if the key is missing or malformed, or the state of the attempt
// is too long. It reads nothing.
func check(a *deferral.Attempt, key string) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: no key", deferral.ErrRefused)
	case len(key) > jobs.MaxKey || !utf8.ValidString(key) || strings.IndexByte(key, 0) >= 0:
		return fmt.Errorf("%w: the key is not at most %d bytes of text", deferral.ErrRefused, jobs.MaxKey)
	case len(a.State) > jobs.MaxData:
		return fmt.Errorf("%w: the state and message of the task have %d bytes, more than %d", deferral.ErrRefused, len(a.State), jobs.MaxData)
	}
	return nil
}

// wrap adds the matching error of package deferral to an error of the store: ErrUnavailable,
// ErrClosed, or ErrRefused for a bad job or a taken key. Other errors, and nil, are returned
// unchanged.
func wrap(err error) error {
	for class, port := range map[error]error{
		jobs.ErrUnavailable: deferral.ErrUnavailable, jobs.ErrClosed: deferral.ErrClosed, jobs.ErrBadJob: deferral.ErrRefused, jobs.ErrKeyTaken: deferral.ErrRefused,
	} {
		if errors.Is(err, class) {
			return fmt.Errorf("%w: %w", port, err)
		}
	}
	return err
}

// Reserve reserves key for the answer to a running attempt, and stores the state of the attempt. A
// second call with another key replaces the key, and an answer to the old key is dropped. With the
// same key an answer that has come stays. The deferral of an earlier attempt passes to this one.
//
// Returns [deferral.ErrStale] if the attempt is deferred or over, or a later one has begun. Returns
// [deferral.ErrRefused] for an invalid key, a key that another task or job has, and a state that is
// too long. Returns errors of the store, such as [deferral.ErrUnavailable]; the key may then be
// reserved. It implements [deferral.Store].
func (s *Store) Reserve(ctx context.Context, a deferral.Attempt, key string) error {
	if err := check(&a, key); err != nil {
		return err
	}
	return s.update(ctx, &a, key, func(ctx context.Context, c *change) error {
		if c.deferred() {
			return fmt.Errorf("%w: attempt %d of task %s is deferred", deferral.ErrStale, a.Generation, a.Task)
		}
		if err := c.takeOver(ctx, key); err != nil {
			return err
		}
		return c.tx.SaveDeferrals(ctx, c.d)
	})
}

// Defer ends an attempt that waits for its answer for at most within; after that a consumer gets
// the deferral as timed out. key "" means the reserved key. If the answer or an early answer has
// come, the deferral is due at once and Status.Answered is true.
//
// A repeated call for a deferred attempt changes nothing; Status.Before is then true. Returns
// [deferral.ErrStale] if the attempt is over or a later one has begun. Returns
// [deferral.ErrRefused] as Reserve does, and if key is "" and no key is reserved. Returns errors of
// the store; the attempt may then be deferred. It implements [deferral.Store].
func (s *Store) Defer(ctx context.Context, a deferral.Attempt, key string, within time.Duration) (out deferral.Status, err error) {
	if key != "" {
		if err := check(&a, key); err != nil {
			return out, err
		}
	}
	for {
		known := key
		err = s.update(ctx, &a, key, func(ctx context.Context, c *change) error {
			known, out = key, deferral.Status{}
			switch {
			case c.deferred():
				out = deferral.Status{Answered: c.d.Phase == jobstore.DeferralDecided, Before: true}
				return nil
			case key == "" && c.begun():
				known = c.d.Key
				return nil
			}
			if err := check(&a, key); err != nil {
				return err
			}
			if err := c.takeOver(ctx, key); err != nil {
				return err
			}
			if err := c.claimEarly(ctx); err != nil {
				return err
			}
			if out.Answered = c.d.Answered(); out.Answered {
				c.decide()
			} else {
				c.d.Phase = jobstore.DeferralAwaiting
				c.until(wholeMicros(c.now.Add(within)))
			}
			return c.tx.SaveDeferrals(ctx, c.d)
		})
		if err != nil || known == key {
			return out, err
		}
		key = known // try again with the lock of the reserved key
	}
}

// wholeMicros rounds t up to whole microseconds, the precision of stores.
func wholeMicros(t time.Time) time.Time {
	if rest := t.Nanosecond() % 1000; rest != 0 {
		return t.Add(time.Duration(1000 - rest))
	}
	return t
}

// Drop deletes the deferral of a task whose attempt needs no answer, with an answer that has come.
// A deferral of a deferred attempt stays. The deferral of an earlier deferred attempt also stays,
// unless a consumer has begun to settle it. Returns nil if no deferral exists, or if the attempt is
// over. Returns errors of the store, such as [deferral.ErrUnavailable]. It implements
// [deferral.Store].
func (s *Store) Drop(ctx context.Context, a deferral.Attempt) error {
	_, err := s.drop(ctx, &a, false)
	if errors.Is(err, deferral.ErrStale) {
		return nil
	}
	return err
}

// DropUnanswered is Drop, but an attempt whose answer or refusal has come is deferred and due at
// once instead. It drops an answer that was to continue an earlier attempt, if a does not resume.
// answered reports that the attempt is deferred, now or earlier. Returns
// [deferral.ErrStale] if the attempt is over or a later one has begun, and errors of the store. It
// implements [deferral.Store].
func (s *Store) DropUnanswered(ctx context.Context, a deferral.Attempt) (answered bool, err error) {
	return s.drop(ctx, &a, true)
}

// drop deletes the open deferral of a task. It changes nothing if this attempt is deferred, or an
// unrelated earlier attempt waits for its answer (awaitsOther). With keepAnswer an attempt with an
// answer that fits is deferred and due instead.
//
// answered reports that this attempt is deferred. Returns [deferral.ErrStale] if the attempt is
// over or a later one has begun. Without any deferral it only reads, and returns false. Returns
// errors of the store, as wrap converts them.
func (s *Store) drop(ctx context.Context, a *deferral.Attempt, keepAnswer bool) (answered bool, err error) {
	if found, err := s.exists(ctx, a.Task); err != nil || !found {
		return false, err
	}
	err = s.update(ctx, a, "", func(ctx context.Context, c *change) error {
		answered = false
		switch {
		case c.d == nil:
			return nil
		case c.deferred(), c.awaitsOther():
			answered = c.begun()
			return nil
		case keepAnswer && c.d.Phase == jobstore.DeferralReserved && c.d.Answered() && c.fits():
			if err := c.takeOver(ctx, c.d.Key); err != nil {
				return err
			}
			answered = true
			c.decide()
			return c.tx.SaveDeferrals(ctx, c.d)
		}
		// This also deletes a deferral whose retry, this attempt, began before Next was stored.
		return c.tx.DeleteDeferrals(ctx, a.Task)
	})
	return answered, err
}

// exists reports whether a task has a deferral, open or over. It waits for the store and locks
// nothing. Most tasks have no deferral and then end without a transaction. Returns errors of the
// store, as wrap converts them.
func (s *Store) exists(ctx context.Context, id task.ID) (is bool, err error) {
	err = s.store.View(ctx, func(ctx context.Context, tx jobstore.Tx) error {
		found, err := tx.Deferrals(ctx, id)
		is = len(found) > 0
		return err
	})
	return is, wrap(err)
}

// Overtaken reports whether the attempt is deferred or over, or a later attempt of the task has
// begun. It is false for a task without a deferral. It locks nothing. Returns errors of the store,
// as wrap converts them. It implements [deferral.Store].
func (s *Store) Overtaken(ctx context.Context, a deferral.Attempt) (is bool, err error) {
	err = s.store.View(ctx, func(ctx context.Context, tx jobstore.Tx) error {
		found, err := tx.Deferrals(ctx, a.Task)
		is = false
		for i := range found {
			d := &found[i]
			is = d.Generation > a.Generation || d.Generation == a.Generation && d.Phase != jobstore.DeferralReserved
		}
		return err
	})
	return is, wrap(err)
}
