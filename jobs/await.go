package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/internal/txn"
	"github.com/swarmiji/swarmiji/task"
)

// Await describes an attempt that has sent its request and waits for an answer from outside.
type Await struct {
	ID ID
	// Token is the fencing token of the attempt. 0: any token matches.
	Token int64
	// Key identifies the answer, together with the job's name. "": the job's present Key.
	Key string
	// Timeout limits the wait, from now. 0: no limit. Unset: the job's Deadline if it has one; else
	// the Timeout of a job of a queue; else [DefaultAttemptTimeout].
	Timeout task.Opt[time.Duration]
}

// Expect describes an attempt that is about to send a request.
type Expect struct {
	ID ID
	// Token is the fencing token of the attempt. 0: any token matches.
	Token int64
	// Key identifies the answer, together with the job's name.
	Key string
	// Respond, if set, replaces the Respond of the job.
	Respond task.Opt[bool]
}

// Expect reserves a key for this attempt. Call it before sending a request whose key the handler
// chooses. It stores the key and Respond in the job. The attempt continues. A new key clears Answer
// and Reason of the job, and the job no longer accepts an answer to the earlier key. With the
// present key only Respond changes.
//
// It blocks until the commit, which other changes may share. Returns [ErrKeyTaken] if another open
// job or a waiting task has the key. Returns [ErrAnswerThere] if the attempt already has an answer
// to its earlier key. Returns [ErrStale] or [ErrNotRunning] if the attempt is over, [ErrNotFound]
// for an unknown id, and a [FieldError] for an invalid key. Returns [ErrUnavailable] if ctx ends
// first; the key may then be reserved. The call counts as [Stats].Expected, or as Stale after
// ErrStale.
func (s *Service) Expect(ctx context.Context, e Expect) error {
	if e.Key == "" {
		return &FieldError{Field: "key", Problem: rules.Missing}
	}
	if err := checkKeyField("key", e.Key); err != nil {
		return err
	}
	err := s.txn.Batch(ctx, &txn.Change{
		ID:    e.ID,
		Needs: func(j *Row, l *txn.Locks) { _ = l.AddKey(j.Name, e.Key) },
		Do: func(ctx context.Context, t *txn.Step, j *Row) error {
			if err := rules.CheckAtWork(j, e.Token); err != nil {
				return err
			}
			if r := e.Respond.Or(j.Respond); r != j.Respond {
				if j.Respond = r; e.Key == j.Key {
					return t.Save(ctx, j)
				}
			}
			return s.register(ctx, t, j, e.Key)
		},
	})
	return s.counted(&s.count.expected, err)
}

// register stores key as the Key of j, which runs, and saves j. It clears Answer and Reason, and
// sets Attempt to at least 1. It does nothing if j already has this key.
//
// Returns ErrLocks, for another try, if the key is not locked yet. Returns ErrAnswerThere if j has
// an answer, and ErrKeyTaken if another open job or a waiting task has the key. j is then
// unchanged. Returns errors of the store.
func (s *Service) register(ctx context.Context, t *txn.Step, j *Row, key string) error {
	if key == j.Key {
		return nil
	}
	if err := t.Locks.AddKey(j.Name, key); err != nil {
		return err
	}
	if rules.IsAnswered(j) || j.Phase == Answered {
		return fmt.Errorf("%w: job %d", ErrAnswerThere, j.ID)
	}
	changed := *j
	changed.Key, changed.UniqueKey = key, ""
	if err := t.Free(ctx, &changed); err != nil {
		return err
	}
	j.Key, j.Answer, j.Reason = key, nil, ""
	j.Attempt = max(j.Attempt, 1)
	return t.Save(ctx, j)
}

// Await ends the work of an attempt whose answer comes from outside. The job stays RUNNING and
// still counts against the limit of its queue, but no worker has it. The answer ends the job's run
// or makes the job due ([Service.Complete]). If no answer has come at the Deadline, the job is
// claimed again with Phase Awaiting. A repeated call with the same key changes nothing.
//
// answered reports that the answer came before this call: during the attempt, or as an early
// answer. It has then already had its effect.
//
// It blocks until the commit, which other changes may share. Returns [ErrKeyTaken] if another open
// job or a waiting task has the key. Returns [ErrAnswerThere] for another key if the attempt has
// its answer. Returns [ErrStale] or [ErrNotRunning] if the attempt is over, and [ErrNotFound] for
// an unknown id. Returns a [FieldError] if neither a nor the job has a key, or if a field is
// invalid. Returns [ErrUnavailable] if ctx ends first; the job may then await its answer. The call
// counts as [Stats].Awaiting, or as Stale after ErrStale; a claimed early answer also as Accepted.
func (s *Service) Await(ctx context.Context, a Await) (answered bool, err error) {
	if err := checkKeyField("key", a.Key); err != nil {
		return false, err
	}
	if d, set := a.Timeout.Get(); set {
		if d, err = checkTimeout(d); err != nil {
			return false, err
		}
		a.Timeout = task.Set(d)
	}
	var hasAnswer bool
	var got *Receipt
	var ended runEnd
	err = s.txn.Batch(ctx, &txn.Change{
		ID: a.ID,
		Needs: func(j *Row, l *txn.Locks) {
			if key := a.Key; key != "" {
				_ = l.AddKey(j.Name, key)
			} else {
				_ = l.AddKey(j.Name, j.Key)
			}
		},
		Do: func(ctx context.Context, t *txn.Step, j *Row) (err error) {
			hasAnswer, got, ended, err = s.await(ctx, t, j, &a)
			return err
		},
		Then: func() {
			if got != nil {
				s.reportAnswer(Answer{}, *got, ended)
			}
		},
	})
	if err = s.counted(&s.count.awaiting, err); err != nil {
		return false, err
	}
	return hasAnswer, nil
}

