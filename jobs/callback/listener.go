package callback

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/guard"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/jobs"
)

// Listener receives answers from outside from a queue of a broker. Answers that arrive together are
// stored in one transaction. A message is acknowledged after its answer is stored durably. After a
// crash in between the answer comes again, as a duplicate, which changes nothing. Several listeners
// may share a queue. Create one with [NewListener].
type Listener struct {
	c           ListenerConfig
	answer      func(context.Context, []jobs.Answer) ([]jobs.Receipt, error)
	most        int // bytes of a batch, see maxBatch
	running     atomic.Bool
	unavailable bool // an outage of the store was reported; only Run's goroutine uses it
	count       struct {
		counters
		received, unreadable, refused, dropped, putBack, givenBack, lost, batches atomic.Int64
	}
}

// NewListener returns a Listener with the defaults of c. It does no I/O and starts no goroutine.
// Returns all problems of c, joined. The Listener is then nil.
func NewListener(c ListenerConfig) (*Listener, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	return &Listener{c: c, answer: c.Service.AnswerAll, most: maxBatch}, nil
}

// Stats returns the counts since NewListener.
func (l *Listener) Stats() ListenerStats {
	c := &l.count
	return ListenerStats{
		Received: c.received.Load(), Accepted: c.accepted.Load(), Early: c.early.Load(), Late: c.late.Load(), Duplicate: c.duplicate.Load(), Skipped: c.skipped.Load(),
		Unreadable: c.unreadable.Load(), Refused: c.refused.Load(), Dropped: c.dropped.Load(), PutBack: c.putBack.Load(), GivenBack: c.givenBack.Load(),
		Lost: c.lost.Load(), Failed: c.failed.Load(), Batches: c.batches.Load(),
	}
}

// ErrRunning is the error of a second Run of a Listener.
var ErrRunning = errors.New("callback: Run was already called; create a new listener")

// Run receives and stores answers until ctx ends. It declares the queue first. At the end it
// stores the answers that it has received, for up to ShutdownTimeout, releases the other messages,
// and closes the subscription; an error of that is logged. While the broker or the store is
// unavailable, it waits. A Listener runs only once.
//
// Returns [ErrRunning] for a second call, and nil after ctx has ended, except for an ErrAccess of
// the broker. Before that it returns an ErrClosed of the broker or the service, and any other
// error of the broker that is not an outage.
func (l *Listener) Run(ctx context.Context) error {
	if !l.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	sub, err := l.open(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil // ctx ended before the start
		}
		return err
	}
	work, release := l.delayedContext(ctx)
	defer release()
	for err == nil && ctx.Err() == nil {
		var batch []*item
		if batch, err = l.receiveBatch(ctx, work, sub); len(batch) > 0 {
			err = errors.Join(err, l.storeBatch(ctx, work, batch))
		}
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.c.ShutdownTimeout)
	defer cancel()
	if cerr := sub.Close(closing); cerr != nil && !errors.Is(cerr, broker.ErrClosed) {
		l.c.Logger.Warn("callback: cannot close the subscription", "queue", l.c.Queue, "error", cerr)
	}
	if ctx.Err() != nil && !errors.Is(err, broker.ErrAccess) {
		return nil
	}
	return err
}

// delayedContext returns a context that ends ShutdownTimeout after ctx has ended. It has the values
// of ctx. The returned function ends the context at once and waits for its goroutine; call it once.
func (l *Listener) delayedContext(ctx context.Context) (context.Context, func()) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		wake.Sleep(work, l.c.ShutdownTimeout)
		cancel()
	})
	return work, func() {
		cancel()
		if !stop() {
			<-ended
		}
	}
}

