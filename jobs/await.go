package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/internal/txn"
	"github.com/swarmiji/swarmiji/task"
)

// Await tells that a run has sent its request, and is done until there is an answer from outside.
type Await struct {
	ID ID
	// Token is that of the run. 0: whoever asks, may.
	Token int64
	// Key is what the answer will name the job by, together with its name. "": the Key that it has.
	Key string
	// Timeout is how long the answer is awaited, from now on; 0: for ever. Unset: until the Deadline that the job has, else for its Timeout, which a job of a queue
	// has, else for [DefaultAttemptTimeout].
	Timeout task.Opt[time.Duration]
}

// Expect tells that a run is about to send a request.
type Expect struct {
	ID ID
	// Token is that of the run.
	Token int64
	// Key is what the answer will name the job by, together with its name.
	Key string
	// Respond, if set, is the job's from now on.
	Respond task.Opt[bool]
}

// Expect reserves a key for an attempt: to be called before a request is sent that a plain handler chooses the key of. It does not end the run.
// [ErrKeyTaken] says that another job awaits that key, [ErrAnswerThere] that the answer to the key before this one has come.
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

// register gives j, which runs, a key for answers, if it has another one.
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

// Await ends a run whose answer comes from outside: the job stays RUNNING and holds its place in its queue, but nothing and nobody is busy with it. When the
// answer comes it ends the job, or has it handed out, as [Service.Complete] says; if none has come at the Deadline, the job is handed out, its Phase still Awaiting. answered says that
// the answer is there already, and has done so.
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

// await has j await its answer, or gives it the one that has come early, whose receipt is then not nil.
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

// goOnWith has j, whose request is done and whose answer has come meanwhile, be handed out.
func (s *Service) goOnWith(ctx context.Context, t *txn.Step, j *Row) error {
	if j.Phase == Answered {
		j.Due = t.Now
		return t.Save(ctx, j)
	}
	return s.goOn(ctx, t, j)
}

// deadline is until when an answer is awaited.
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
