package pushbroker

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// ListDead implements [broker.DeadLetterer].
func (n *Node) ListDead(_ context.Context, queue string, max int) ([]broker.Dead, error) {
	q, err := n.lock(queue)
	if err != nil {
		return nil, fmt.Errorf("pushbroker: dead letters of %.64q: %w", queue, err)
	}
	defer n.hub.mu.Unlock()
	list := slices.Clone(q.dead[:clamp(max, len(q.dead))])
	for i := range list {
		list[i].Queue = queue
	}
	return list, nil
}

// RequeueDead implements [broker.DeadLetterer].
func (n *Node) RequeueDead(_ context.Context, queue string, max int) (int, error) {
	q, err := n.lock(queue)
	if err != nil {
		return 0, fmt.Errorf("pushbroker: dead letters of %.64q: %w", queue, err)
	}
	defer n.hub.mu.Unlock()
	count := clamp(max, len(q.dead))
	for _, d := range q.dead[:count] {
		m := *d.Message
		m.Generation++
		q.add(&item{queue: q, message: &m}, time.Time{})
	}
	q.dead = q.dead[count:]
	return count, nil
}

// PurgeDead implements [broker.DeadLetterer].
func (n *Node) PurgeDead(_ context.Context, queue string) (int, error) {
	q, err := n.lock(queue)
	if err != nil {
		return 0, fmt.Errorf("pushbroker: dead letters of %.64q: %w", queue, err)
	}
	defer n.hub.mu.Unlock()
	count := len(q.dead)
	q.dead = nil
	return count, nil
}

// clamp returns n, at least 0 and at most limit.
func clamp(n, limit int) int { return max(0, min(n, limit)) }
