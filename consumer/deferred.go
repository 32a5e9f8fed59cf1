package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/deferral"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// A task whose answer comes from outside is kept as a deferral, with its message, from the moment at which its handler expects
// the answer. When the handler has returned the order is that of every settlement: (1) the deferral awaits, on disk; (2) the state is recorded; (3) the message is
// acknowledged; (4) the event is sent. A message that comes again after (1) is only acknowledged.

// deferredTask is what a deferral keeps of a run. Its JSON is read by consumers of other versions.
type deferredTask struct {
	Task       task.ID           `json:"task"`
	Deliveries int               `json:"deliveries"`           // with the message's generation the fencing token of the run
	Received   int64             `json:"receivedMillis"`       // as the times below, since 1970
	Started    int64             `json:"startedMillis"`        // of the handler
	Ended      int64             `json:"endedMillis,omitzero"` // likewise; 0: it had not
	AtMostOnce bool              `json:"atMostOnce,omitzero"`  // nobody would run it again
	Onward     map[string]string `json:"onward,omitempty"`
	Message    wire.Kept         `json:"message"`
}

// attempt is what a deferral keeps of the run.
func (r *run) attempt() (deferral.Attempt, error) {
	req := &r.request
	kept := deferredTask{
		Task: req.ID, Deliveries: req.Deliveries, Received: req.Received.UnixMilli(), Started: req.StartedAt.UnixMilli(), AtMostOnce: r.acked.Load(),
		Onward: req.Onward, Message: wire.Kept{Message: r.message},
	}
	if r.over.Load() {
		kept.Ended = r.ended.UnixMilli()
	}
	a := deferral.Attempt{Queue: r.queue.name, Name: req.Name, Task: req.ID, Generation: req.Generation, AtMostOnce: kept.AtMostOnce}
	var err error
	a.State, err = json.Marshal(kept)
	return a, err
}

// Expect implements [task.Expecter]. An attempt that is over, or deferred by another delivery of its message, hears of that here; what its handler then returns
// counts for nothing.
func (r *run) Expect(ctx context.Context, key string) error {
	if r.over.Load() {
		return fmt.Errorf("%w: the handler has returned", task.ErrNoAnswers)
	}
	a, err := r.attempt()
	if err != nil {
		return err
	}
	r.expects.Store(true)
	err = r.queue.c.answers.store.Reserve(ctx, a, key)
	if errors.Is(err, deferral.ErrStale) {
		r.stale.Store(true)
	}
	if err != nil {
		return fmt.Errorf("swarmiji: expect an answer: %w", err)
	}
	return nil
}

// deferredBefore acknowledges a message that has come again although its task is deferred, and reports whether it was one. When the store
// gives no answer it is run again: that is found out once more when it expects an answer, or defers.
func (r *run) deferredBefore() bool {
	a := r.queue.c.answers
	if a == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(r.queue.c.settle, loadTimeout)
	defer cancel()
	is, err := a.store.Overtaken(ctx, deferral.Attempt{Queue: r.queue.name, Name: r.request.Name, Task: r.request.ID, Generation: r.request.Generation})
	if err != nil {
		r.log(slog.LevelWarn, "whether a task that has come again is deferred could not be told", slog.Any("error", err))
		return false
	}
	if is {
		r.queue.c.settling.Go(r.discard)
	}
	return is
}

// discard acknowledges a message of which another delivery has come further.
func (r *run) discard() {
	if r.acked.Load() {
		return
	}
	r.insist("acknowledgement", r.delivery.Ack)
}

// expectNothing takes back what a handler expected that has not deferred its task. If the store is away it stays, and keeps the key from others until
// the task expects it again, or for a day.
func (r *run) expectNothing() {
	ctx, cancel := context.WithTimeout(r.queue.c.settle, loadTimeout)
	defer cancel()
	a, err := r.attempt()
	if err == nil {
		drop := func(ctx context.Context) error { return r.queue.c.answers.store.Drop(ctx, a) }
		err = repeat(ctx, r.lost(), drop, func(error) {})
	}
	if err != nil && !broker.Gone(err) {
		r.log(slog.LevelWarn, "an answer that nobody will wait for is still expected", slog.Any("error", err))
	}
}

// leftOpen reports whether an attempt before this one, which ends the task, may have left its
// deferral open for it. A message that was snoozed or put back is of a later generation, and counts
// no retry.
func (r *run) leftOpen(v verdict) bool {
	return r.queue.c.answers != nil && r.answer == nil && (r.request.Generation > 0 || r.request.Deliveries > 1) &&
		v.kind != retry && v.kind != snooze && v.kind != deferred && v.kind != giveBack
}