// await makes j RUNNING with Phase Awaiting until its deadline, stores the key of a in j, and saves
// j.
//
//   - hasAnswer reports that the answer has come before. If it has ended the run, nothing changes.
//     If it is stored in j, redeliverAnswer makes j due with it.
//   - If an early answer is stored, j accepts it at once (accept). hasAnswer is then true, got is
//     its receipt, and ended its effect. In all other cases got is nil.
//   - If j awaits an answer with this key already, nothing changes.
//
// Returns ErrLocks, for another try, if the key is not locked yet. Returns a FieldError without a
// key, and ErrStale or ErrNotRunning if the attempt is over. Returns the errors of register (a
// taken key, ErrAnswerThere), of accept and of the store.
func (s *Service) await(ctx context.Context, t *txn.Step, j *Row, a *Await) (hasAnswer bool, got *Receipt, ended runEnd, err error) {
	if a.Token != 0 && a.Token == j.Token && (j.State == Finished && j.Phase == Answered || !j.State.Runs() && !j.State.Over() && j.Attempt == 0) {
		return true, nil, noEnd, nil // the answer has ended the run
	}
	if err := rules.CheckAtWork(j, a.Token); err != nil {
		return false, nil, noEnd, err
	}
	key := a.Key
	if key == "" {
		key = j.Key
	}
	if key == "" {
		return false, nil, noEnd, &FieldError{Field: "key", Problem: rules.Missing}
	}
	switch {
	case rules.IsAnswered(j):
		return true, nil, noEnd, s.redeliverAnswer(ctx, t, j)
	case j.Phase == Awaiting && key == j.Key:
		return false, nil, noEnd, nil
	}
	if err := t.Locks.AddKey(j.Name, key); err != nil {
		return false, nil, noEnd, err
	}
	if err := s.register(ctx, t, j, key); err != nil {
		return false, nil, noEnd, err
	}
	j.Attempt = max(j.Attempt, 1)
	j.State, j.Phase = Running, Awaiting
	early, err := s.claimEarly(ctx, t, j)
	if err != nil {
		return false, nil, noEnd, err
	}
	if early != nil {
		ended, err = s.accept(ctx, t, j, early)
		return true, &Receipt{Kind: Accepted, Job: j.ID}, ended, err
	}
	if j.Deadline, err = s.deadline(t, j, a.Timeout); err != nil {
		return false, nil, noEnd, err
	}
	j.Due = j.Deadline
	return false, nil, noEnd, t.Save(ctx, j)
}

// redeliverAnswer makes j, whose answer has come, due now, so that a worker claims it and handles
// the answer. It saves j. With Phase Answered the token stays; otherwise deliverAnswer does the
// work. Returns the error of saving j.
func (s *Service) redeliverAnswer(ctx context.Context, t *txn.Step, j *Row) error {
	if j.Phase == Answered {
		j.Due = t.Now
		return t.Save(ctx, j)
	}
	return s.deliverAnswer(ctx, t, j)
}

// deadline returns the time at which the wait of j for its answer ends. Zero: no limit. It is now
// plus timeout if timeout is set; 0 means no limit. Otherwise it is the present Deadline of j, or
// now plus the Timeout of a job of a queue or DefaultAttemptTimeout. Returns a FieldError if the
// time is outside the years 0000 to 9999.
func (s *Service) deadline(t *txn.Step, j *Row, timeout task.Opt[time.Duration]) (time.Time, error) {
	d, set := timeout.Get()
	switch {
	case set:
	case !j.Deadline.IsZero():
		return j.Deadline, nil
	case j.Queue != "":
		d = j.Timeout
	default:
		d = DefaultAttemptTimeout
	}
	if d == 0 {
		return time.Time{}, nil
	}
	end := rules.Micros(t.Now.Add(d))
	if !rules.InRange(end) {
		return end, &FieldError{Field: "timeout", Problem: rules.Malformed}
	}
	return end, nil
}