// open declares the queue, subscribes to it and returns the subscription. While the broker is
// unavailable it blocks: it logs a warning and tries again with ListenerConfig.Backoff. Returns
// any other error of the broker, and an error if ctx ends.
func (l *Listener) open(ctx context.Context) (broker.Subscription, error) {
	for attempt := 0; ; attempt++ {
		err := broker.Declare(ctx, l.c.Broker, broker.Queue{Name: l.c.Queue})
		if err == nil {
			var sub broker.Subscription
			if sub, err = l.c.Broker.Subscribe(ctx, l.c.Queue, broker.SubscribeOptions{Prefetch: l.c.Prefetch}); err == nil {
				return sub, nil
			}
		}
		if ctx.Err() != nil || !errors.Is(err, broker.ErrUnavailable) && !errors.Is(err, broker.ErrIndeterminate) {
			return nil, fmt.Errorf("callback: queue %q: %w", l.c.Queue, err)
		}
		l.c.Logger.Warn("callback: cannot subscribe to the queue; trying again", "queue", l.c.Queue, "error", err)
		wake.Sleep(ctx, l.c.Backoff.Interval(attempt))
	}
}

// item is a received message and its answer.
type item struct {
	delivery broker.Delivery
	answer   jobs.Answer
	tries    int // tries in this process since the message was received
}

// receiveBatch blocks until a message arrives, and returns its answer with those of the messages
// that have arrived with it. It counts all of them. It ends a batch at Prefetch messages or at
// l.most bytes of results. Messages without an answer are settled at once, with the context work,
// so the batch may be empty. Returns the error of the first Receive. A later error only ends the
// batch: the next Receive returns it again.
func (l *Listener) receiveBatch(ctx, work context.Context, sub broker.Subscription) ([]*item, error) {
	d, err := sub.Receive(ctx)
	if err != nil {
		return nil, fmt.Errorf("callback: queue %q: %w", l.c.Queue, err)
	}
	done, cancel := context.WithCancel(ctx)
	cancel() // Receive still returns messages that have arrived
	var batch []*item
	for n, size := 1, 0; err == nil; n++ {
		l.count.received.Add(1)
		if it := l.read(work, d); it != nil {
			batch = append(batch, it)
			size += len(it.answer.Result)
		}
		if n >= l.c.Prefetch || size >= l.most {
			break
		}
		d, err = sub.Receive(done) // the next call receives any error again
	}
	return batch, nil
}

// read converts a message to an answer. A message that Read skips is acknowledged and counted. A
// message that Read cannot decode, at which Read panics, or whose answer is invalid is counted,
// reported and dead-lettered (deadLetter). Returns nil in these cases. It blocks until such a
// message is settled.
func (l *Listener) read(ctx context.Context, d broker.Delivery) *item {
	it := &item{delivery: d}
	err := guard.Call(func() (err error) {
		it.answer, err = l.c.Read(d.Message())
		return err
	})
	if errors.Is(err, ErrSkip) {
		l.count.skipped.Add(1)
		l.ack(ctx, it)
		return nil
	}
	if err == nil {
		err = checkAnswer(&it.answer)
	}
	if err != nil {
		l.count.unreadable.Add(1)
		l.deadLetter(ctx, it, ProblemUnreadable, err)
		return nil
	}
	return it
}

// storeBatch stores the answers of a batch and acknowledges their messages. It blocks until all
// are settled. Before each try it drops the messages that the broker has taken back (stillHeld).
// While the store is unavailable it reports that once and tries again with ListenerConfig.Backoff.
// If the store refuses a batch, its answers are stored one by one, and each refused one is handled
// by retryLater. It also handles each answer whose key another transaction holds.
//
// When ctx ends while it waits, it releases the remaining messages and returns nil. Returns an
// error, after releasing them, if the service was closed. work is the context of the calls.
func (l *Listener) storeBatch(ctx, work context.Context, batch []*item) error {
	for attempt := 0; ; attempt++ {
		batch = l.stillHeld(batch)
		if len(batch) == 0 {
			return nil
		}
		var err error
		batch, err = l.write(work, batch)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, jobs.ErrHeld):
			var rest []*item
			for _, it := range batch {
				rest = append(rest, l.retryLater(work, []*item{it}, err)...)
			}
			batch = rest
		case !isUnavailable(err) && len(batch) > 1:
			batch, err = l.writeSingly(work, batch)
		case !isUnavailable(err):
			batch = l.retryLater(work, batch, err)
		}
		if len(batch) == 0 {
			return nil
		}
		if errors.Is(err, jobs.ErrClosed) {
			l.giveBack(work, batch)
			return fmt.Errorf("callback: queue %q: %w", l.c.Queue, err)
		}
		if isUnavailable(err) {
			l.reportOutage(err)
		}
		if !wake.Sleep(ctx, l.c.Backoff.Interval(attempt)) {
			l.giveBack(work, batch)
			return nil
		}
	}
}

