package membroker

import (
	"context"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// letter is a dead letter of a queue. Its address identifies it.
type letter struct{ broker.Dead }

// PutDead implements [broker.DeadLetterer]. It creates the queue if it does not exist, and drops
// the oldest letters above the limits. It waits only for a connection. It takes the queue's mutex,
// and before that the Server's to create the queue.
//
// Returns ErrMalformed if the message or the queue name is not valid, ErrTooLarge if the message is
// too large. Returns ErrUnavailable if ctx ends before a connection exists, ErrClosed after Close.
func (b *Broker) PutDead(ctx context.Context, queue string, d broker.Dead) error {
	if err := b.s.check(d.Message); err != nil {
		return err
	}
	if err := checkName(queue); err != nil {
		return err
	}
	if err := b.ready(ctx); err != nil {
		return err
	}
	q, err := b.s.ensure(queue)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.unlock()
	q.putDead(d.Message, d)
	return nil
}

// putDead adds the message m as a dead letter with the reason, stack, time and attempts of d,
// normalized. Then it drops the letters beyond the limits. d.Message and d.Queue are ignored. Call
// it with q.mu held.
func (q *queue) putDead(m *broker.Message, d broker.Dead) {
	d = d.Normalized()
	d.Message, d.Queue = m, q.name
	q.dead = append(q.dead, &letter{d})
	q.trimDead()
}

// trimDead drops the oldest letters: those above the maximum number, then those whose At is older
// than the retention. It stops at the first younger letter. It counts the dropped letters in
// q.deadDropped. Call it with q.mu held.
func (q *queue) trimDead() {
	n := 0
	if q.s.deadMax > 0 {
		n = max(0, len(q.dead)-q.s.deadMax)
	}
	if q.s.deadTTL > 0 {
		for oldest := time.Now().Add(-q.s.deadTTL); n < len(q.dead) && q.dead[n].At.Before(oldest); {
			n++
		}
	}
	q.dropOldest(n)
	q.deadDropped += n
}

// dropOldest removes the first n letters. Call it with q.mu held.
func (q *queue) dropOldest(n int) {
	clear(q.dead[:n])
	q.dead = q.dead[n:]
}

// ScanDead implements [broker.DeadLetterer]. It first drops the letters beyond the limits, then
// shows those that exist at that time, oldest first. A letter for which fn returns DeadRemove is
// removed before the next is shown. A letter that another call has removed meanwhile may still be
// shown. It takes the queue's mutex, but holds none during fn.
//
// Before each letter it waits for a connection. Returns nil after the last letter and when fn
// returns DeadStop. Returns ErrNoQueue if the queue does not exist, ErrMalformed for an invalid
// name, and ErrClosed after Close. Returns ErrUnavailable if ctx ends during such a wait, otherwise
// ctx's cause.
func (b *Broker) ScanDead(ctx context.Context, queue string, fn func(*broker.Dead) broker.DeadAction) error {
	q, err := b.lookup(ctx, queue)
	if err != nil {
		return err
	}
	q.trimDead()
	letters := slices.Clone(q.dead)
	q.unlock()
	return b.scan(ctx, q, letters, fn)
}

// ScanDeadID implements [broker.DeadFinder]. It is ScanDead for the letters whose message has the
// id. It compares the ids of all letters.
func (b *Broker) ScanDeadID(ctx context.Context, queue, id string, fn func(*broker.Dead) broker.DeadAction) error {
	q, err := b.lookup(ctx, queue)
	if err != nil {
		return err
	}
	q.trimDead()
	var letters []*letter
	for _, l := range q.dead {
		if l.Message.ID == id {
			letters = append(letters, l)
		}
	}
	q.unlock()
	return b.scan(ctx, q, letters, fn)
}

// scan calls fn with a copy of each of the letters, in order. It removes a letter from q if fn
// returns DeadRemove, before the next call. Before each letter it waits for a connection. It takes
// q.mu for each removal, and holds no mutex during fn.
//
// Returns nil after the last letter and when fn returns DeadStop. Returns ErrUnavailable if ctx
// ends during such a wait, otherwise ctx's cause. Returns ErrClosed after Close.
func (b *Broker) scan(ctx context.Context, q *queue, letters []*letter, fn func(*broker.Dead) broker.DeadAction) error {
	for _, l := range letters {
		if err := b.ready(ctx); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		d := l.Dead
		switch fn(&d) {
		case broker.DeadRemove:
			q.mu.Lock()
			if i := slices.Index(q.dead, l); i == 0 {
				q.dropOldest(1)
			} else if i > 0 {
				q.dead = slices.Delete(q.dead, i, i+1)
			}
			q.unlock()
		case broker.DeadStop:
			return nil
		}
	}
	return nil
}

// PurgeDead implements [broker.DeadLetterer]. It removes all dead letters of the queue and returns
// their number. It waits only for a connection. It takes the queue's mutex. Returns ErrNoQueue if
// the queue does not exist, ErrMalformed for an invalid name. Returns ErrUnavailable if ctx ends
// before a connection exists, ErrClosed after Close.
func (b *Broker) PurgeDead(ctx context.Context, queue string) (int, error) {
	q, err := b.lookup(ctx, queue)
	if err != nil {
		return 0, err
	}
	defer q.unlock()
	n := len(q.dead)
	q.dead = nil
	return n, nil
}
