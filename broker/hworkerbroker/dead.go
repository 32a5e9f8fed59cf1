package hworkerbroker

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/swarmiji/swarmiji/broker"
)

// The failed and the broken jobs are the dead letters. A broken payload that is no message is shown
// as the body of one without an id; published, it is that payload again.

// PutDead implements [broker.DeadLetterer]. The layout keeps payloads and nothing else: the reason
// is only logged, and the stack, the attempts and the time are not kept. Of the newest failed jobs
// [Config].FailedSize are kept; what is Unreadable goes to the broken ones, all of which are kept.
func (b *Broker) PutDead(ctx context.Context, queue string, d broker.Dead) error {
	k, err := keysOf(queue)
	if err != nil {
		return err
	}
	if d.Message == nil {
		return fmt.Errorf("hworker dead letter: %w: no message", broker.ErrMalformed)
	}
	payload, err := encode(d.Message, "")
	if err != nil {
		return err
	}
	_, key, size := b.grave(k, d)
	if _, err := b.number(ctx, "dead letter", b.scripts.fail, []string{key}, payload, size); err != nil {
		return err
	}
	b.logFailure(k.queue, d.Message.ID, d)
	return nil
}

// grave returns where a dead letter goes: the word of settle.lua, the key, and how many letters the
// key keeps; "": all.
func (b *Broker) grave(k keys, d broker.Dead) (how, key, size string) {
	if d.Unreadable {
		return "broken", k.broken, ""
	}
	return "failed", k.failed, fmt.Sprint(b.cfg.FailedSize)
}

// logFailure writes what hworker's worker writes of a job that failed or is broken.
func (b *Broker) logFailure(queue, id string, d broker.Dead) {
	reason := fmt.Sprintf("%.1000s", d.Reason)
	if d.Unreadable {
		b.logBroken(queue, id, reason)
		return
	}
	if d.Stack != "" {
		reason = "Exception raised: " + reason
	}
	b.log(slog.LevelError, queue, "Failure: "+reason, slog.String("task_id", id))
}

func (b *Broker) logBroken(queue, id, reason string) {
	b.log(slog.LevelError, queue, "job cannot be read and goes to the broken ones", slog.String("task_id", id), slog.String("error", reason))
}

// ScanDead implements [broker.DeadLetterer]. The failed jobs come first, then the broken ones. A
// letter has no reason, no stack and no attempts; only a broken one has a time.
func (b *Broker) ScanDead(ctx context.Context, queue string, fn func(*broker.Dead) broker.DeadAction) error {
	k, err := keysOf(queue)
	if err != nil {
		return err
	}
	failed, err := b.show(ctx, queue, "failed")
	if err != nil {
		return err
	}
	broken, err := b.Broken(ctx, queue)
	if err != nil {
		return err
	}
	letters := make([]Noted, 0, len(failed))
	for _, payload := range slices.Backward(failed) { // new ones come in at the left
		letters = append(letters, Noted{Payload: payload})
	}
	if stop, err := b.scan(ctx, k, "failed", letters, fn); stop || err != nil {
		return err
	}
	_, err = b.scan(ctx, k, "broken", broken, fn)
	return err
}

// dropChunk is how many letters one call removes.
const dropChunk = 100

// scan shows the letters of one key to fn, and reports whether fn wants no more.
func (b *Broker) scan(ctx context.Context, k keys, which string, letters []Noted, fn func(*broker.Dead) broker.DeadAction) (stop bool, err error) {
	key := k.failed
	if which == "broken" {
		key = k.broken
	}
	gone := []any{which}
	drop := func() error {
		if len(gone) == 1 {
			return nil
		}
		_, err := b.number(ctx, "drop the "+which, b.scripts.drop, []string{key}, gone...)
		gone = []any{which}
		return err
	}
	for _, l := range letters {
		if err := context.Cause(ctx); err != nil {
			return false, err
		}
		m, err := decode(l.Payload)
		if err != nil {
			m = &broker.Message{ContentType: contentPayload, Priority: middle, Body: []byte(l.Payload)}
		}
		switch fn(&broker.Dead{Message: m, Queue: k.queue, At: l.At}) {
		case broker.DeadStop:
			return true, drop()
		case broker.DeadRemove:
			if gone = append(gone, l.Payload); len(gone) > dropChunk {
				if err := drop(); err != nil {
					return false, err
				}
			}
		}
	}
	return false, drop()
}

// PurgeDead implements [broker.DeadLetterer].
func (b *Broker) PurgeDead(ctx context.Context, queue string) (int, error) {
	k, err := keysOf(queue)
	if err != nil {
		return 0, err
	}
	return b.number(ctx, "purge the dead letters", b.scripts.purge, []string{k.failed, k.broken})
}