// isUnavailable reports whether err means that the store is unavailable or closed, or that the
// result is unknown. The same answers may then be tried again. It returns false for ErrHeld, which
// concerns one key.
func isUnavailable(err error) bool {
	return !errors.Is(err, jobs.ErrHeld) && (errors.Is(err, jobs.ErrUnavailable) || errors.Is(err, jobs.ErrClosed) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled))
}

// stillHeld returns the messages of batch that the broker has not taken back, and counts the others
// as lost. It reuses the memory of batch and does not block.
func (l *Listener) stillHeld(batch []*item) []*item {
	kept := batch[:0]
	for _, it := range batch {
		select {
		case <-it.delivery.Lost():
			l.count.lost.Add(1)
		default:
			kept = append(kept, it)
		}
	}
	return kept
}

// write stores the answers of a batch in one transaction within ListenerConfig.Timeout, counts them
// by their receipts, and acknowledges their messages. A success counts as a batch and ends a
// reported outage (l.unavailable).
//
// rest contains the messages that are not settled, which the caller tries again. After ErrHeld
// these are the messages whose key another transaction holds, after any other error all messages.
func (l *Listener) write(work context.Context, batch []*item) (rest []*item, err error) {
	answers := make([]jobs.Answer, len(batch))
	for i, it := range batch {
		answers[i] = it.answer
	}
	ctx, cancel := context.WithTimeout(work, l.c.Timeout)
	receipts, err := l.answer(ctx, answers)
	cancel()
	if err != nil && !errors.Is(err, jobs.ErrHeld) {
		return batch, err
	}
	l.unavailable = false
	l.count.batches.Add(1)
	for i, it := range batch {
		if receipts[i].Kind == "" {
			rest = append(rest, it)
			continue
		}
		l.count.receipt(receipts[i])
		l.ack(work, it)
	}
	return rest, err
}

// writeSingly stores the answers of a batch in one transaction each, because the store has refused
// one of them. It passes each refused answer to retryLater. It stops when the store is unavailable.
// rest contains the messages that must be tried again here, and why the last error; both are nil if
// all are settled.
func (l *Listener) writeSingly(work context.Context, batch []*item) (rest []*item, why error) {
	for i, it := range batch {
		_, err := l.write(work, batch[i:i+1:i+1])
		switch {
		case err == nil:
		case isUnavailable(err):
			return append(rest, batch[i:]...), err
		default:
			rest, why = append(rest, l.retryLater(work, []*item{it}, err)...), err
		}
	}
	return rest, why
}

