package membroker

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
)

// Retry implements [broker.Retrier]. It removes the message of d and publishes next in one step,
// and waits only for a connection. The queue of next may be another one than that of d, and may be
// full. If that queue has the same (ID, Generation) as next or a later Generation, next is dropped.
// d may be a delivery of any connection to the same Server, also behind a wrapper with an Unwrap
// method. It takes the mutexes of both queues.
//
// After an error nothing has changed:
//
//   - d is a delivery of another Server: ErrUnsupported.
//   - d is settled: ErrSettled. The broker has taken it back: ErrLeaseLost.
//   - next cannot be stored: ErrMalformed or ErrTooLarge. Its queue does not exist: ErrNoQueue.
//   - ctx ends before a connection exists: ErrUnavailable. After Close: ErrClosed.
func (b *Broker) Retry(ctx context.Context, d broker.Delivery, next broker.Outgoing) error {
	own, ok := capability.As[*delivery](d)
	if !ok || own.sub.b.s != b.s {
		return fmt.Errorf("membroker: retry: the delivery belongs to another broker: %w", broker.ErrUnsupported)
	}
	if err := b.s.check(next.Message); err != nil {
		return err
	}
	if err := b.ready(ctx); err != nil {
		return err
	}
	to, err := b.s.queue(next.Queue)
	if err != nil {
		return err
	}
	from := own.sub.q
	lockBoth(from, to)
	err = own.check()
	if err == nil {
		own.settle()
		from.forget(own.item) // first, because a successor with the same pair would be dropped otherwise
		to.put(next.Message, next.At, time.Now())
	}
	if to != from {
		to.dispatch()
		to.unlock()
	}
	if err != nil {
		from.unlock()
		return err
	}
	own.done()
	return nil
}

// lockBoth takes the mutexes of two queues, which may be the same one. The order is that of their
// names, so that concurrent calls cannot deadlock. The caller frees them.
func lockBoth(a, b *queue) {
	switch {
	case a == b:
		a.mu.Lock()
	case a.name < b.name:
		a.mu.Lock()
		b.mu.Lock()
	default:
		b.mu.Lock()
		a.mu.Lock()
	}
}
