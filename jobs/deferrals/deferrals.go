// Package deferrals keeps tasks that wait for answers in a store of jobs: it implements the port
// deferral. Their answers come through [jobs.Service].Complete, Reject and AnswerAll.
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
	// Jobs receives the answers. Its store keeps the deferrals.
	Jobs *jobs.Service
	// Keep is the retention of a deferral that is over. A late or repeated answer is then told from
	// an unknown one. A task is not run again under its id until then, so that results should be
	// kept as long. Default: [jobs.DefaultKeep]. At most [task.MaxTimeLimit].
	Keep time.Duration
	// Logger logs errors that no caller receives. Default: slog.Default().
	Logger *slog.Logger
}

// Store implements [deferral.Store]. All methods are safe for concurrent use, in any number of
// processes over one database.
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

// New returns the deferrals in the store of c.Jobs. It does no I/O. All problems of c are returned,
// joined.
func New(c Config) (*Store, error) {
	var errs []error
	if c.Jobs == nil {
		errs = append(errs, errors.New("deferrals: Config.Jobs is not set"))
	}
	if c.Keep == 0 {
		c.Keep = jobs.DefaultKeep
	}
	if c.Keep < 0 || c.Keep > task.MaxTimeLimit {
		errs = append(errs, fmt.Errorf("deferrals: Config.Keep %s is not from 0 to %s", c.Keep, task.MaxTimeLimit))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return &Store{jobs: c.Jobs, store: c.Jobs.Store(), keep: c.Keep, log: c.Logger}, nil
}

// change is an attempt in a transaction that may change its deferral.
type change struct {
	tx  jobstore.Tx
	now time.Time
	a   *deferral.Attempt
	d   *jobstore.Deferral // nil: the attempt has none yet
}

// update runs fn in a transaction that has locked the task's deferral and the answer of key. An
// attempt that is over is [deferral.ErrStale].
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

// begun reports whether the deferral is of this attempt, and deferred whether the attempt has
// ended.
func (c *change) begun() bool { return c.d != nil && c.d.Generation == c.a.Generation }

func (c *change) deferred() bool { return c.begun() && c.d.Phase != jobstore.DeferralReserved }

// othersTurn reports whether the deferral is another attempt's that has ended, and that nobody
// settles yet: its retry is not this attempt.
func (c *change) othersTurn() bool {
	return c.d != nil && !c.begun() && c.d.Phase != jobstore.DeferralReserved && !c.d.Claimed
}

// take gives the deferral to this attempt, with a key. An answer for the same key stays, if it has
// settled no attempt.
func (c *change) take(ctx context.Context, key string) error {
	if c.d == nil {
		c.d = &jobstore.Deferral{Task: c.a.Task}
	}
	d := c.d
	if d.Phase != jobstore.DeferralReserved || d.Key != key || d.Name != c.a.Name {
		d.Verdict, d.Answer, d.Refusal = jobstore.NoVerdict, nil, ""
	}
	if d.Key != key || d.Name != c.a.Name {
		if err := c.free(ctx, key); err != nil {
			return err
		}
	}
	d.Queue, d.Name, d.Key, d.Generation, d.AtMostOnce, d.State = c.a.Queue, c.a.Name, key, c.a.Generation, c.a.AtMostOnce, c.a.State
	d.Phase, d.Claimed = jobstore.DeferralReserved, false
	d.Fence++
	c.until(c.now.Add(task.DefaultAnswerWithin))
	return nil
}

// free returns an ErrKeyTaken if another task or a job awaits an answer for key.
func (c *change) free(ctx context.Context, key string) error {
	other, err := c.tx.DeferralOf(ctx, c.a.Name, key)
	if err != nil {
		return err
	}
	if other != nil && other.Open() && other.Task != c.a.Task {
		return &jobs.KeyTakenError{Key: key, Task: other.Task}
	}
	found, err := c.tx.OfKey(ctx, c.a.Name, key, jobstore.Page{States: jobstore.OpenStates(), Limit: 1})
	if err == nil && len(found) > 0 {
		err = &jobs.KeyTakenError{Key: key, Job: found[0].ID}
	}
	return err
}

// claimEarly gives the deferral the answer that has come early, if there is one.
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

// decide ends the waiting.
func (c *change) decide() {
	c.d.Phase = jobstore.DeferralDecided
	c.until(c.now)
}

// until sets the Deadline, at which a consumer looks at the deferral.
func (c *change) until(at time.Time) { c.d.Deadline, c.d.Due = at, at }

// check checks the arguments of a consumer.
func check(a *deferral.Attempt, key string) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: no key", deferral.ErrRefused)
	case len(key) > jobs.MaxKey || !utf8.ValidString(key) || strings.IndexByte(key, 0) >= 0:
		return fmt.Errorf("%w: the key is not at most %d bytes of text", deferral.ErrRefused, jobs.MaxKey)
	case len(a.State) > jobs.MaxData:
		return fmt.Errorf("%w: %d bytes, more than %d: a task that waits for an answer is kept with its message", deferral.ErrRefused, len(a.State), jobs.MaxData)
	}
	return nil
}

