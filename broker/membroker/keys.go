package membroker

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// ListKeys implements [broker.KeyLister]. Oldest is exact. Its time grows with the number of all
// keys of the queue. It waits only for a connection. It takes the queue's mutex.
//
// Returns ErrNoQueue if the queue does not exist, ErrMalformed for an invalid name and for a queue
// that is not fair. Returns ErrUnavailable if ctx ends before a connection exists, ErrClosed after
// Close.
func (b *Broker) ListKeys(ctx context.Context, queue, cursor string, limit int) (broker.KeyPage, error) {
	q, err := b.lookup(ctx, queue)
	if err != nil {
		return broker.KeyPage{}, err
	}
	defer q.unlock()
	if !q.fair {
		return broker.KeyPage{}, fmt.Errorf("membroker: %w", broker.NotFair(queue, "keys"))
	}
	states := q.keyStates(cursor)
	var p broker.KeyPage
	if q.load != nil {
		p.Used = q.load.all.used
	}
	names := slices.Sorted(maps.Keys(states))
	if limit = min(cmp.Or(max(limit, 0), broker.DefaultPage), broker.MaxPage); len(names) > limit {
		names, p.Next = names[:limit], names[limit]
	}
	for _, name := range names {
		p.Keys = append(p.Keys, *states[name])
	}
	return p, nil
}

// keyStates returns the states of all keys from a key on, by key. Call it with q.mu held.
func (q *queue) keyStates(from string) map[string]*broker.KeyState {
	states := make(map[string]*broker.KeyState)
	of := func(key string) *broker.KeyState {
		s := states[key]
		if s == nil {
			s = &broker.KeyState{Key: key}
			if q.load == nil {
				s.Held = -1
			}
			states[key] = s
		}
		return s
	}
	for i := range q.levels {
		for key, n := range q.levels[i].keys.Counts() {
			if key >= from {
				of(key).Ready += n
			}
		}
		for it := range q.levels[i].keys.Fronts() {
			if it.m.Key < from {
				continue
			}
			s, since := of(it.m.Key), time.Unix(0, it.since)
			if s.Oldest.IsZero() || since.Before(s.Oldest) {
				s.Oldest = since
			}
		}
	}
	if q.load != nil {
		for key, k := range q.load.keys {
			if key >= from {
				of(key).Held, of(key).Used = k.held, k.used
			}
		}
	}
	return states
}
