package membroker

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// Find implements [broker.Finder]. Of several waiting generations it returns the highest. The
// caller must not change the message. Returns ErrNotFound if no such message waits.
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

// Delete implements [broker.Finder]. It removes the waiting message, and a waiting publisher may
// use its room. Returns ErrNotFound if no such message waits.
func (b *Broker) Delete(ctx context.Context, queue, id string) error {
	q, it, err := b.find(ctx, queue, id)
	if err != nil {
		return err
	}
	defer q.unlock()
	q.drop(it)
	return nil
}

// Update implements [broker.Finder]. The message keeps its place in the queue if neither its time
// nor its priority level changes. Its deliveries are counted from 1 again. Returns ErrMalformed
// if o.Queue is neither queue nor empty, or if the message cannot be stored. Returns ErrNotFound
// if no such message waits.
func (b *Broker) Update(ctx context.Context, queue string, o broker.Outgoing) error {
	if err := b.s.check(o.Message); err != nil {
		return err
	}
	if o.Queue != "" && o.Queue != queue {
		return fmt.Errorf("membroker: update of %q in queue %q: the message names another queue, %q: %w", o.Message.ID, queue, o.Queue, broker.ErrMalformed)
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

// find returns the waiting message with the id and its queue, whose mutex is held: the caller
// frees it. It waits for a connection. Returns ErrNotFound or ErrNoQueue, with the mutex free, if
// no such message waits.
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
