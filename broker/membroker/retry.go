package membroker

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
)

// Retry implements [broker.Retrier]. The queue of next may be another than that of d, and may be full; d may be a wrapper
// with an Unwrap method, of a delivery of any connection to the same Server. With an error nothing has changed.
func (b *Broker) Retry(ctx context.Context, d broker.Delivery, next broker.Outgoing) error {
	own, ok := capability.As[*delivery](d)
	if !ok || own.sub.b.s != b.s {
		return fmt.Errorf("membroker: retry of a delivery of another broker: %w", broker.ErrUnsupported)
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
		from.forget(own.item) // first, or a successor of the same pair would be no news
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

// lockBoth takes the mutexes of two queues, which may be one, in an order that is the same for every caller.
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
