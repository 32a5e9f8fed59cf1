package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/internal/errand"
	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/internal/txn"
	"github.com/swarmiji/swarmiji/task"
)

// Answer is an answer from outside, for the job of a name and a key.
type Answer struct {
	Name, Key string
	// Result is any JSON value, of at most [MaxData] bytes. nil: null.
	Result []byte
	// Refusal, if not "", makes the answer a refusal for this reason. Result is then ignored. It is
	// cut at [MaxReason] bytes.
	Refusal string
}

// Receipt is the result of an answer.
type Receipt struct {
	Kind ReceiptKind
	// Job is the receiver. 0: no job is known.
	Job ID
	// Task is the receiver, if it is a task that waits for its answer without a broker. "": no task
	// is known.
	Task task.ID
}

// ReceiptKind says how an answer was treated.
type ReceiptKind string

// The kinds of receipts.
const (
	Accepted  ReceiptKind = "accepted"  // a job or a task has it
	Early     ReceiptKind = "early"     // no job awaits it yet; it is stored for Config.EarlyFor
	Late      ReceiptKind = "late"      // the job was over, without an answer
	Duplicate ReceiptKind = "duplicate" // it was answered before
	Unknown   ReceiptKind = "unknown"   // no job claimed the early answer; only for Config.OnAnswer
)

// Complete answers the job or the task of a name and a key from outside. result is written as JSON.
// The first answer counts; others change no job. An answer that is Accepted is on disk when
// Complete returns.
//
//   - A job that is not over accepts the answer while its request is under way, while it awaits the
//     answer, or when it will try again.
//   - The answer ends the job, as [Service.Finish] does. If Respond is set, the job is claimed with
//     the answer instead.
//   - An answer before its job awaits it is stored for a while; [Service.Await] claims it.
//   - Before a key is used again while the last job of that key is kept, call [Service.Expect], and
//     then send the request. Otherwise an early answer counts as late.
//
// Concurrent answers share transactions. Returns ErrUnavailable if ctx ends before the store
// answers. A repeated call is harmless; it returns Duplicate if the first was Accepted.
func (s *Service) Complete(ctx context.Context, name, key string, result any) (Receipt, error) {
	text, err := errand.Marshal(result)
	if err != nil {
		return Receipt{}, &FieldError{Field: "result", Problem: rules.Malformed, Detail: err.Error()}
	}
	return s.answerOne(ctx, Answer{Name: name, Key: key, Result: text})
}

// Reject is Complete with a refusal. The worker of the job looks at it, even without Respond, and
// may try again. The reason is stored as text.
func (s *Service) Reject(ctx context.Context, name, key string, reason error) (Receipt, error) {
	text := ""
	if reason != nil {
		text = reason.Error()
	}
	if text == "" {
		text = "refused"
	}
	return s.answerOne(ctx, Answer{Name: name, Key: key, Refusal: text})
}

func (s *Service) answerOne(ctx context.Context, a Answer) (Receipt, error) {
	receipts, err := s.AnswerAll(ctx, []Answer{a})
	if err != nil {
		return Receipt{}, err
	}
	return receipts[0], nil
}

// AnswerAll is Complete and Reject for many answers. Receipts are in the order of the answers. All
// answers are checked before the first is given: after a [FieldError] none was given. After another
// error some may have been given; a repeated call is harmless.
func (s *Service) AnswerAll(ctx context.Context, answers []Answer) ([]Receipt, error) {
	if len(answers) == 0 {
		return nil, nil
	}
	receipts := make([]Receipt, len(answers))
	deeds := make([]*txn.Change, len(answers))
	for i := range answers {
		a, err := checkAnswer(answers[i])
		if err != nil {
			return nil, err
		}
		deeds[i] = s.answering(a, &receipts[i])
	}
	if err := s.txn.Batch(ctx, deeds...); err != nil {
		return nil, err
	}
	return receipts, nil
}

// checkAnswer checks an answer and sets its defaults.
func checkAnswer(a Answer) (Answer, error) {
	if err := rules.CheckField("name", a.Name, false); err != nil {
		return a, err
	}
	if a.Key == "" {
		return a, &FieldError{Field: "key", Problem: rules.Missing}
	}
	if err := checkKeyField("key", a.Key); err != nil {
		return a, err
	}
	if a.Refusal != "" {
		a.Refusal, a.Result = rules.CutReason(a.Refusal), nil
		return a, nil
	}
	if a.Result == nil {
		a.Result = []byte("null")
		return a, nil
	}
	a.Result = bytes.Trim(a.Result, " \t\r\n")
	switch {
	case len(a.Result) > MaxData:
		return a, rules.LongerThan("result", len(a.Result), MaxData)
	case !json.Valid(a.Result) || !utf8.Valid(a.Result):
		return a, &FieldError{Field: "result", Problem: rules.Malformed}
	}
	a.Result = bytes.Clone(a.Result) // the change may outlive the call
	return a, nil
}

