package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/consumer/internal/lives"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// settleEarlier settles a task that must not start, because of its arguments or an earlier
// delivery, and starts every other task. The first case that applies counts:
//
//   - It belongs to a burst whose message is dropped or replaced, see continueBurst. If the store
//     of bursts fails, another goroutine asks it again.
//   - The arguments cannot be decoded (r.unreadable): another goroutine settles the task as failed
//     with [task.ErrBadArgs] and dead-letters it. An earlier delivery does not matter then.
//   - The message is a redelivery, and the task was deferred or settled by its deferral: another
//     goroutine acknowledges the message. If the store of deferrals fails, that is logged, and the
//     next case is examined. See discardIfDeferred.
//   - The end of the task may be stored (mayHaveEnded), and the result store has it: another
//     goroutine settles the task by it. The message of an earlier life is dropped. If the store
//     fails, another goroutine repeats the read, and may start the task. See settleIfRecorded.
//   - Otherwise it calls startOrSettle, and may block until the handler has returned.
//
// It waits for each of the three stores for at most loadTimeout. It takes no lock.
func (q *queue) settleEarlier(r *run) {
	if d, ok := q.c.bursts.Try(q.c.settle, loadTimeout, settlement{r}, &r.request); ok {
		r.continueBurst(d)
	} else {
		q.settling.Go(func() { r.continueBurst(q.c.bursts.Take(settlement{r}, &r.request)) })
	}
}

// settleTaken is settleEarlier without the burst.
func (q *queue) settleTaken(r *run) {
	switch {
	case r.unreadable != nil:
		q.settleAsync(r, verdict{kind: failed, err: fmt.Errorf("%w: %w", task.ErrBadArgs, r.unreadable), deadLetter: true})
	case r.request.Deliveries > 1 && r.discardIfDeferred():
	case r.mayHaveEnded() && r.settleIfRecorded():
	default:
		q.startOrSettle(r)
	}
}

// mayHaveEnded reports whether the end of the task may be stored already, so that the result store
// must be asked. That is so for a redelivered message, and for a copy of an at-most-once task,
// which may have become uncertain when the copy was sent.
func (r *run) mayHaveEnded() bool {
	return r.request.Deliveries > 1 || r.message.Generation > 0 && !r.idempotent()
}

// settleIfRecorded looks for the end of the task that an earlier delivery has stored, and waits up
// to loadTimeout. It returns true if the task must not start now; another goroutine continues then:
//
//   - The store has the end of the task: the task is settled by it.
//   - The record belongs to a later life of the task (see package lives): the message is dropped.
//   - The store failed: it is asked again, see retryLookup.
//
// It returns false without a result store or a record. It also does so for a record that is
// malformed, not final, or the failure of an earlier life. Stores that only send replies keep no
// records.
func (r *run) settleIfRecorded() bool {
	store := r.store()
	if store == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(r.queue.c.settle, loadTimeout)
	defer cancel()
	rec, err := r.load(ctx, store)
	switch {
	case err == nil && lives.Superseded(&rec, r.request.Envelope):
		r.queue.settling.Go(r.dropCopy)
		return true
	case err == nil && rec.State.Terminal() && !lives.Earlier(&rec, r.request.Envelope):
		r.queue.settleAsync(r, verdictOfRecord(&rec))
		return true
	case err == nil, errors.Is(err, resultstore.ErrNotFound), errors.Is(err, resultstore.ErrMalformed):
		return false
	}
	r.queue.settling.Go(func() { r.retryLookup(store) })
	return true
}

// retryLookup repeats the read of settleIfRecorded until the store answers, for at most StoreRetry.
// If the store has the end of the task, it settles the task by that end. If the task has a later
// life, it drops the message. Otherwise it calls startOrSettle, or settleEarlier for a task of a
// burst, and may block until the handler has returned. Without an answer it gives the task back.
func (r *run) retryLookup(store resultstore.ResultStore) {
	var rec resultstore.Record
	if !(settlement{r}).Step("read of its result", func(ctx context.Context) (err error) {
		if rec, err = r.load(ctx, store); errors.Is(err, resultstore.ErrNotFound) || errors.Is(err, resultstore.ErrMalformed) {
			return nil
		}
		return err
	}) {
		return
	}
	switch {
	case lives.Superseded(&rec, r.request.Envelope):
		r.dropCopy()
	case rec.State.Terminal() && !lives.Earlier(&rec, r.request.Envelope):
		r.queue.settle(r, verdictOfRecord(&rec))
	case r.request.Burst != "": // the record of the burst decides, too
		r.queue.settleEarlier(r)
	default:
		r.queue.startOrSettle(r)
	}
}

// verdictOfRecord returns the verdict of the earlier attempt that stored rec, a final record: the
// stored result or error. Without a stored error of a failure the error names the state. It is
// marked as recorded, so that it is not stored again. It dead-letters the message if the error is a
// reason of the consumer, see isConsumerReason.
func verdictOfRecord(rec *resultstore.Record) verdict {
	v := verdict{recorded: true, ran: !rec.StartedAt.IsZero(), result: rec.Result, contentType: rec.ContentType}
	switch rec.State {
	case task.StateSucceeded:
		return v
	case task.StateExpired:
		v.kind, v.err = expired, task.ErrExpired
	case task.StateRevoked:
		v.kind, v.err = revoked, task.ErrRevoked
	default:
		v.kind, v.err = failed, errors.New("swarmiji: task "+string(rec.State))
	}
	if rec.Error != nil {
		v.err = rec.Error
	}
	v.deadLetter = isConsumerReason(v.err)
	return v
}

// loadTimeout limits the first read of an earlier result, for which a worker waits.
const loadTimeout = 2 * time.Second
