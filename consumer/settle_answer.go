package consumer

import (
	"context"
	"errors"
	"log/slog"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer/internal/checkpoints"
	"github.com/swarmiji/swarmiji/consumer/internal/lives"
	"github.com/swarmiji/swarmiji/consumer/internal/workflow"
	"github.com/swarmiji/swarmiji/deferral"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// settleAnswer settles the task of a received deferral, and blocks until that is done or given up.
//
//   - If answerVerdict knows how the attempt ended, it settles the task by the returned verdict.
//   - If the deferral was only woken, to check for a revocation, it returns the deferral to the
//     store until its deadline.
//   - If the attempt was abandoned, it deletes the deferral: the broker still has the message of
//     the task.
func (q *queue) settleAnswer(r *run) {
	switch end, known := r.answerVerdict(); {
	case known:
		q.settle(r, end)
	case r.answer.Outcome.Kind == deferral.Woken:
		r.releaseUntilDeadline()
	default: // Abandoned: the task did not wait for this answer, and the broker still has its message
		r.discard()
	}
}

// answerVerdict returns how the task of a received deferral is settled. It reads the list of
// revocations, and for a redelivered deferral the result store. It changes neither, but may block
// until they answer. v is the first of these that applies:
//
//   - The verdict that an earlier delivery of the deferral has stored.
//   - Revoked, if the task is revoked.
//   - For a task that continues after its answer: see resumed.
//   - The success, retry or failure that the outcome of the deferral (r.answer) means: an answer is
//     a success, a refusal or timeout an error. An abandoned at-most-once task fails with
//     [task.ErrUncertain].
//
// If one of the reads fails, it logs that, and v is giveBack. If the task has begun a later life
// (its dead letter was requeued), answerVerdict sets r.stale: settle then drops the deferral,
// whatever v is.
//
// known is false if the task does not end now: the deferral was only woken, or it was abandoned and
// the broker still has the message of the task. v is then empty.
func (r *run) answerVerdict() (v verdict, known bool) {
	if r.answer.Outcome.Again {
		if v, known = r.recordedVerdict(); known {
			return v, true
		}
	}
	switch is, err := r.isRevoked(); {
	case err != nil:
		r.log(slog.LevelWarn, "a deferral is released: its task's revocation cannot be read", slog.Any("error", err))
		return verdict{kind: giveBack}, true
	case is:
		return verdict{kind: revoked, err: task.ErrRevoked}, true
	}
	o := &r.answer.Outcome
	if r.answer.Checkpoint != "" && o.Kind != deferral.Woken && o.Kind != deferral.Abandoned {
		return r.resumed(), true
	}
	switch o.Kind {
	case deferral.Answered:
		return r.answerResult(o.Answer), true
	case deferral.Refused:
		return r.decided(r.request.Outcome(task.Rejected(o.Refusal))), true
	case deferral.TimedOut:
		return r.decided(r.request.Outcome(task.ErrAnswerTimeout)), true
	case deferral.Abandoned:
		if r.answer.AtMostOnce { // its consumer died, and no other consumer records the end of the task
			return verdict{kind: failed, err: task.ErrUncertain}, true
		}
	}
	return verdict{}, false
}

// recordedVerdict looks in the result store for the verdict that an earlier settlement of this
// deferral stored. It waits up to loadTimeout. known, the second result, is true if the caller must
// use the verdict or r.stale:
//
//   - A final record: its verdict, true.
//   - A record of a later life or attempt: it sets r.stale; the verdict has no meaning, true.
//   - The store fails: giveBack, true. It logs that.
//   - No record, one that is malformed or not final, or no store that keeps records: false.
func (r *run) recordedVerdict() (verdict, bool) {
	store := r.store()
	if store == nil || resultstore.RepliesOnly(store) {
		return verdict{}, false
	}
	ctx, cancel := context.WithTimeout(r.queue.c.settle, loadTimeout)
	defer cancel()
	rec, err := r.load(ctx, store)
	switch {
	// an answer to an earlier life or attempt
	case err == nil && (lives.Superseded(&rec, r.request.Envelope) || rec.Generation > r.request.Generation):
		r.stale.Store(true)
		return verdict{}, true
	case err == nil && rec.State.Terminal():
		return verdictOfRecord(&rec), true
	case err == nil, errors.Is(err, resultstore.ErrNotFound), errors.Is(err, resultstore.ErrMalformed):
		return verdict{}, false
	}
	r.log(slog.LevelWarn, "a deferral is released: the result store failed", slog.Any("error", err))
	return verdict{kind: giveBack}, true
}

// resumed stores the outcome of the deferral as a checkpoint of the task, whose next attempt then
// returns it from task.Await. It returns the verdict of a snooze without a delay. If the next
// attempt has begun, or the task has ended, it sets r.stale. An answer that can never be stored
// fails the task. After another error, which it logs, the verdict is giveBack.
func (r *run) resumed() verdict {
	err := r.checkpoints.SaveAnswer(r.queue.c.settle, r.answer.Checkpoint, &r.answer.Outcome)
	switch {
	case errors.Is(err, resultstore.ErrStale):
		r.stale.Store(true)
	case checkpoints.Unstorable(err):
		return verdict{kind: failed, err: task.Remote(err)}
	case err != nil:
		r.log(slog.LevelWarn, "a deferral is released: its answer was not stored", slog.Any("error", err))
		return verdict{kind: giveBack}
	}
	return verdict{kind: snooze}
}

// isRevoked reports whether the task is revoked. It may wait for the list of revocations, at most
// until the settlements of the consumer end. Returns an error if that cannot be read now, and false
// without Config.Revocations.
func (r *run) isRevoked() (bool, error) {
	list := r.queue.c.cfg.Revocations
	if list == nil {
		return false, nil
	}
	return list.Check(r.queue.c.settle, r.queue.name, r.request.Envelope)
}

// answerResult returns the verdict of a task whose answer is data, a JSON value. The task succeeds
// with data as its result. If the result is not kept and no task follows, the verdict has no
// result.
//
// If the consumer has no JSON serializer, it encodes the value with the serializer of the task. A
// result that cannot be encoded, or is larger than Tuning.MaxResult, fails the task with
// [task.ErrBadResult].
func (r *run) answerResult(data []byte) verdict {
	c := r.queue.c
	if r.store() == nil && len(r.request.Then) == 0 && r.request.Chord == nil {
		return verdict{kind: succeeded} // no reader needs the result
	}
	result, contentType, err := workflow.EncodeJSON(c.codec, r.request.Effective.Serializer.Or(""), data, c.cfg.Tuning.MaxResult)
	if err != nil {
		return verdict{kind: failed, err: task.Remote(err)}
	}
	return verdict{kind: succeeded, result: result, contentType: contentType}
}

// releaseUntilDeadline returns a deferral without an answer to the store, and repeats that for up
// to giveBackTimeout. The store delivers it again at its Deadline by the clock of the store, since
// the clock of this process may be wrong. The last error is logged: the lease of the deferral then
// ends.
func (r *run) releaseUntilDeadline() {
	ctx, cancel := context.WithTimeout(r.queue.c.settle, giveBackTimeout)
	defer cancel()
	if err := r.delivery.Release(ctx, task.MaxTimeLimit); err != nil && !broker.Gone(err) {
		r.log(slog.LevelWarn, "a deferral was not released; its lease will expire", slog.Any("error", err))
	}
}