// answering returns the change that gives an answer.
func (s *Service) answering(a Answer, receipt *Receipt) *txn.Change {
	var got Receipt
	var ended ending
	return &txn.Change{
		Name: a.Name, Key: a.Key, Answers: true,
		Do: func(ctx context.Context, t *txn.Step, j *Row) (err error) {
			got, ended, err = s.answer(ctx, t, j, &a)
			return err
		},
		Then: func() {
			*receipt = got
			s.answered(a, got, ended)
		},
	}
}

// ending is the effect of an answer on a run.
type ending int

const (
	goesOn ending = iota
	isFinished
	isFailed // its repeat has no next run
)

// answered counts an answer and calls OnAnswer.
func (s *Service) answered(a Answer, r Receipt, ended ending) {
	switch ended {
	case isFinished:
		s.count.finished.Add(1)
	case isFailed:
		s.count.failed.Add(1)
	case goesOn:
	}
	switch r.Kind {
	case Accepted:
		s.count.accepted.Add(1)
		return
	case Early:
		s.count.early.Add(1)
	case Late:
		s.count.late.Add(1)
	case Duplicate:
		s.count.duplicate.Add(1)
	case Unknown:
		s.count.unknown.Add(1)
	}
	if s.c.OnAnswer == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("Config.OnAnswer has panicked", "name", a.Name, "panic", p)
		}
	}()
	s.c.OnAnswer(a, r)
}

// answer gives an answer to j. j is nil if no job that is not over has the key.
func (s *Service) answer(ctx context.Context, t *txn.Step, j *Row, a *Answer) (Receipt, ending, error) {
	switch {
	case j == nil:
		r, err := s.answerNoJob(ctx, t, a)
		return r, goesOn, err
	case j.Attempt == 0 && !j.State.Runs():
		if j.Run > 0 && (rules.Repeats(j) || j.HasChildren) { // its last run succeeded
			return Receipt{Kind: Duplicate, Job: j.ID}, goesOn, nil
		}
		r, err := s.keepEarly(ctx, t, a)
		if r.Job = j.ID; err != nil {
			r = Receipt{}
		}
		return r, goesOn, err
	case rules.IsAnswered(j):
		return Receipt{Kind: Duplicate, Job: j.ID}, goesOn, nil
	}
	ended, err := s.accept(ctx, t, j, a)
	return Receipt{Kind: Accepted, Job: j.ID}, ended, err
}

// accept gives j its answer, which ends j or makes it due. A request that is under way goes on
// first, and keeps its lease.
func (s *Service) accept(ctx context.Context, t *txn.Step, j *Row, a *Answer) (ending, error) {
	if !j.Respond && a.Refusal == "" {
		j.Answer, j.Phase = a.Result, Answered
		rules.SetData(j, nil)
		failed, err := s.finish(ctx, t, j, false)
		if failed {
			return isFailed, err
		}
		return isFinished, err
	}
	j.Answer, j.Reason = a.Result, a.Refusal
	if j.State == Running && j.Phase == "" {
		return goesOn, t.Save(ctx, j)
	}
	return goesOn, s.goOn(ctx, t, j)
}

// answerNoJob gives an answer without a job to the task that waits for it. Otherwise it stores the
// answer, or reports that it is late or a duplicate.
func (s *Service) answerNoJob(ctx context.Context, t *txn.Step, a *Answer) (Receipt, error) {
	d, err := t.DeferralOf(ctx, a.Name, a.Key)
	if err != nil {
		return Receipt{}, err
	}
	if d != nil && d.Open() {
		return s.answerTask(ctx, t, d, a)
	}
	last, err := t.Tx.LastOver(ctx, a.Name, a.Key)
	if err != nil {
		return Receipt{}, err
	}
	switch last = t.LastOver(a.Name, a.Key, last); {
	case last != nil && last.Phase == Answered:
		return Receipt{Kind: Duplicate, Job: last.ID}, nil
	case d != nil && d.Answered():
		return Receipt{Kind: Duplicate, Task: d.Task}, nil
	case last != nil:
		return Receipt{Kind: Late, Job: last.ID}, nil
	case d != nil:
		return Receipt{Kind: Late, Task: d.Task}, nil
	}
	return s.keepEarly(ctx, t, a)
}
