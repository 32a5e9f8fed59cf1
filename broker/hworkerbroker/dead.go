package hworkerbroker

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/swarmiji/swarmiji/broker"
)

// The failed jobs are the dead letters. The broken ones are not: what nobody can read is no message, see [Broker.Broken].

// PutDead implements [broker.DeadLetterer]. The layout keeps payloads and nothing else: the reason
// is only logged, and the stack, the attempts and the time are not kept. Of the newest letters
// [Config].FailedSize are kept.
func (b *Broker) PutDead(ctx context.Context, queue string, d broker.Dead) error {
	k, err := keysOf(queue)
	if err != nil {
		return err
	}
	if d.Message == nil {
		return fmt.Errorf("hworker dead letter: %w: no message", broker.ErrMalformed)
	}
	payload, err := encode(d.Message)
	if err != nil {
		return err
	}
	if _, err := b.number(ctx, "fail", b.scripts.fail, []string{k.failed}, payload, fmt.Sprint(b.cfg.FailedSize)); err != nil {
		return err
	}
	b.logFailure(k.queue, d.Message.ID, d.Reason)
	return nil
}

func (b *Broker) logFailure(queue, id, reason string) {
	b.log(slog.LevelError, queue, fmt.Sprintf("Failure: %.1000s", reason), slog.String("task_id", id))
}

// dropChunk is how many letters one call removes.
const dropChunk = 100

// ScanDead implements [broker.DeadLetterer]. A letter has no reason, no stack, no attempts and no
// time. What cannot be read is left out.
func (b *Broker) ScanDead(ctx context.Context, queue string, fn func(*broker.Dead) broker.DeadAction) error {
	k, err := keysOf(queue)
	if err != nil {
		return err
	}
	list, err := b.show(ctx, queue, "failed")
	if err != nil {
		return err
	}
	var gone []any
	drop := func() error {
		if len(gone) == 0 {
			return nil
		}
		_, err := b.number(ctx, "drop the failed", b.scripts.drop, []string{k.failed}, gone...)
		gone = nil
		return err
	}
	for _, payload := range slices.Backward(list) { // new ones come in at the left
		if err := context.Cause(ctx); err != nil {
			return err
		}
		m, err := decode(payload)
		if err != nil {
			continue
		}
		action := fn(&broker.Dead{Message: m, Queue: queue})
		if action == broker.DeadStop {
			break
		}
		if action == broker.DeadRemove {
			if gone = append(gone, payload); len(gone) == dropChunk {
				if err := drop(); err != nil {
					return err
				}
			}
		}
	}
	return drop()
}

// PurgeDead implements [broker.DeadLetterer].
func (b *Broker) PurgeDead(ctx context.Context, queue string) (int, error) {
	k, err := keysOf(queue)
	if err != nil {
		return 0, err
	}
	return b.number(ctx, "purge the failed", b.scripts.purge, []string{k.failed})
}
