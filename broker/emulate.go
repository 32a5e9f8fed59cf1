package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/capability"
)

// This file holds the fallback of each optional interface. Callers use it instead of the interface.

// FromNow returns the duration from now to t and true if t has a reading of this process's
// monotonic clock. Times from time.Now().Add have one. The duration is negative if t has passed. An
// adapter then delivers the message after this duration, because the date of t is wrong if this
// process's clock is wrong.
//
// For any other t FromNow returns 0 and false. The adapter then uses the date.
func FromNow(t time.Time) (time.Duration, bool) {
	if t == t.Round(0) { //nolint:staticcheck // Equal ignores monotonic clock readings
		return 0, false
	}
	return time.Until(t), true
}

// PublishAt publishes o.Message to o.Queue, to be delivered at o.At, or at once if o.At is zero or
// has passed. A Broker that is not a [Delayer] accepts only messages that are due. For other
// messages PublishAt returns [ErrUnsupported] and publishes nothing. Its other errors are those of
// Publish.
func PublishAt(ctx context.Context, b Broker, o Outgoing) error {
	if o.At.IsZero() {
		return b.Publish(ctx, o.Queue, o.Message)
	}
	if d, ok := capability.As[Delayer](b); ok { // the broker's clock decides whether the time has come
		return d.PublishAt(ctx, o.Queue, o.Message, o.At)
	}
	if !o.At.After(time.Now()) {
		return b.Publish(ctx, o.Queue, o.Message)
	}
	return fmt.Errorf("a delay until %s: %w", o.At.UTC().Format(time.RFC3339), ErrUnsupported)
}

// batchWidth limits the publishes that the fallback of PublishBatch runs at once.
const batchWidth = 64

// PublishBatch publishes ms, waits for all of them, and returns a [*BatchError] if any failed.
// For a Broker that is not a [BatchPublisher] it calls [PublishAt] for each message, up to 64 at
// once.
func PublishBatch(ctx context.Context, b Broker, ms []Outgoing) error {
	if bp, ok := capability.As[BatchPublisher](b); ok {
		return bp.PublishBatch(ctx, ms)
	}
	errs := make([]error, len(ms))
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(batchWidth, len(ms)) {
		wg.Go(func() {
			for i := range next {
				errs[i] = PublishAt(ctx, b, ms[i])
			}
		})
	}
	for i := range ms {
		next <- i
	}
	close(next)
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return &BatchError{Errs: errs}
		}
	}
	return nil
}

// Replace publishes next and acknowledges d. With a [Retrier] this is one atomic step. Otherwise
// Replace acknowledges d after the broker has confirmed next. A crash between the two steps leaves
// one message too many and loses none. If the publish fails, d is not acknowledged. If the
// acknowledgement fails, Replace returns its error although next is published.
func Replace(ctx context.Context, b Broker, d Delivery, next Outgoing) error {
	if r, ok := capability.As[Retrier](b); ok {
		return r.Retry(ctx, d, next)
	}
	if err := PublishAt(ctx, b, next); err != nil {
		return err
	}
	return d.Ack(ctx)
}

// Declare creates the queues with a [Declarer]. Other brokers need no declaration: for them it
// returns nil, or [ErrUnsupported] if a queue has priority levels or is fair.
func Declare(ctx context.Context, b Broker, qs ...Queue) error {
	if d, ok := capability.As[Declarer](b); ok {
		return d.Declare(ctx, qs...)
	}
	for _, q := range qs {
		if len(q.Levels) > 0 {
			return fmt.Errorf("priority levels of queue %q: %w", q.Name, ErrUnsupported)
		}
		if err := RefuseFair(q); err != nil {
			return err
		}
	}
	return nil
}

// RefuseFair returns [ErrUnsupported], with the name of the queue, if q is fair. A broker that has
// no turns calls it in Declare.
func RefuseFair(q Queue) error {
	if q.Fair {
		return fmt.Errorf("turns over fairness keys (Fair) of queue %q: %w", q.Name, ErrUnsupported)
	}
	return nil
}

