package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/internal/errand"
	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/internal/txn"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// Answer is an answer from outside, for the job of a name and a key.
type Answer struct {
	Name, Key string
	// Result is any JSON value, of at most [MaxData] bytes. nil: null.
	Result []byte
	// Refusal, if not "", says that the answer is a refusal, and why; Result is then nothing. Longer than [MaxReason] it is cut.
	Refusal string
}

// Receipt tells what became of an answer.
type Receipt struct {
	Kind ReceiptKind
	// Job is the job that it was for. 0: none is known.
	Job ID
	// Task is the task that it was for, if that waits for its answer while no broker has it. "": none is known.
	Task task.ID
}

// ReceiptKind is what became of an answer.
type ReceiptKind string

// The kinds of receipts.
const (
	Accepted  ReceiptKind = "accepted"  // a job has it
	Early     ReceiptKind = "early"     // no job awaits it yet: it is kept for Config.EarlyFor
	Late      ReceiptKind = "late"      // the job was over, without an answer
	Duplicate ReceiptKind = "duplicate" // it was answered before
	Unknown   ReceiptKind = "unknown"   // it was early, and nobody has claimed it; only Config.OnAnswer is told
)

// Complete answers the job of a name and a key from outside: result is written as JSON. The first answer counts, and one that is Accepted is on disk when
// Complete returns; any other changes no job.
//
// A job gets the answer if it is not over and has begun: whether its request is under way, it awaits the answer, or it is to try again. The answer ends the job, as
// [Service.Finish] would, unless its Respond is set: then the job is handed out with the answer. An answer that comes before its job awaits it is kept for a while, and
// found by [Service.Await]. A key that is used again while the last job of that key is still kept should be told by [Service.Expect] before the request is sent: an answer
// that comes before counts as late.
//
// Many answers at the same time share transactions. When ctx ends before the answer of the store, the error wraps [ErrUnavailable]; to repeat the call is
// harmless, and then tells Duplicate if the first was Accepted.
func (s *Service) Complete(ctx context.Context, name, key string, result any) (Receipt, error) {
	text, err := errand.Marshal(result)
	if err != nil {
		return Receipt{}, &FieldError{Field: "result", Problem: rules.Malformed, Detail: err.Error()}
	}
	return s.answerOne(ctx, Answer{Name: name, Key: key, Result: text})
}

// Reject is Complete with a refusal: what runs the job is to look at it, whatever its Respond is, and may try again. The reason is kept as text.
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

// AnswerAll is Complete and Reject for many answers, which are all looked at before any is given: a [FieldError] says that nothing was done. Receipts are in the order of the
// answers. Any other error leaves open which answers were given: to repeat the call is harmless.
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

// checkAnswer looks at an answer, and completes it.
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
	a.Result = bytes.Clone(a.Result) // it outlives the call
	return a, nil
}

// answering is the change that gives an answer.
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

// ending is what an answer has done to a run.
type ending int

const (
	goesOn ending = iota
	isFinished
	isFailed // its repeat has no next run
)

// answered counts an answer, and tells of it.
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

// answer gives an answer to j, nil if no job that is not over has its key.
func (s *Service) answer(ctx context.Context, t *txn.Step, j *Row, a *Answer) (Receipt, ending, error) {
	switch {
	case j == nil:
		r, err := s.answerNoJob(ctx, t, a)
		return r, goesOn, err
	case j.Attempt == 0 && !j.State.Runs():
		if j.Run > 0 && (rules.Repeats(j) || j.HasChildren) { // its last run has ended well
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

// accept gives j its answer, which ends it or has it handed out. A request that is under way goes on first, and keeps its lease.
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

// answerNoJob gives an answer that no job awaits to the task that waits for it, or keeps it, or tells that there was somebody.
func (s *Service) answerNoJob(ctx context.Context, t *txn.Step, a *Answer) (Receipt, error) {
	d, err := t.DeferralOf(ctx, a.Name, a.Key)
	if err != nil {
		return Receipt{}, err
	}
	if d != nil && d.Open() {
		return s.answerTask(ctx, t, d, a)
	}
	last, err := s.newestOver(ctx, t, a)
	if err != nil {
		return Receipt{}, err
	}
	switch {
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

// newestOver returns the newest job of a's key that is over, or nil.
func (s *Service) newestOver(ctx context.Context, t *txn.Step, a *Answer) (last *Row, err error) {
	p := jobstore.Page{States: []State{Finished, Failed, Cancelled}, Limit: page}
	for {
		found, err := t.Tx.OfKey(ctx, a.Name, a.Key, p)
		if err != nil {
			return nil, err
		}
		if len(found) > 0 {
			last = &found[len(found)-1]
		}
		if len(found) < page {
			break
		}
		p.After = last.ID
	}
	return t.LastOver(a.Name, a.Key, last), nil
}
