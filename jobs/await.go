package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/internal/txn"
	"github.com/swarmiji/swarmiji/task"
)

// Await describes a run that has sent its request and waits for an answer from outside.
type Await struct {
	ID ID
	// Token is the fencing token of the attempt. 0: any caller may.
	Token int64
	// Key names the job for the answer, together with its name. "": the Key that the job has.
	Key string
	// Timeout is the most time of the wait, from now. 0: no limit. Unset: until the Deadline of the
	// job, else the Timeout of a job of a queue, else [DefaultAttemptTimeout].
	Timeout task.Opt[time.Duration]
}

// Expect describes a run that is about to send a request.
type Expect struct {
	ID ID
	// Token is the fencing token of the attempt.
	Token int64
	// Key names the job for the answer, together with its name.
	Key string
	// Respond, if set, replaces the job's.
	Respond task.Opt[bool]
}

// Expect reserves a key for this attempt. Call it before sending a request whose key the handler
// chooses. It does not end the run.
//
// Returns [ErrKeyTaken] if another job or task has the key, and [ErrAnswerThere] if the answer to
// the earlier key has come.
func (s *Service) Expect(ctx context.Context, e Expect) error {
	if e.Key == "" {
		return &FieldError{Field: "key", Problem: rules.Missing}
	}
	if err := checkKeyField("key", e.Key); err != nil {
		return err
	}
	err := s.txn.Batch(ctx, &txn.Change{
		Id:    e.ID,
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

// register gives j, which runs, a key for answers, unless j has it already.
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

// Await ends the work of a run whose answer comes from outside. The job stays RUNNING and keeps its
// place in its queue, but no process works on it. The answer ends the job, or makes it due
// ([Service.Complete]). If no answer has come at the Deadline, the job is claimed with Phase
// Awaiting.
//
// answered reports that the answer came before; it has then had its effect.
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
	var there bool
	var got *Receipt
	var ended ending
	err = s.txn.Batch(ctx, &txn.Change{
		Id: a.ID,
		Needs: func(j *Row, l *txn.Locks) {
			if key := a.Key; key != "" {
				_ = l.AddKey(j.Name, key)
			} else {
				_ = l.AddKey(j.Name, j.Key)
			}
		},
		Do: func(ctx context.Context, t *txn.Step, j *Row) (err error) {
			there, got, ended, err = s.await(ctx, t, j, &a)
			return err
		},
		Then: func() {
			if got != nil {
				s.answered(Answer{}, *got, ended)
			}
		},
	})
	if err = s.counted(&s.count.awaiting, err); err != nil {
		return false, err
	}
	return there, nil
}

// await lets j wait for its answer, or gives it its early answer. got is the receipt of an early
// answer, else nil.
func (s *Service) await(ctx context.Context, t *txn.Step, j *Row, a *Await) (there bool, got *Receipt, ended ending, err error) {
	if a.Token != 0 && a.Token == j.Token && (j.State == Finished && j.Phase == Answered || !j.State.Runs() && !j.State.Over() && j.Attempt == 0) {
		return true, nil, goesOn, nil // the answer has ended the run
	}
	if err := rules.CheckAtWork(j, a.Token); err != nil {
		return false, nil, goesOn, err
	}
	key := a.Key
	if key == "" {
		key = j.Key
	}
	if key == "" {
		return false, nil, goesOn, &FieldError{Field: "key", Problem: rules.Missing}
	}
	switch {
	case rules.IsAnswered(j):
		return true, nil, goesOn, s.goOnWith(ctx, t, j)
	case j.Phase == Awaiting && key == j.Key:
		return false, nil, goesOn, nil
	}
	if err := t.Locks.AddKey(j.Name, key); err != nil {
		return false, nil, goesOn, err
	}
	if err := s.register(ctx, t, j, key); err != nil {
		return false, nil, goesOn, err
	}
	j.Attempt = max(j.Attempt, 1)
	j.State, j.Phase = Running, Awaiting
	early, err := s.claimEarly(ctx, t, j)
	if err != nil {
		return false, nil, goesOn, err
	}
	if early != nil {
		ended, err = s.accept(ctx, t, j, early)
		return true, &Receipt{Kind: Accepted, Job: j.ID}, ended, err
	}
	if j.Deadline, err = s.deadline(t, j, a.Timeout); err != nil {
		return false, nil, goesOn, err
	}
	j.Due = j.Deadline
	return false, nil, goesOn, t.Save(ctx, j)
}

// goOnWith makes j due at once: its request is done, and its answer has come.
func (s *Service) goOnWith(ctx context.Context, t *txn.Step, j *Row) error {
	if j.Phase == Answered {
		j.Due = t.Now
		return t.Save(ctx, j)
	}
	return s.goOn(ctx, t, j)
}

// deadline returns when the wait for an answer ends.
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
