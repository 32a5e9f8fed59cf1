package membroker

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// lookup waits for a connection and returns the queue with its mutex held: the caller frees it.
// After an error no mutex is held. Returns ErrNoQueue if the queue does not exist, ErrMalformed if
// its name is not valid. Returns ErrUnavailable if ctx ends before a connection exists, ErrClosed
// after Close.
func (b *Broker) lookup(ctx context.Context, name string) (*queue, error) {
	if err := b.ready(ctx); err != nil {
		return nil, err
	}
	q, err := b.s.queue(name)
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	return q, nil
}

// Stats implements [broker.Inspector]. All counters are exact. It first drops dead letters beyond
// the limits. It waits only for a connection. It takes the queue's mutex. Returns ErrNoQueue if the
// queue does not exist, ErrMalformed for an invalid name. Returns ErrUnavailable if ctx ends before
// a connection exists, ErrClosed after Close.
func (b *Broker) Stats(ctx context.Context, queue string) (broker.Stats, error) {
	q, err := b.lookup(ctx, queue)
	if err != nil {
		return broker.Stats{}, err
	}
	defer q.unlock()
	q.trimDead()
	return broker.Stats{
		Ready: q.ready, Held: q.held, Delayed: q.delayed, Dead: len(q.dead), DeadDropped: q.deadDropped, Oldest: q.oldest(),
	}, nil
}

// oldest returns the time at which the longest-waiting ready message became ready, zero if no
// message is ready. Within a ring, a heap and a key the first item became ready first. Call
// it with q.mu held.
func (q *queue) oldest() time.Time {
	var first *item
	look := func(it *item) {
		if it != nil && (first == nil || it.since < first.since) {
			first = it
		}
	}
	for i := range q.levels {
		if q.fair {
			for it := range q.levels[i].keys.Fronts() {
				look(it)
			}
			continue
		}
		look(q.levels[i].ring.front())
		if h := q.levels[i].returned; len(h) > 0 {
			look(h[0])
		}
	}
	if first == nil {
		return time.Time{}
	}
	return time.Unix(0, first.since)
}

// Purge implements [broker.Inspector]. It removes the ready messages, lets waiting publishers use
// their room, and returns their number. Delayed and delivered messages stay. It waits only for a
// connection. It takes the queue's mutex. Returns ErrNoQueue if the queue does not exist,
// ErrMalformed for an invalid name. Returns ErrUnavailable if ctx ends before a connection exists,
// ErrClosed after Close.
func (b *Broker) Purge(ctx context.Context, queue string) (int, error) {
	q, err := b.lookup(ctx, queue)
	if err != nil {
		return 0, err
	}
	defer q.unlock()
	n := q.ready
	strict := new(subscription)
	for it := q.next(strict); it != nil; it = q.next(strict) {
		q.forget(it)
		q.admit()
	}
	return n, nil
}