// concludeExpected ends what the handler expected. An accepted answer counts, unless the task has
// succeeded without it or was revoked. It reports whether the attempt is settled with that.
func (q *queue) concludeExpected(ctx context.Context, r *run, v verdict) (settled bool) {
	expected := r.expects.Load()
	switch {
	case v.kind == deferred, !expected && !r.leftOpen(v):
		return false
	case v.kind == giveBack: // the next delivery of the message finds the answer
		return false
	case v.kind == succeeded, v.kind == revoked, v.recorded:
		r.expectNothing()
		return false
	}
	a, err := r.attempt()
	if err != nil {
		return false
	}
	answered, stale := false, false
	conclude := func(ctx context.Context) (err error) {
		if answered, err = q.c.answers.store.DropUnanswered(ctx, a); errors.Is(err, deferral.ErrStale) {
			stale, err = true, nil
		}
		return err
	}
	if expected {
		if !r.persist(ctx, "look for its answer", conclude) {
			return true
		}
	} else if !r.tryConclude(conclude) {
		return false
	}
	switch {
	case stale && expected:
		r.discard()
		return true
	case !answered:
		return false
	}
	r.log(slog.LevelInfo, "the attempt has failed after its answer was accepted: the answer counts", slog.Any("error", v.err))
	q.leave(ctx, r, verdict{kind: deferred}, true)
	return true
}

// tryConclude concludes what an earlier attempt may have expected. That is most often nothing, so
// that the task does not wait for a store that is away.
func (r *run) tryConclude(conclude func(context.Context) error) bool {
	ctx, cancel := context.WithTimeout(r.queue.c.settle, loadTimeout)
	defer cancel()
	err := repeat(ctx, r.lost(), conclude, func(error) {})
	if err != nil && !broker.Gone(err) {
		r.log(slog.LevelWarn, "whether an answer was accepted for the task could not be told", slog.Any("error", err))
	}
	return err == nil
}

// settleDeferred defers a task.
func (q *queue) settleDeferred(ctx context.Context, r *run, v verdict) {
	a, refused := r.attempt()
	var status deferral.Status
	if !r.persist(ctx, "deferral", func(ctx context.Context) (err error) {
		if refused != nil {
			return nil //nolint:nilerr // dealt with below: repeating does not mend it
		}
		status, err = q.c.answers.store.Defer(ctx, a, v.await.Key, v.await.Timeout.Or(task.DefaultAnswerWithin))
		switch {
		case errors.Is(err, deferral.ErrStale):
			r.discard()
			return errDone
		case errors.Is(err, deferral.ErrRefused):
			refused, err = err, nil
		}
		return err
	}) {
		return
	}
	if refused != nil {
		err := fmt.Errorf("swarmiji: defer: %w", refused)
		q.settle(r, r.unlessRevoked(r.judge(nil, err), err))
		return
	}
	if status.Before { // by another delivery, whose token the record has
		r.discard()
		return
	}
	q.leave(ctx, r, v, status.Answered)
}

// leave ends a run whose task is deferred now; answered: its answer has come already.
func (q *queue) leave(ctx context.Context, r *run, v verdict, answered bool) {
	r.final.Store(true) // given back, it is to come again as what it is, to be acknowledged, and not as a copy, to be run
	r.noteRevoked()
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

// restore makes the run of a deferral anew, as far as it is settled by its answer.
func (q *queue) restore(a *answer) (*run, error) {
	var kept deferredTask
	if err := json.Unmarshal(a.claim.Attempt().State, &kept); err != nil {
		return nil, err
	}
	if kept.Message.Message == nil {
		return nil, fmt.Errorf("%w: a deferral without a message", serializer.ErrMalformed)
	}
	a.message, a.deliveries = kept.Message.Message, kept.Deliveries
	if a.message.ID == "" { // a foreign writer's: it was given one when it was received
		a.message.ID = string(kept.Task)
	}
	r, err := q.read(a, 0)
	if err != nil {
		return nil, err
	}
	if r.request.ID != kept.Task {
		e := *r.request.Envelope
		e.ID = kept.Task
		r.request.Envelope = &e
	}
	r.answer, r.ended = a, time.Now()
	a.atMostOnce = kept.AtMostOnce
	req := &r.request
	req.Onward, req.Received, req.StartedAt = kept.Onward, time.UnixMilli(kept.Received), time.UnixMilli(kept.Started)
	if kept.Ended != 0 {
		a.ran = max(time.UnixMilli(kept.Ended).Sub(req.StartedAt), 0)
	}
	return r, nil
}