// wrap puts the port's error beside that of the jobs.
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

// Reserve implements [deferral.Store].
func (s *Store) Reserve(ctx context.Context, a deferral.Attempt, key string) error {
	if err := check(&a, key); err != nil {
		return err
	}
	return s.update(ctx, &a, key, func(ctx context.Context, c *change) error {
		if c.deferred() {
			return fmt.Errorf("%w: attempt %d of task %s is deferred", deferral.ErrStale, a.Generation, a.Task)
		}
		if err := c.take(ctx, key); err != nil {
			return err
		}
		return c.tx.SaveDeferrals(ctx, c.d)
	})
}

// Defer implements [deferral.Store].
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
			if err := c.take(ctx, key); err != nil {
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
		key = known // and now with its lock
	}
}

// wholeMicros rounds a time up to a microsecond, in which stores keep it.
func wholeMicros(t time.Time) time.Time {
	if rest := t.Nanosecond() % 1000; rest != 0 {
		return t.Add(time.Duration(1000 - rest))
	}
	return t
}

// Drop implements [deferral.Store].
func (s *Store) Drop(ctx context.Context, a deferral.Attempt) error {
	_, err := s.drop(ctx, &a, false)
	if errors.Is(err, deferral.ErrStale) {
		return nil
	}
	return err
}

// DropUnanswered implements [deferral.Store].
func (s *Store) DropUnanswered(ctx context.Context, a deferral.Attempt) (answered bool, err error) {
	return s.drop(ctx, &a, true)
}

func (s *Store) drop(ctx context.Context, a *deferral.Attempt, keepAnswer bool) (answered bool, err error) {
	if there, err := s.there(ctx, a.Task); err != nil || !there {
		return false, err
	}
	err = s.update(ctx, a, "", func(ctx context.Context, c *change) error {
		answered = false
		switch {
		case c.d == nil:
			return nil
		case c.deferred(), c.othersTurn():
			answered = c.begun()
			return nil
		case keepAnswer && c.d.Phase == jobstore.DeferralReserved && c.d.Answered():
			if err := c.take(ctx, c.d.Key); err != nil {
				return err
			}
			answered = true
			c.decide()
			return c.tx.SaveDeferrals(ctx, c.d)
		}
		return c.tx.DeleteDeferrals(ctx, a.Task) // also one whose retry, this attempt, was quicker than Next
	})
	return answered, err
}

// there reports whether a task has a deferral. It locks nothing: most tasks have none, and end
// without a transaction here.
func (s *Store) there(ctx context.Context, id task.ID) (is bool, err error) {
	err = s.store.View(ctx, func(ctx context.Context, tx jobstore.Tx) error {
		found, err := tx.Deferrals(ctx, id)
		is = len(found) > 0
		return err
	})
	return is, wrap(err)
}

// Overtaken implements [deferral.Store].
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
