package membroker

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// Find implements [broker.Finder]. The message belongs to the broker: the caller must not change it.
func (b *Broker) Find(ctx context.Context, queue, id string) (broker.Outgoing, error) {
	q, it, err := b.find(ctx, queue, id)
	if err != nil {
		return broker.Outgoing{}, err
	}
	defer q.unlock()
	o := broker.Outgoing{Queue: q.name, Message: it.m}
	if it.place == delayed {
		o.At = it.due
	}
	return o, nil
}

// Delete implements [broker.Finder].
func (b *Broker) Delete(ctx context.Context, queue, id string) error {
	q, it, err := b.find(ctx, queue, id)
	if err != nil {
		return err
	}
	defer q.unlock()
	q.drop(it)
	return nil
}

// Update implements [broker.Finder]. The message keeps its place in the queue when neither its time nor its priority
// level changes; its deliveries are counted from 1 again. The Queue of o is the given one or empty.
func (b *Broker) Update(ctx context.Context, queue string, o broker.Outgoing) error {
	if err := b.s.check(o.Message); err != nil {
		return err
	}
	if o.Queue != "" && o.Queue != queue {
		return fmt.Errorf("membroker: update of %q in queue %q names queue %q: %w", o.Message.ID, queue, o.Queue, broker.ErrMalformed)
	}
	q, it, err := b.find(ctx, queue, o.Message.ID)
	if err != nil {
		return err
	}
	defer q.unlock()
	now := o.At.IsZero() || !o.At.After(time.Now())
	if now && it.place == ready && it.level == q.levelOf(o.Message.Priority) {
		it.m, it.count = o.Message, 0
		return nil
	}
	q.remove(it)
	q.forget(it)
	q.insert(o.Message, o.At)
	q.dispatch()
	return nil
}

// find returns the waiting message of an id, with its queue's mutex held.
func (b *Broker) find(ctx context.Context, name, id string) (*queue, *item, error) {
	q, err := b.lookup(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	it := q.waiting(id)
	if it == nil {
		q.unlock()
		return nil, nil, fmt.Errorf("membroker: %.128q in queue %q: %w", id, name, broker.ErrNotFound)
	}
	return q, it, nil
}
