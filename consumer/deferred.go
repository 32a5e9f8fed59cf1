package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer/internal/answers"
	"github.com/swarmiji/swarmiji/consumer/internal/steps"
	"github.com/swarmiji/swarmiji/deferral"
	"github.com/swarmiji/swarmiji/task"
)

// A task whose answer comes from outside is stored as a deferral with its message. This begins when
// its handler calls task.Expect or returns task.Defer. After the handler has returned, the steps
// are:
//
//   1. store the deferral as awaiting its answer
//   2. store the state of the task
//   3. acknowledge the message
//   4. send the event
//
// A message that is delivered again after step 1 is only acknowledged.

// attempt returns the description of this run that its deferral stores, see [answers.AttemptOf].
// With the name of a checkpoint the task runs again after its answer. Returns an error if it cannot
// be encoded.
func (r *run) attempt(checkpoint string) (deferral.Attempt, error) {
	ended := time.Time{}
	if r.returned.Load() {
		ended = r.ended
	}
	return answers.AttemptOf(&r.request, r.message, ended, r.acked.Load(), checkpoint)
}

// Expect stores in the deferral store that this attempt expects an answer for key, so that an early
// answer is kept. It first sets r.expects, also if the store then fails. It calls the store once
// and waits for it. It is the [task.Expecter] that task.Expect calls.
//
// Returns [task.ErrNoAnswers] if the handler has returned, an error if the attempt cannot be
// encoded, and errors of the store. [deferral.ErrStale] means that the attempt is over, or another
// delivery of its message has deferred it. Expect then sets r.stale: the result of the handler is
// ignored.
func (r *run) Expect(ctx context.Context, key string) error {
	if r.returned.Load() {
		return fmt.Errorf("%w: the handler has returned", task.ErrNoAnswers)
	}
	a, err := r.attempt(r.checkpoints.Reserving())
	if err != nil {
		return err
	}
	r.expects.Store(true)
	err = r.queue.c.cfg.Deferrals.Reserve(ctx, a, key)
	if errors.Is(err, deferral.ErrStale) {
		r.stale.Store(true)
	}
	if err != nil {
		return fmt.Errorf("swarmiji: expect an answer: %w", err)
	}
	return nil
}

// discardIfDeferred reports whether the task of a redelivered message is deferred already or
// settled by its deferral. If so, it acknowledges the message on another goroutine. It returns
// false without Config.Deferrals. It waits for the store for at most loadTimeout.
//
// If the store fails, it logs that and returns false. The task then runs again, and Expect or Defer
// finds the earlier attempt.
func (r *run) discardIfDeferred() bool {
	store := r.queue.c.cfg.Deferrals
	if store == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(r.queue.c.settle, loadTimeout)
	defer cancel()
	is, err := store.Overtaken(ctx, deferral.Attempt{Queue: r.queue.name, Name: r.request.Name, Task: r.request.ID, Generation: r.request.Generation})
	if err != nil {
		r.log(slog.LevelWarn, "checking whether a redelivered task is deferred failed; it runs again", slog.Any("error", err))
		return false
	}
	if is {
		r.queue.settling.Go(r.discard)
	}
	return is
}

// discard acknowledges a message whose task another delivery has deferred or settled. For a run
// that settles a deferral it deletes the deferral instead. It blocks and repeats that until it
// succeeds, the message or deferral is lost, or the consumer stops. It does nothing if the message
// was acknowledged before.
func (r *run) discard() {
	if r.acked.Load() {
		return
	}
	r.runStepUntilStop("acknowledgement", r.delivery.Ack)
}

// dropExpected deletes the expected answers of a task that was settled without them. It blocks and
// repeats that for up to loadTimeout. After that it logs the error; the key then stays reserved
// until the task expects it again, or for a day.
func (r *run) dropExpected() {
	ctx, cancel := context.WithTimeout(r.queue.c.settle, loadTimeout)
	defer cancel()
	a, err := r.attempt(r.checkpoints.Reserving())
	if err == nil {
		drop := func(ctx context.Context) error { return r.queue.c.cfg.Deferrals.Drop(ctx, a) }
		err = steps.Repeat(ctx, r.lost(), drop, func(error) {})
	}
	if err != nil && !broker.Gone(err) {
		r.log(slog.LevelWarn, "deleting the expected answer of a task failed; its key stays reserved", slog.Any("error", err))
	}
}

// mayHaveOpenDeferral reports whether v ends a task for which an earlier attempt may have left a
// deferral open. Only a message with an earlier delivery or a generation (number of the copy) above
// 0 can have an open deferral. The count of retries does not show it, since a snoozed or returned
// message counts no retry. It returns false without Config.Deferrals, and for a run that settles a
// deferral.
func (r *run) mayHaveOpenDeferral(v verdict) bool {
	return r.queue.c.answers != nil && r.answer == nil && (r.request.Generation > 0 || r.request.Deliveries > 1) &&
		v.kind != retry && v.kind != snooze && v.kind != deferred && v.kind != giveBack
}

