package membroker

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// Queues implements [broker.QueueLister]. It waits only for a connection. Returns ErrUnavailable if
// ctx ends before a connection exists, ErrClosed after Close.
func (b *Broker) Queues(ctx context.Context) ([]string, error) {
	if err := b.ready(ctx); err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(*b.s.queues.Load())), nil
}

// List implements [broker.Lister]. It shows every place, and passes over the messages before the
// page. Held messages have no time. It waits only for a connection. It takes the queue's mutex; for
// held messages also the Server's and those of the Brokers.
//
// Returns ErrMalformed for an invalid name, place or cursor, ErrNoQueue if the queue does not
// exist. Returns ErrUnavailable if ctx ends before a connection exists, ErrClosed after Close.
func (b *Broker) List(ctx context.Context, queue string, lq broker.ListQuery) (broker.Page, error) {
	lq, err := lq.Check()
	if err != nil {
		return broker.Page{}, err
	}
	skip, err := broker.Offset(lq.Cursor)
	if err != nil {
		return broker.Page{}, err
	}
	q, err := b.lookup(ctx, queue)
	if err != nil {
		return broker.Page{}, err
	}
	var all []broker.Listed
	switch lq.Place {
	case broker.PlaceWaiting:
		all = q.listWaiting(skip + lq.Limit + 1)
		q.unlock()
	case broker.PlaceDelayed:
		all = q.listDelayed()
		q.unlock()
		slices.SortStableFunc(all, func(x, y broker.Listed) int { return x.At.Compare(y.At) })
	case broker.PlaceDead:
		q.trimDead()
		for _, l := range q.dead[min(skip, len(q.dead)):min(skip+lq.Limit+1, len(q.dead))] {
			all = append(all, broker.ListedDead(l.Dead))
		}
		q.unlock()
		return page(all, skip, 0, lq.Limit), nil
	case broker.PlaceHeld:
		q.unlock() // the Server's mutex comes before it
		all = b.s.listHeld(q)
	}
	return page(all, skip, skip, lq.Limit), nil
}

// page returns the part of all that begins at index from, up to limit messages, as a page. If all
// has more messages, its Next is skip + limit. skip is the number of messages of the queue before
// the page.
func page(all []broker.Listed, skip, from, limit int) broker.Page {
	var p broker.Page
	all = all[min(from, len(all)):]
	if len(all) > limit {
		all, p.Next = all[:limit], strconv.Itoa(skip+limit)
	}
	p.Messages = slices.Clone(all)
	return p
}

// listWaiting returns the first n ready messages, in the order of their delivery. Call it with q.mu
// held.
func (q *queue) listWaiting(n int) (all []broker.Listed) {
	add := func(it *item) bool {
		all = append(all, broker.Listed{Message: it.m, At: time.Unix(0, it.since)})
		return len(all) < n
	}
	for i := range q.levels {
		l := &q.levels[i]
		if q.fair {
			for it := range l.keys.All() {
				if !add(it) {
					return all
				}
			}
			continue
		}
		returned := slices.SortedFunc(slices.Values(l.returned), func(x, y *item) int { return cmp.Compare(x.seq, y.seq) })
		for _, it := range returned {
			if !add(it) {
				return all
			}
		}
		for it := range l.ring.all() {
			if !add(it) {
				return all
			}
		}
	}
	return all
}

// listDelayed returns the delayed messages, in no order. Call it with q.mu held. It takes the
// clock's mutex.
func (q *queue) listDelayed() (all []broker.Listed) {
	c := &q.s.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, it := range c.items {
		if it.q == q {
			all = append(all, broker.Listed{Message: it.m, At: it.due})
		}
	}
	return all
}

// listHeld returns the messages of q that consumers hold, in the order of their arrival. It takes
// s.mu, the mutexes of the Brokers, and q.mu.
func (s *Server) listHeld(q *queue) []broker.Listed {
	type heldMessage struct {
		seq uint64
		m   *broker.Message
	}
	var held []heldMessage
	s.eachHeld(q, func(d *delivery) { held = append(held, heldMessage{d.item.seq, d.m}) })
	slices.SortFunc(held, func(x, y heldMessage) int { return cmp.Compare(x.seq, y.seq) })
	all := make([]broker.Listed, len(held))
	for i, h := range held {
		all[i].Message = h.m
	}
	return all
}

// eachHeld calls fn with the deliveries of q that are not settled, with q.mu held. It takes s.mu,
// the mutexes of the Brokers, and q.mu.
func (s *Server) eachHeld(q *queue, fn func(*delivery)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for b := range s.conns {
		b.mu.Lock()
		for sub := range b.subs {
			if sub.q != q {
				continue
			}
			q.mu.Lock()
			for d := sub.held.head; d != nil; d = d.link.next {
				fn(d)
			}
			q.unlock()
		}
		b.mu.Unlock()
	}
}
