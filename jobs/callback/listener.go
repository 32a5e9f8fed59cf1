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

// Listener takes answers from outside from a queue of a broker. What has arrived together is written in one transaction; a message is acknowledged when its answer is on disk. A crash
// between the two has the answer come again, as a duplicate, which changes nothing. Any number of listeners may share a queue. Make one with [NewListener].
type Listener struct {
	c       ListenerConfig
	answer  func(context.Context, []jobs.Answer) ([]jobs.Receipt, error)
	most    int // bytes of a batch, see maxBatch
	running atomic.Bool
	away    bool // it was told that the store is; Run's goroutine alone looks at it
	count   struct {
		counters
		received, unreadable, refused, dropped, putBack, givenBack, lost, batches atomic.Int64
	}
}

// NewListener makes a Listener, or returns every problem of the configuration, joined. It does no I/O and starts nothing.
func NewListener(c ListenerConfig) (*Listener, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	return &Listener{c: c, answer: c.Service.AnswerAll, most: maxBatch}, nil
}

// Stats returns what was counted.
func (l *Listener) Stats() ListenerStats {
	c := &l.count
	return ListenerStats{
		Received: c.received.Load(), Accepted: c.accepted.Load(), Early: c.early.Load(), Late: c.late.Load(), Duplicate: c.duplicate.Load(), Skipped: c.skipped.Load(),
		Unreadable: c.unreadable.Load(), Refused: c.refused.Load(), Dropped: c.dropped.Load(), PutBack: c.putBack.Load(), GivenBack: c.givenBack.Load(),
		Lost: c.lost.Load(), Failed: c.failed.Load(), Batches: c.batches.Load(),
	}
}

// ErrRunning is returned by a second Run of a Listener.
var ErrRunning = errors.New("callback: the listener runs already, or has run")

// Run takes answers until ctx ends. Then it writes those that it has received, for up to ShutdownTimeout, and gives back the others. It waits for a broker or a store that is
// away. The error is nil unless there was a mistake in using it, the broker or the service was closed, or the broker refuses access to the queue. A Listener runs once.
func (l *Listener) Run(ctx context.Context) error {
	if !l.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	sub, err := l.open(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil // a stop before the start
		}
		return err
	}
	work, release := l.outlive(ctx)
	defer release()
	for err == nil && ctx.Err() == nil {
		var batch []*item
		if batch, err = l.gather(ctx, work, sub); len(batch) > 0 {
			err = errors.Join(err, l.feed(ctx, work, batch))
		}
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.c.ShutdownTimeout)
	defer cancel()
	if cerr := sub.Close(closing); cerr != nil && !errors.Is(cerr, broker.ErrClosed) {
		l.c.Logger.Warn("callback: the subscription does not close", "queue", l.c.Queue, "error", cerr)
	}
	if ctx.Err() != nil && !errors.Is(err, broker.ErrAccess) {
		return nil
	}
	return err
}

// outlive returns a context that ends ShutdownTimeout after ctx does.
func (l *Listener) outlive(ctx context.Context) (context.Context, func()) {
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

// open declares the queue and subscribes. It waits for a broker that is away.
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
		l.c.Logger.Warn("callback: the queue cannot be opened", "queue", l.c.Queue, "error", err)
		wake.Sleep(ctx, l.c.Backoff.Interval(attempt))
	}
}

// item is a message that is held, and its answer.
type item struct {
	delivery broker.Delivery
	answer   jobs.Answer
	tries    int // here, since it was received
}

// gather waits for a message, and takes along what has arrived with it. What is no answer is settled. The batch may be empty.
func (l *Listener) gather(ctx, work context.Context, sub broker.Subscription) ([]*item, error) {
	d, err := sub.Receive(ctx)
	if err != nil {
		return nil, fmt.Errorf("callback: queue %q: %w", l.c.Queue, err)
	}
	done, cancel := context.WithCancel(ctx)
	cancel() // Receive hands out what is held even so
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
		d, err = sub.Receive(done) // of an error that says more than that there is nothing the next call hears too
	}
	return batch, nil
}

// read makes an answer of a message; one of which nothing can be made is settled.
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
		l.bury(ctx, it, ProblemUnreadable, err)
		return nil
	}
	return it
}