// closeExpected ends the deferral that this or an earlier attempt of a task has left, before the
// attempt is settled by v. It returns true if the caller must not settle the attempt by v. If v
// defers the task or gives it back, if no deferral can exist, or if the attempt cannot be encoded,
// it only returns false.
//
//   - After a success, a revocation, a recorded end, or a failure of a task that was to continue
//     after the answer, it deletes the expected answer; it returns false.
//   - Otherwise an accepted answer wins: it settles the attempt as deferred and returns true. The
//     answer settles the task.
//   - If another delivery has ended the attempt, in which the handler called task.Expect, it
//     acknowledges the message and returns true.
//   - If there is no answer, it deletes the deferral and returns false.
//
// If the handler has called task.Expect, it repeats the call of the store until ctx ends. Then
// runStep gives the task back, and it returns true. Otherwise it repeats that only for loadTimeout,
// and then returns false.
func (q *queue) closeExpected(ctx context.Context, r *run, v verdict) (settled bool) {
	expected := r.expects.Load()
	switch {
	case v.kind == deferred, !expected && !r.mayHaveOpenDeferral(v):
		return false
	case v.kind == giveBack: // the next delivery of the message finds the answer
		return false
	case v.kind == succeeded, v.kind == revoked, v.recorded, v.kind == failed && r.checkpoints.Reserving() != "":
		r.dropExpected()
		return false
	}
	a, err := r.attempt(r.checkpoints.Reserving())
	if err != nil {
		return false
	}
	answered, stale := false, false
	conclude := func(ctx context.Context) (err error) {
		if answered, err = q.c.cfg.Deferrals.DropUnanswered(ctx, a); errors.Is(err, deferral.ErrStale) {
			stale, err = true, nil
		}
		return err
	}
	if expected {
		if !r.runStep(ctx, "check for its answer", conclude) {
			return true
		}
	} else if !r.tryClose(conclude) {
		return false
	}
	switch {
	case stale && expected:
		r.discard()
		return true
	case !answered:
		return false
	}
	r.log(slog.LevelInfo, "the attempt failed after its answer was accepted; the answer settles the task", slog.Any("error", v.err))
	q.finishDeferred(ctx, r, verdict{kind: deferred}, true)
	return true
}

// tryClose calls conclude, which closes the deferral of an earlier attempt, and repeats it after
// errors for at most loadTimeout. It returns true if conclude succeeded. It logs the last error,
// unless the broker has taken the task back. Such a deferral seldom exists, so the task does not
// wait longer for a failing store.
func (r *run) tryClose(conclude func(context.Context) error) bool {
	ctx, cancel := context.WithTimeout(r.queue.c.settle, loadTimeout)
	defer cancel()
	err := steps.Repeat(ctx, r.lost(), conclude, func(error) {})
	if err != nil && !broker.Gone(err) {
		r.log(slog.LevelWarn, "checking for an accepted answer failed", slog.Any("error", err))
	}
	return err == nil
}

// settleDeferred stores that the task waits for its answer and then settles the run as
// finishDeferred does. It blocks, and repeats a failed call of the store until ctx ends; then
// runStep gives the task back.
//
//   - The store refuses the deferral, or it cannot be encoded: settle settles the task as if its
//     handler had returned that error.
//   - Another delivery of the message has deferred or settled the task: it only acknowledges the
//     message.
func (q *queue) settleDeferred(ctx context.Context, r *run, v verdict) {
	a, refused := r.attempt(v.await.Checkpoint)
	var status deferral.Status
	if !r.runStep(ctx, "deferral", func(ctx context.Context) (err error) {
		if refused != nil {
			return nil //nolint:nilerr // dealt with below: repeating does not mend it
		}
		status, err = q.c.cfg.Deferrals.Defer(ctx, a, v.await.Key, v.await.Timeout.Or(task.DefaultAnswerWithin))
		switch {
		case errors.Is(err, deferral.ErrStale):
			r.discard()
			return steps.ErrDone
		case errors.Is(err, deferral.ErrRefused):
			refused, err = err, nil
		}
		return err
	}) {
		return
	}
	if refused != nil {
		err := fmt.Errorf("swarmiji: defer: %w", refused)
		q.settle(r, r.applyRevocation(r.judge(nil, err), err))
		return
	}
	if status.Before { // deferred by another delivery, whose fencing token the record has
		r.discard()
		return
	}
	q.finishDeferred(ctx, r, v, status.Answered)
}

// finishDeferred settles the run of a task whose deferral is stored. It stores the state AWAITING
// in the result store, acknowledges the message, counts the deferral and sends the event. If
// answered is true, the answer has come already, and the state is not stored.
//
// It first sets r.final, so that a message given back comes again unchanged, not as a new copy that
// runs. Then wakeIfRevoked wakes the deferral of a revoked task. It blocks while steps are repeated
// within ctx. It stops at the first step that fails: runStep has then given the message back, or
// settled the task.
func (q *queue) finishDeferred(ctx context.Context, r *run, v verdict, answered bool) {
	r.final.Store(true)
	r.wakeIfRevoked()
	if !answered {
		if _, ok := r.save(ctx, task.StateAwaiting, v); !ok {
			return
		}
	}
	if !r.remove(ctx, v) {
		return
	}
	q.c.cfg.Metrics.Deferred.Inc(1)
	r.notifyAwaiting()
}

// restore returns the run of a received deferral, made from the message and the times that the
// deferral stores. It also sets them in a. The answer of the deferral settles the run; no handler
// runs. Returns an error if the stored state or message cannot be read.
func (q *queue) restore(a *answers.Claim) (*run, error) {
	kept, err := a.Read()
	if err != nil {
		return nil, err
	}
	r, err := q.read(a, 0)
	if err != nil {
		return nil, err
	}
	kept.Restore(&r.request)
	r.answer, r.ended = a, time.Now()
	return r, nil
}
