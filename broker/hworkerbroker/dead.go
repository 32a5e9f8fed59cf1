package hworkerbroker

import (
	"context"

	"github.com/swarmiji/swarmiji/broker"
)

// The failed jobs are the dead letters. The broken ones are not: what nobody can read is no message, see [Broker.Broken].

// ListDead implements [broker.DeadLetterer]. The layout keeps payloads and nothing else: there is no reason and no time.
// What cannot be read is left out.
func (b *Broker) ListDead(ctx context.Context, queue string, n int) ([]broker.Dead, error) {
	_, dead, err := b.oldestDead(ctx, queue, n)
	return dead, err
}

// oldestDead returns up to n payloads and what they hold, the oldest first: new ones come in at the left.
func (b *Broker) oldestDead(ctx context.Context, queue string, n int) (payloads []string, dead []broker.Dead, err error) {
	list, err := b.show(ctx, queue, "failed")
	for i := len(list) - 1; i >= 0 && len(dead) < n; i-- {
		if m, err := decode(list[i]); err == nil {
			payloads = append(payloads, list[i])
			dead = append(dead, broker.Dead{Message: m, Queue: queue})
		}
	}
	return payloads, dead, err
}

// RequeueDead implements [broker.DeadLetterer]. What cannot be read stays.
func (b *Broker) RequeueDead(ctx context.Context, queue string, n int) (int, error) {
	payloads, dead, err := b.oldestDead(ctx, queue, n)
	if err != nil {
		return 0, err
	}
	k, _ := keysOf(queue) // it was looked at
	count := 0
	for i, p := range payloads {
		dead[i].Message.Generation++
		next, err := encode(dead[i].Message)
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
