package membroker

import (
	"context"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// ListDead implements [broker.DeadLetterer]. The messages belong to the broker: the caller must not change them.
func (b *Broker) ListDead(ctx context.Context, queue string, n int) ([]broker.Dead, error) {
	q, err := b.lookup(ctx, queue)
	if err != nil {
		return nil, err
	}
	defer q.unlock()
	return slices.Clone(q.dead[:clamp(n, len(q.dead))]), nil
}

// RequeueDead implements [broker.DeadLetterer]. A letter whose next Generation the queue has already is counted, and is
// no second message.
func (b *Broker) RequeueDead(ctx context.Context, queue string, n int) (int, error) {
	q, err := b.lookup(ctx, queue)
	if err != nil {
		return 0, err
	}
	defer q.unlock()
	n = clamp(n, len(q.dead))
	for _, d := range q.dead[:n] {
		m := *d.Message
		m.Generation++
		q.put(&m, time.Time{})
	}
	q.dead = slices.Delete(q.dead, 0, n)
	q.dispatch()
	return n, nil
}

// PurgeDead implements [broker.DeadLetterer].
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

func clamp(n, most int) int { return min(max(n, 0), most) }