// retryLater handles a message, one[0], whose answer the store has refused with err although it is
// available. It counts and dead-letters an invalid answer (ErrBadJob), and, unless err is ErrHeld,
// an answer that was tried ListenerConfig.Attempts times. Tries before this delivery count, as far
// as the message and the broker tell. Otherwise the message is reported and released, to be
// delivered again after 2 s to 1 min.
//
// Returns nil if the message is settled. Returns one if the broker does not support a delay: the
// caller tries again.
func (l *Listener) retryLater(work context.Context, one []*item, err error) []*item {
	it := one[0]
	it.tries++
	m := it.delivery.Message()
	n, _ := it.delivery.Deliveries()
	tries := m.Generation + n - 1 + it.tries
	if errors.Is(err, jobs.ErrBadJob) || tries >= l.c.Attempts && !errors.Is(err, jobs.ErrHeld) {
		l.count.refused.Add(1)
		l.deadLetter(work, it, ProblemRefused, err)
		return nil
	}
	l.report(Report{Problem: ProblemPutBack, Message: m, Answer: it.answer, Err: err})
	if !l.putBack(work, it, min(time.Second<<min(tries, 6), time.Minute)) {
		return one
	}
	return nil
}

// ack acknowledges a message. An error is logged and counted as lost: the message comes again, as a
// duplicate.
func (l *Listener) ack(ctx context.Context, it *item) {
	if err := it.delivery.Ack(ctx); err != nil {
		l.count.lost.Add(1)
		l.c.Logger.Debug("callback: cannot acknowledge a message; it comes again as a duplicate", "queue", l.c.Queue, "message", it.delivery.Message().ID, "error", err)
	}
}

// deadLetter moves a message to the dead-letter queue with the reason cause, and reports the
// problem p, even after an error. If the broker has no dead letters, it acknowledges the message
// and counts it as dropped. If that fails too, it releases the message, with a delay of 1 s if the
// broker supports a delay.
func (l *Listener) deadLetter(ctx context.Context, it *item, p Problem, cause error) {
	r := Report{Problem: p, Message: it.delivery.Message(), Answer: it.answer, Err: cause}
	err := it.delivery.DeadLetter(ctx, broker.Dead{Reason: cause.Error()})
	if errors.Is(err, broker.ErrUnsupported) {
		if err = it.delivery.Ack(ctx); err == nil {
			l.count.dropped.Add(1)
			r.Dropped = true
		}
	}
	l.report(r)
	if err != nil && !l.putBack(ctx, it, time.Second) {
		l.giveBack(ctx, []*item{it})
	}
}

// putBack releases a message, so that it is delivered again after a delay, and returns true. It
// waits for the broker. It counts the release; after an error it counts the message as lost.
// Returns false, and does nothing, if the broker does not support a delay.
func (l *Listener) putBack(ctx context.Context, it *item, after time.Duration) bool {
	switch err := it.delivery.Release(ctx, after); {
	case errors.Is(err, broker.ErrUnsupported):
		return false
	case err != nil:
		l.count.lost.Add(1)
	default:
		l.count.putBack.Add(1)
	}
	return true
}

// giveBackTimeout limits giveBack.
const giveBackTimeout = 10 * time.Second

// giveBack releases messages, so that they are delivered again at once, and counts them. It works
// even if ctx has ended, for giveBackTimeout. Errors are ignored: the broker delivers those
// messages again after their lease.
func (l *Listener) giveBack(ctx context.Context, batch []*item) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
	defer cancel()
	for _, it := range batch {
		if it.delivery.Release(ctx, 0) == nil {
			l.count.givenBack.Add(1)
		}
	}
}

// reportOutage counts a transaction that failed because the store is unavailable. It reports
// ProblemAway for the first one after a success of write (l.unavailable).
func (l *Listener) reportOutage(err error) {
	l.count.failed.Add(1)
	if !l.unavailable {
		l.unavailable = true
		l.report(Report{Problem: ProblemAway, Err: err})
	}
}

// report logs a problem as a warning. If ListenerConfig.OnReport is set, it calls it in this
// goroutine; a panic of OnReport is not recovered.
func (l *Listener) report(r Report) {
	id := ""
	if r.Message != nil {
		id = r.Message.ID
	}
	l.c.Logger.Warn("callback: "+string(r.Problem), "queue", l.c.Queue, "message", id, "name", r.Answer.Name, "key", r.Answer.Key, "error", r.Err)
	if l.c.OnReport != nil {
		l.c.OnReport(r)
	}
}
