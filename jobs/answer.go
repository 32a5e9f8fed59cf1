package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/internal/taskio"
	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/internal/txn"
	"github.com/swarmiji/swarmiji/task"
)

// Answer is an answer from outside, for the job or the task with this name and key.
type Answer struct {
	Name, Key string
	// Result is any JSON value of at most [MaxData] bytes. nil: the value null.
	Result []byte
	// Refusal, if not "", makes the answer a refusal with this reason. Result is then ignored. It is
	// cut to [MaxReason] bytes.
	Refusal string
}

// Receipt reports how the service handled an answer.
type Receipt struct {
	Kind ReceiptKind
	// Job is the job that the answer is for. 0: no such job is known.
	Job ID
	// Task is the task that the answer is for, if it waits without a broker. "": no such task is
	// known.
	Task task.ID
}

// ReceiptKind is the kind of a [Receipt].
type ReceiptKind string

// The kinds of receipts.
const (
	Accepted  ReceiptKind = "accepted"  // a job or a task accepted it
	Early     ReceiptKind = "early"     // no job awaits it yet; stored for Config.EarlyFor
	Late      ReceiptKind = "late"      // the job was over, without an answer
	Duplicate ReceiptKind = "duplicate" // an earlier answer was accepted
	Unknown   ReceiptKind = "unknown"   // no job claimed the early answer; only for Config.OnAnswer
)

// Complete gives an answer from outside to the job or the task with this name and key. result is
// encoded as JSON. The first answer counts; later ones change no job. An Accepted answer is stored
// durably when Complete returns.
//
//   - An open job accepts the answer while it sends its request, while it awaits the answer, or
//     before its next attempt.
//   - The answer ends the run of the job, as [Service.Finish] does. If Respond is set, a worker
//     claims the job with the answer instead.
//   - If the job does not await the answer yet, the answer is stored for Config.EarlyFor;
//     [Service.Await] claims it.
//   - If no job has the key, a task that waits for the answer (a deferral, package deferrals)
//     accepts it.
//   - A key may be used again while its last job is retained. Then call [Service.Expect] before
//     sending the request. Otherwise an early answer counts as late.
//
// It blocks until the commit, which other changes may share. The answer is counted; Config.OnAnswer
// gets it unless it is Accepted. A repeated call is harmless: it returns Duplicate if the first
// answer was Accepted. Returns a [FieldError] for an invalid argument, or a result that JSON cannot
// encode. Returns [ErrUnavailable] if ctx ends before the store replies; the answer may then be
// stored.
func (s *Service) Complete(ctx context.Context, name, key string, result any) (Receipt, error) {
	text, err := taskio.Marshal(result)
	if err != nil {
		return Receipt{}, &FieldError{Field: "result", Problem: rules.Malformed, Detail: err.Error()}
	}
	return s.answerOne(ctx, Answer{Name: name, Key: key, Result: text})
}

// Reject is [Service.Complete] with a refusal, which makes the attempt fail with reason. A worker
// claims the job and handles the refusal, even if Respond is not set; it may start another attempt.
// Only the text of reason is stored, cut to [MaxReason] bytes. A nil reason, or one without text,
// becomes "refused". Returns the errors of Complete.
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

// answerOne gives one answer, as AnswerAll does, and returns its receipt. Returns the errors of
// AnswerAll with an empty receipt; the answer may then be stored.
func (s *Service) answerOne(ctx context.Context, a Answer) (Receipt, error) {
	receipts, err := s.AnswerAll(ctx, []Answer{a})
	if err != nil {
		return Receipt{}, err
	}
	return receipts[0], nil
}

// AnswerAll gives many answers, as [Service.Complete] and [Service.Reject] do. It returns their
// receipts in the order of answers, and nil without answers. Of two answers with one key the first
// counts. It blocks until the commits, which other changes may share.
//
// All answers are checked first: after a [FieldError] no answer was given.
//
// If another transaction holds the key or the job of one of several answers, the call waits for a
// few seconds only. It then returns [ErrHeld] with the receipts. A receipt without a Kind belongs
// to an answer that must be given again. After any other error, such as [ErrUnavailable] if ctx
// ends, no receipts are returned, but some answers may have been given. Repeating the call is
// harmless.
func (s *Service) AnswerAll(ctx context.Context, answers []Answer) ([]Receipt, error) {
	if len(answers) == 0 {
		return nil, nil
	}
	receipts := make([]Receipt, len(answers))
	changes := make([]*txn.Change, len(answers))
	for i := range answers {
		a, err := checkAnswer(answers[i])
		if err != nil {
			return nil, err
		}
		changes[i] = s.answerChange(a, &receipts[i])
	}
	err := s.txn.Batch(ctx, changes...)
	if err != nil && !errors.Is(err, ErrHeld) {
		return nil, err
	}
	return receipts, err
}