// Describe returns a queue as it was declared, by the [Describer] of b. Returns [ErrUnsupported] if
// b is not a Describer.
func Describe(ctx context.Context, b Broker, queue string) (Queue, error) {
	d, ok := capability.As[Describer](b)
	if !ok {
		return Queue{}, fmt.Errorf("this broker does not tell how queue %q was declared: %w", queue, ErrUnsupported)
	}
	return d.Describe(ctx, queue)
}

// AckSync acknowledges d. If d is a [SyncAcker] it waits until the broker has accepted the
// acknowledgement. Other deliveries may still lose it.
func AckSync(ctx context.Context, d Delivery) error {
	if s, ok := capability.As[SyncAcker](d); ok {
		return s.AckSync(ctx)
	}
	return d.Ack(ctx)
}

// SetPrefetch changes the prefetch of a subscription to n. If s is a [Resizer] it returns true and
// the error of the Resizer. Otherwise it changes nothing and returns false without an error.
func SetPrefetch(ctx context.Context, s Subscription, n int) (bool, error) {
	r, ok := capability.As[Resizer](s)
	if !ok {
		return false, nil
	}
	return true, r.SetPrefetch(ctx, n)
}

// SetBounds changes the bounds of a subscription with the [Bounder] of s. Returns [ErrUnsupported]
// if s is not a Bounder and b has a limit.
func SetBounds(s Subscription, b Bounds) error {
	if r, ok := capability.As[Bounder](s); ok {
		return r.SetBounds(b)
	}
	if b.IsZero() {
		return nil
	}
	return fmt.Errorf("bounds at the claim: %w by this broker", ErrUnsupported)
}

// ListKeys returns a page of the fairness keys of a queue, by the [KeyLister] of b. Returns
// [ErrUnsupported] if b is not a KeyLister.
func ListKeys(ctx context.Context, b Broker, queue, cursor string, limit int) (KeyPage, error) {
	l, ok := capability.As[KeyLister](b)
	if !ok {
		return KeyPage{}, fmt.Errorf("this broker does not tell the fairness keys of queue %q: %w", queue, ErrUnsupported)
	}
	return l.ListKeys(ctx, queue, cursor, limit)
}

// List returns a page of the messages in one place of a queue. It calls the [Lister] of b. If b is
// only a [DeadLetterer], List shows dead letters with [PageDead], where late pages need more time.
//
// Returns [ErrUnsupported] for each place that b cannot show, and [ErrMalformed] for an unknown
// place. Its other errors are those of [Lister].
func List(ctx context.Context, b Broker, queue string, q ListQuery) (Page, error) {
	if l, ok := capability.As[Lister](b); ok {
		return l.List(ctx, queue, q)
	}
	dl, ok := capability.As[DeadLetterer](b)
	if !ok || q.Place != PlaceDead {
		if _, err := q.Check(); err != nil {
			return Page{}, err
		}
		return Page{}, fmt.Errorf("the %s messages of queue %q cannot be looked at on this broker: %w", q.Place, queue, ErrUnsupported)
	}
	return PageDead(ctx, dl, queue, q)
}

// Queues returns the names of the queues that exist, sorted, by the [QueueLister] of b. Returns
// [ErrUnsupported] if b is not a QueueLister.
func Queues(ctx context.Context, b Broker) ([]string, error) {
	l, ok := capability.As[QueueLister](b)
	if !ok {
		return nil, fmt.Errorf("this broker does not tell which queues exist; name them: %w", ErrUnsupported)
	}
	return l.Queues(ctx)
}

// Locate returns the exchange and the routing key to which a message for queue is published. For a
// Broker that is not a [Locator] the exchange is "" and the routing key is the queue's name.
func Locate(b Broker, queue string) (exchange, routingKey string) {
	if l, ok := capability.As[Locator](b); ok {
		return l.Locate(queue)
	}
	return "", queue
}

// Gone reports whether err means that the caller can no longer settle the delivery: it is
// [ErrLeaseLost] or [ErrSettled].
func Gone(err error) bool { return errors.Is(err, ErrLeaseLost) || errors.Is(err, ErrSettled) }
