package membroker

import (
	"cmp"
	"context"
	"slices"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/turns"
)

// makeFair moves the ready items of old to turns in the queue's new levels, in their order. old are
// the levels of the queue before it was fair. Call it with q.mu held.
func (q *queue) makeFair(old []level) {
	for i := range q.levels {
		q.levels[i].keys = new(turns.Turns[*item])
	}
	move := func(it *item) {
		it.level, it.place = q.levelOf(it.m.Priority), ready
		it.entry = q.levels[it.level].keys.Push(it.m.Key, it.m.Weight, it.seq, it)
	}
	for i := range old {
		slices.SortFunc(old[i].returned, func(x, y *item) int { return cmp.Compare(x.seq, y.seq) })
		for _, it := range old[i].returned {
			move(it)
		}
		for it := range old[i].ring.all() {
			move(it)
		}
	}
}

// bounds returns the bounds of the queue's levels. Call it with q.mu held.
func (q *queue) bounds() []int {
	bounds := make([]int, len(q.levels))
	for i := range q.levels {
		bounds[i] = q.levels[i].bound
	}
	return bounds
}

// Describe implements [broker.Describer]. It waits only for a connection. It takes the queue's
// mutex. Returns ErrNoQueue if the queue does not exist, ErrMalformed for an invalid name. Returns
// ErrUnavailable if ctx ends before a connection exists, ErrClosed after Close.
func (b *Broker) Describe(ctx context.Context, queue string) (broker.Queue, error) {
	q, err := b.lookup(ctx, queue)
	if err != nil {
		return broker.Queue{}, err
	}
	defer q.unlock()
	d := broker.Queue{Name: q.name, Levels: q.bounds(), Fair: q.fair}
	if len(d.Levels) == 1 && d.Levels[0] == 0 {
		d.Levels = nil
	}
	return d, nil
}
