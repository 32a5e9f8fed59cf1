package pushbroker

import (
	"context"
	"fmt"
	"slices"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/task"
)

// PutDead implements [broker.DeadLetterer].
func (n *Node) PutDead(_ context.Context, queue string, d broker.Dead) error {
	if err := check(d.Message); err != nil {
		return err
	}
	if task.CheckName(queue) != nil {
		return fmt.Errorf("pushbroker: queue name: %w", broker.ErrMalformed)
	}
	n.hub.mu.Lock()
	defer n.hub.mu.Unlock()
	if n.closed {
		return fmt.Errorf("pushbroker: %w", broker.ErrClosed)
	}
	n.hub.ensure(queue).deadLetter(d.Message, d)
	return nil
}

// deadLetter adds a dead letter, and removes the oldest if the queue has too many. Call it with the
// hub's mutex held.
func (q *queue) deadLetter(m *broker.Message, d broker.Dead) {
	d = d.Normalized()
	d.Message = m
	q.dead = append(q.dead, &d)
	q.dead = q.dead[max(0, len(q.dead)-broker.DefaultDeadMax):]
}

// ScanDead implements [broker.DeadLetterer].
func (n *Node) ScanDead(ctx context.Context, queue string, fn func(*broker.Dead) broker.DeadAction) error {
	q, err := n.lock(queue)
	if err != nil {
		return fmt.Errorf("pushbroker: dead letters of %.64q: %w", queue, err)
	}
	letters := slices.Clone(q.dead)
	n.hub.mu.Unlock()
	for _, d := range letters {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		shown := *d
		shown.Queue = queue
		switch fn(&shown) {
		case broker.DeadRemove:
			n.hub.mu.Lock()
			q.dead = slices.DeleteFunc(q.dead, func(other *broker.Dead) bool { return other == d })
			n.hub.mu.Unlock()
		case broker.DeadStop:
			return nil
		}
	}
	return nil
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
