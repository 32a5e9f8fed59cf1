package membroker

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// Find implements [broker.Finder]. Of several waiting generations it returns the highest. At is the
// due time of a delayed message, otherwise zero. The caller must not change the message. It waits
// only for a connection. It takes the queue's mutex.
//
// Returns ErrNotFound if no such message waits, ErrNoQueue if the queue does not exist,
// ErrMalformed for an invalid queue name. Returns ErrUnavailable if ctx ends before a connection
// exists, ErrClosed after Close.
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

// Delete implements [broker.Finder]. It removes the waiting message with the highest Generation,
// and a waiting publisher may use its room. It waits only for a connection. It takes the queue's
// mutex. Returns the errors of Find.
func (b *Broker) Delete(ctx context.Context, queue, id string) error {
	q, it, err := b.find(ctx, queue, id)
	if err != nil {
		return err
	}
	defer q.unlock()
	q.drop(it)
	return nil
}

// Update implements [broker.Finder]. It replaces the waiting message with the highest Generation.
// The message keeps its place in the queue if it is ready and neither its priority level nor, in a
// fair queue, its key changes. Otherwise it goes to the end of its level or key, or waits for its
// new time. Its deliveries are counted
// from 1 again. It waits only for a connection. It takes the queue's mutex.
//
//   - The message cannot be stored: ErrMalformed or ErrTooLarge.
//   - o.Queue is neither queue nor empty, or the name is invalid: ErrMalformed.
//   - No such message waits: ErrNotFound. The queue does not exist: ErrNoQueue.
//   - ctx ends before a connection exists: ErrUnavailable. After Close: ErrClosed.
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
	if now && it.place == ready && it.level == q.levelOf(o.Message.Priority) && (!q.fair || it.m.Key == o.Message.Key) {
		it.m, it.count = o.Message, 0
		if q.fair {
			q.levels[it.level].keys.SetWeight(it.entry, o.Message.Weight)
		}
		return nil
	}
	q.remove(it)
	q.forget(it)
	q.insert(o.Message, o.At, time.Now(), q.byID[o.Message.ID])
	q.dispatch()
	return nil
}

// find waits for a connection and returns the waiting message with the id and the highest
// Generation, and its queue. It returns with the queue's mutex held: the caller frees it. After an
// error the mutex is free.
//
//   - No such message waits: ErrNotFound. The queue does not exist: ErrNoQueue.
//   - The name is not valid: ErrMalformed.
//   - ctx ends before a connection exists: ErrUnavailable. After Close: ErrClosed.
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