// checkAnswer checks a and returns it as it is stored. The copy shares no memory with a.
//
//   - A refusal is cut to MaxReason bytes; its Result becomes nil.
//   - A nil Result becomes null. White space around a Result is removed.
//
// Returns a FieldError if name or key is missing or malformed. Returns it also for a Result that
// is longer than MaxData, not JSON or not UTF-8; a refusal's Result is not checked.
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

// answerChange returns the change that gives the answer a, for txn.Engine.Batch; it does nothing
// itself. Do of the change calls applyAnswer. After the commit its Then stores the receipt in
// *receipt and calls reportAnswer.
func (s *Service) answerChange(a Answer, receipt *Receipt) *txn.Change {
	var got Receipt
	var ended runEnd
	return &txn.Change{
		Name: a.Name, Key: a.Key, Answers: true,
		Do: func(ctx context.Context, t *txn.Step, j *Row) (err error) {
			got, ended, err = s.applyAnswer(ctx, t, j, &a)
			return err
		},
		Then: func() {
			*receipt = got
			s.reportAnswer(a, got, ended)
		},
	}
}

// runEnd is the effect of an answer on the run of a job: none, or the end of the run.
type runEnd int

const (
	noEnd runEnd = iota
	runFinished
	runFailed // its repeat has no next run
)

// reportAnswer counts an answer by the kind of its receipt, and the run that it has ended. If it
// was not Accepted, it calls Config.OnAnswer. It recovers and logs a panic of OnAnswer.
func (s *Service) reportAnswer(a Answer, r Receipt, ended runEnd) {
	switch ended {
	case runFinished:
		s.count.finished.Add(1)
	case runFailed:
		s.count.failed.Add(1)
	case noEnd:
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

// applyAnswer gives the answer a to the open job j, saves the changes in t, and returns the
// receipt:
//
//   - j is nil, since no open job has the key: answerNoJob handles the answer.
//   - No attempt has begun since j was created, requeued or finished: the answer is stored as an
//     early answer (storeEarly), with the receipt Early, or Duplicate if one is stored already. If
//     the last run succeeded and j repeats or has children, the answer is dropped as a Duplicate.
//   - j already has an answer: Duplicate, and nothing changes.
//   - Otherwise j accepts it (accept), with the receipt Accepted.
//
// runEnd is the effect on the run of j. Returns errors of the store and of accept; ignore the
// receipt and the effect then.
func (s *Service) applyAnswer(ctx context.Context, t *txn.Step, j *Row, a *Answer) (Receipt, runEnd, error) {
	switch {
	case j == nil:
		r, err := s.answerNoJob(ctx, t, a)
		return r, noEnd, err
	case j.Attempt == 0 && !j.State.Runs():
		if j.Run > 0 && (rules.Repeats(j) || j.HasChildren) { // its last run succeeded
			return Receipt{Kind: Duplicate, Job: j.ID}, noEnd, nil
		}
		r, err := s.storeEarly(ctx, t, a)
		if r.Job = j.ID; err != nil {
			r = Receipt{}
		}
		return r, noEnd, err
	case rules.IsAnswered(j):
		return Receipt{Kind: Duplicate, Job: j.ID}, noEnd, nil
	}
	ended, err := s.accept(ctx, t, j, a)
	return Receipt{Kind: Accepted, Job: j.ID}, ended, err
}

// accept stores the answer a in j and saves j. Without Respond an answer that is not a refusal
// finishes the run of j, as Finish does. runEnd is then runFinished or runFailed; otherwise it is
// noEnd. After an error ignore it.
//
// In all other cases a worker must handle the answer: j becomes RUNNING and due now, with Phase
// Answered. If a worker is still sending the request, only the answer is stored and the worker
// keeps its lease. A refusal is stored in Reason.
//
// Returns errors of the store and of finish, such as ErrNeedsOwnTx.
func (s *Service) accept(ctx context.Context, t *txn.Step, j *Row, a *Answer) (runEnd, error) {
	if !j.Respond && a.Refusal == "" {
		j.Answer, j.Phase = a.Result, Answered
		rules.SetData(j, nil)
		failed, err := s.finish(ctx, t, j, false)
		if failed {
			return runFailed, err
		}
		return runFinished, err
	}
	j.Answer, j.Reason = a.Result, a.Refusal
	if j.State == Running && j.Phase == "" {
		return noEnd, t.Save(ctx, j)
	}
	return noEnd, s.deliverAnswer(ctx, t, j)
}

// answerNoJob handles an answer to a name and key that no open job has. The first matching rule
// applies:
//
//   - An open deferral, which is a task that waits for this answer, gets it (answerTask).
//   - The last job or task with the key is over and has its answer: Duplicate.
//   - The last job or task with the key is over: Late.
//   - Otherwise the answer is stored as an early answer (storeEarly): Early, or Duplicate.
//
// Returns errors of the store, and ErrLocks for another try (DeferralOf); ignore the receipt then.
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
	return s.storeEarly(ctx, t, a)
}
