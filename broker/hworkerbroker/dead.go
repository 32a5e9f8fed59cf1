package hworkerbroker

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/swarmiji/swarmiji/broker"
)

// The failed and the broken jobs are the dead letters. A broken payload is shown as the body of a
// message without an id. If that message is published, its payload is the same again.

// PutDead implements [broker.DeadLetterer]. The layout stores only payloads: the reason is logged,
// and the stack, the attempts and the time are lost. Failed jobs are limited to
// [Config].FailedSize, the newest ones. Unreadable letters go to the broken jobs, which have no
// limit.
//
// It waits for the server. Returns ErrMalformed for a queue name that is not valid, a missing
// message, or one that cannot be encoded. After an error of the server nothing is logged. After
// ErrIndeterminate the letter may be stored, and a repeated call may store it twice.
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
	_, key, size := b.deadTarget(k, d)
	if _, err := b.runInt(ctx, "dead letter", b.scripts.fail, []string{key}, payload, size); err != nil {
		return err
	}
	b.logFailure(k.queue, d.Message.ID, d)
	return nil
}

// deadTarget returns where the dead letter d is stored: the operation of settle.lua, the key, and
// the limit of letters under the key as text, "" for no limit.
func (b *Broker) deadTarget(k keys, d broker.Dead) (how, key, size string) {
	if d.Unreadable {
		return "broken", k.broken, ""
	}
	return "failed", k.failed, fmt.Sprint(b.cfg.FailedSize)
}

// logFailure logs, at error level, a job that failed or is broken, with the text of hworker's
// worker. The reason is cut to 1,000 bytes.
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

// logBroken logs, at error level, a job of the queue that cannot be read, with the reason.
func (b *Broker) logBroken(queue, id, reason string) {
	b.log(slog.LevelError, queue, "the job cannot be read and goes to the broken jobs", slog.String("task_id", id), slog.String("error", reason))
}

// ScanDead implements [broker.DeadLetterer]. It first reads all letters into memory. It calls fn
// with the failed jobs first, then the broken ones, each from the oldest on. A letter has no
// reason, no stack and no attempts. Only a broken one has a time. Letters are removed up to 100 at
// a time, after fn has seen them.
//
// It waits for the server and returns its errors. Returns nil after the last letter and when fn
// returns DeadStop. Returns ErrMalformed for a queue name that is not valid. If ctx ends between
// two letters it returns ctx's cause, and up to 100 letters that fn has removed stay.
func (b *Broker) ScanDead(ctx context.Context, queue string, fn func(*broker.Dead) broker.DeadAction) error {
	k, err := keysOf(queue)
	if err != nil {
		return err
	}
	failed, err := b.readKey(ctx, queue, "failed")
	if err != nil {
		return err
	}
	broken, err := b.Broken(ctx, queue)
	if err != nil {
		return err
	}
	letters := make([]Noted, 0, len(failed))
	for _, payload := range slices.Backward(failed) { // new jobs are added at the left
		letters = append(letters, Noted{Payload: payload})
	}
	if stop, err := b.scan(ctx, k, "failed", letters, fn); stop || err != nil {
		return err
	}
	_, err = b.scan(ctx, k, "broken", broken, fn)
	return err
}

// dropChunk is the number of letters that one call removes.
const dropChunk = 100

// scan calls fn with the letters of one key, "failed" or "broken", and removes those for which fn
// returns DeadRemove. It removes them in groups of dropChunk, and the rest at the end. It reports
// whether fn returned DeadStop.
//
// It waits for the server and stops at the first error of a removal. If ctx ends it returns ctx's
// cause, and up to dropChunk letters that fn has removed stay.
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
		_, err := b.runInt(ctx, "drop the "+which, b.scripts.drop, []string{key}, gone...)
		gone = []any{which}
		return err
	}
	for _, l := range letters {
		if err := context.Cause(ctx); err != nil {
			return false, err
		}
		switch fn(&broker.Dead{Message: shown(l.Payload), Queue: k.queue, At: l.At}) {
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

// PurgeDead implements [broker.DeadLetterer]. It removes the failed and the broken jobs and returns
// their number. It waits for the server. Returns ErrMalformed for a queue name that is not valid,
// and the errors of Stats. After ErrIndeterminate they may be removed.
func (b *Broker) PurgeDead(ctx context.Context, queue string) (int, error) {
	k, err := keysOf(queue)
	if err != nil {
		return 0, err
	}
	return b.runInt(ctx, "purge the dead letters", b.scripts.purge, []string{k.failed, k.broken})
}
