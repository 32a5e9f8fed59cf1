package hworkerbroker

import (
	"context"

	"github.com/swarmiji/swarmiji/broker"
)

// The failed jobs are the dead letters. The broken ones are not: what nobody can read is no message, see [Broker.Broken].

// ListDead implements [broker.DeadLetterer]. The layout keeps payloads and nothing else: there is no reason and no time.
// What cannot be read is left out.
func (b *Broker) ListDead(ctx context.Context, queue string, n int) ([]broker.Dead, error) {
	payloads, err := b.oldestDead(ctx, queue, n)
	if err != nil {
		return nil, err
	}
	var dead []broker.Dead
	for _, p := range payloads {
		m, _ := decode(p) // oldestDead has left out what fails
		dead = append(dead, broker.Dead{Message: m, Queue: queue})
	}
	return dead, nil
}

// oldestDead returns up to n payloads, the oldest first: new ones come in at the left.
func (b *Broker) oldestDead(ctx context.Context, queue string, n int) ([]string, error) {
	list, err := b.show(ctx, queue, "failed")
	if err != nil {
		return nil, err
	}
	var oldest []string
	for i := len(list) - 1; i >= 0 && len(oldest) < n; i-- {
		if _, err := decode(list[i]); err == nil {
			oldest = append(oldest, list[i])
		}
	}
	return oldest, nil
}

// RequeueDead implements [broker.DeadLetterer]. What cannot be read stays.
func (b *Broker) RequeueDead(ctx context.Context, queue string, n int) (int, error) {
	payloads, err := b.oldestDead(ctx, queue, n)
	if err != nil {
		return 0, err
	}
	k, _ := keysOf(queue) // it was looked at
	count := 0
	for _, p := range payloads {
		m, _ := decode(p)
		m.Generation++
		next, err := encode(m)
		if err != nil {
			return count, err
		}
		moved, err := b.number(ctx, "requeue", b.scripts.revive, []string{k.failed, k.jobs}, p, next)
		if err != nil {
			return count, err
		}
		count += moved
	}
	if count > 0 {
		b.wake(queue)
	}
	return count, nil
}

// PurgeDead implements [broker.DeadLetterer].
func (b *Broker) PurgeDead(ctx context.Context, queue string) (int, error) {
	k, err := keysOf(queue)
	if err != nil {
		return 0, err
	}
	return b.number(ctx, "purge the failed", b.scripts.purge, []string{k.failed})
}