// feed writes a batch, and tries again for as long as the store is away.
func (l *Listener) feed(ctx, work context.Context, batch []*item) error {
	for attempt := 0; ; attempt++ {
		batch = l.held(batch)
		if len(batch) == 0 {
			return nil
		}
		err := l.write(work, batch)
		if err == nil {
			return nil
		}
		if !away(err) && len(batch) > 1 {
			batch, err = l.singly(work, batch)
		} else if !away(err) {
			batch = l.doubtful(work, batch, err)
		}
		if len(batch) == 0 {
			return nil
		}
		if errors.Is(err, jobs.ErrClosed) {
			l.giveBack(work, batch)
			return fmt.Errorf("callback: queue %q: %w", l.c.Queue, err)
		}
		if away(err) {
			l.isAway(err)
		}
		if !wake.Sleep(ctx, l.c.Backoff.Interval(attempt)) {
			l.giveBack(work, batch)
			return nil
		}
	}
}

// away reports whether err says that the store is away, or that nobody knows what it did: the same answer may be tried again and again.
func away(err error) bool {
	return errors.Is(err, jobs.ErrUnavailable) || errors.Is(err, jobs.ErrClosed) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// held returns those that the broker has not taken back.
func (l *Listener) held(batch []*item) []*item {
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

// write writes the answers of a batch, all or none, and acknowledges their messages.
func (l *Listener) write(work context.Context, batch []*item) error {
	answers := make([]jobs.Answer, len(batch))
	for i, it := range batch {
		answers[i] = it.answer
	}
	ctx, cancel := context.WithTimeout(work, l.c.Timeout)
	receipts, err := l.answer(ctx, answers)
	cancel()
	if err != nil {
		return err
	}
	l.away = false
	l.count.batches.Add(1)
	for i, it := range batch {
		l.count.receipt(receipts[i])
		l.ack(work, it)
	}
	return nil
}

// singly writes the answers of a batch one by one, since the store refuses one of them. It returns those that are to be tried again here, and why.
func (l *Listener) singly(work context.Context, batch []*item) (rest []*item, why error) {
	for i, it := range batch {
		err := l.write(work, batch[i:i+1:i+1])
		switch {
		case err == nil:
		case away(err):
			return append(rest, batch[i:]...), err
		default:
			rest, why = append(rest, l.doubtful(work, []*item{it}, err)...), err
		}
	}
	return rest, why
}

// doubtful settles a message whose answer was refused by a store that is there: it is put back for a while, and buried when that has happened too often. It returns the message if
// it can only be tried again here.
func (l *Listener) doubtful(work context.Context, one []*item, err error) []*item {
	it := one[0]
	it.tries++
	m := it.delivery.Message()
	n, _ := it.delivery.Deliveries()
	tries := m.Generation + n - 1 + it.tries
	if errors.Is(err, jobs.ErrBadJob) || tries >= l.c.Attempts {
		l.count.refused.Add(1)
		l.bury(work, it, ProblemRefused, err)
		return nil
	}
	l.report(Report{Problem: ProblemPutBack, Message: m, Answer: it.answer, Err: err})
	if !l.putBack(work, it, min(time.Second<<min(tries, 6), time.Minute)) {
		return one
	}
	return nil
}

// ack acknowledges a message. If that fails it comes again, as a duplicate.
func (l *Listener) ack(ctx context.Context, it *item) {
	if err := it.delivery.Ack(ctx); err != nil {
		l.count.lost.Add(1)
		l.c.Logger.Debug("callback: a message could not be acknowledged", "queue", l.c.Queue, "message", it.delivery.Message().ID, "error", err)
	}
}

// bury buries a message, or drops it where there are no dead letters. If neither can be done it comes again.
func (l *Listener) bury(ctx context.Context, it *item, p Problem, cause error) {
	r := Report{Problem: p, Message: it.delivery.Message(), Answer: it.answer, Err: cause}
	err := it.delivery.Bury(ctx, broker.Dead{Reason: cause.Error()})
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

// putBack gives a message back to be tried later. It reports false where the broker cannot hold it back for a time.
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

// giveBackTimeout bounds giving back what was not written.
const giveBackTimeout = 10 * time.Second

// giveBack gives messages back, to be handed out again at once. Those of which the broker hears nothing come again by themselves.
func (l *Listener) giveBack(ctx context.Context, batch []*item) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
	defer cancel()
	for _, it := range batch {
		if it.delivery.Release(ctx, 0) == nil {
			l.count.givenBack.Add(1)
		}
	}
}

// isAway tells that the store is away, once until it is there again.
func (l *Listener) isAway(err error) {
	l.count.failed.Add(1)
	if !l.away {
		l.away = true
		l.report(Report{Problem: ProblemAway, Err: err})
	}
}

// report tells of a problem.
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
