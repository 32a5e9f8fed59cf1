package membroker

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
)

// Retry implements [broker.Retrier]. The queue of next may be another one than that of d, and may
// be full. d may be a delivery of any connection to the same Server, also behind a wrapper with
// an Unwrap method. After an error nothing has changed. Returns ErrUnsupported if d is a delivery
// of another Server.
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
		to.put(next.Message, next.At)
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

// lockBoth locks two queues, which may be the same one, in an order that is equal for all callers.
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
