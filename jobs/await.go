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
// chooses. It stores the key and Respond in the job. The attempt continues.
//
// Returns [ErrKeyTaken] if another job or task has the key. Returns [ErrAnswerThere] if the attempt
// already has an answer to its earlier key. Returns [ErrStale] or [ErrNotRunning] if the attempt is
// over.
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

// register stores key as the Key of j, which runs, deletes the answer to the earlier key, and saves
// j. It does nothing if j already has this key. Returns ErrLocks if the key is not locked yet,
// ErrAnswerThere if j has an answer, and ErrKeyTaken if another job or task has the key.
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
// still counts against the limit of its queue, but no worker has it. The answer ends the job or
// makes it due ([Service.Complete]). If no answer has come at the Deadline, the job is claimed
// again with Phase Awaiting.
//
// answered reports that the answer came before this call. It has then already had its effect.
// Returns [ErrKeyTaken] if another job or task has the key. Returns [ErrStale] or [ErrNotRunning]
// if the attempt is over.
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

// await sets the Phase of j to Awaiting until its deadline, and saves j. If the answer is already
// stored, j gets it instead and hasAnswer is true. got is the receipt of an early answer that j
// claimed, else nil; ended is its effect.
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

// redeliverAnswer makes j, whose answer has come, due at once, so that a worker claims it and
// handles the answer. It saves j. The token stays if Phase is Answered already.
func (s *Service) redeliverAnswer(ctx context.Context, t *txn.Step, j *Row) error {
	if j.Phase == Answered {
		j.Due = t.Now
		return t.Save(ctx, j)
	}
	return s.deliverAnswer(ctx, t, j)
}

// deadline returns the time at which the wait of j for its answer ends. Zero: no limit.
// [Await].Timeout explains the order of the defaults. Returns a FieldError if the time cannot be
// stored.
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
