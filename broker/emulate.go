package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/capability"
)

// This file holds the one fallback of each optional interface, for callers on the portable side.

// FromNow returns how long from now t is, and true, if t has a reading of this process's monotonic
// clock: time.Now().Add returns such times. An adapter hands the message out so long from now,
// since the date of t is as wrong as the clock of this process may be.
//
// Any other t is a time on the wall: FromNow returns 0 and false, and the date counts.
func FromNow(t time.Time) (time.Duration, bool) {
	if t == t.Round(0) { //nolint:staticcheck // Equal does not compare the readings of the monotonic clock
		return 0, false
	}
	return time.Until(t), true
}

// PublishAt publishes m to be seen at the given time, or at once when it has come. A Broker that is no [Delayer] takes
// only messages that are due: [ErrUnsupported].
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

// batchWidth is how many single publishes the fallback of PublishBatch keeps under way.
const batchWidth = 64

// PublishBatch publishes ms and returns a [*BatchError] if any of them failed. A Broker that is no [BatchPublisher] is
// given them one by one, up to 64 at a time.
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

// Replace publishes next in the place of d: atomically with a [Retrier], else published, confirmed, and then acknowledged,
// so that a crash between the two leaves one message too many and never one too few.
func Replace(ctx context.Context, b Broker, d Delivery, next Outgoing) error {
	if r, ok := capability.As[Retrier](b); ok {
		return r.Retry(ctx, d, next)
	}
	if err := PublishAt(ctx, b, next); err != nil {
		return err
	}
	return d.Ack(ctx)
}

// Declare declares queues where the Broker needs it.
func Declare(ctx context.Context, b Broker, qs ...Queue) error {
	if d, ok := capability.As[Declarer](b); ok {
		return d.Declare(ctx, qs...)
	}
	for _, q := range qs {
		if len(q.Levels) > 0 {
			return fmt.Errorf("priority levels of queue %q: %w", q.Name, ErrUnsupported)
		}
	}
	return nil
}

// AckSync acknowledges d and, with a [SyncAcker], waits until the broker has taken it.
func AckSync(ctx context.Context, d Delivery) error {
	if s, ok := capability.As[SyncAcker](d); ok {
		return s.AckSync(ctx)
	}
	return d.Ack(ctx)
}

// SetPrefetch changes a subscription's prefetch and reports whether it could.
func SetPrefetch(ctx context.Context, s Subscription, n int) (bool, error) {
	r, ok := capability.As[Resizer](s)
	if !ok {
		return false, nil
	}
	return true, r.SetPrefetch(ctx, n)
}

// Locate returns where a message for queue is published. A Broker that is no [Locator] has no exchanges: the routing key
// is the queue.
func Locate(b Broker, queue string) (exchange, routingKey string) {
	if l, ok := capability.As[Locator](b); ok {
		return l.Locate(queue)
	}
	return "", queue
}

// Gone reports whether err says that the delivery is no longer the caller's to settle.
func Gone(err error) bool { return errors.Is(err, ErrLeaseLost) || errors.Is(err, ErrSettled) }
