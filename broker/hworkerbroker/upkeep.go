package hworkerbroker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// keepUp goes its rounds until Close: it looks after the jobs in this process's hands, and after those of workers that
// died. One goroutine does both for all queues.
func (b *Broker) keepUp() {
	defer close(b.kept)
	pace := time.NewTicker(b.tick())
	defer pace.Stop()
	for {
		select {
		case <-b.life.Done():
			return
		case <-pace.C:
		}
		ctx, cancel := context.WithTimeout(b.life, max(b.tick(), minTimeout))
		for _, d := range b.holding() {
			d.keep(ctx)
		}
		if !b.cfg.NoMonitor {
			for _, k := range b.lookedAfter() {
				_ = b.round(ctx, k) // the next round will do
			}
		}
		cancel()
	}
}

// lookedAfter returns the queues that were subscribed to.
func (b *Broker) lookedAfter() []keys {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Values(b.upkeep))
}

// Monitor takes back the jobs of dead workers until ctx ends, for a program that has no subscription to the queue: those
// have a monitor of their own unless [Config.NoMonitor] says otherwise. There may be any number of monitors. It returns
// ctx's error, [broker.ErrClosed], or an error that waiting does not mend.
func (b *Broker) Monitor(ctx context.Context, queue string) error {
	k, err := keysOf(queue)
	if err != nil {
		return err
	}
	pace := time.NewTicker(b.tick())
	defer pace.Stop()
	for {
		if err := b.round(ctx, k); err != nil && (permanent(err) || errors.Is(err, broker.ErrClosed)) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("hworker monitor: %w", ctx.Err())
		case <-b.life.Done():
			return errClosed
		case <-pace.C:
		}
	}
}

// round is one look at all that is in progress, page by page: the server does nothing else while a script runs.
func (b *Broker) round(ctx context.Context, k keys) error {
	timeout := strconv.FormatInt(b.cfg.Timeout.Microseconds(), 10)
	cursor, back := "0", 0
	for {
		answer, err := b.run(ctx, "monitor", b.scripts.monitor, []string{k.progress, k.jobs}, timeout, cursor)
		if err != nil {
			return err
		}
		page, _ := answer.([]any)
		if len(page) != 2 {
			return fmt.Errorf("hworker monitor: %w", broker.ErrUnsupported)
		}
		cursor, _ = page[0].(string)
		n, _ := page[1].(int64)
		back += int(n)
		if cursor == "0" || cursor == "" {
			break
		}
	}
	if back > 0 {
		b.log(slog.LevelWarn, k.queue, "jobs were in progress for too long and are queued again", slog.Int("jobs", back))
		b.wake(k.queue)
	}
	return nil
}
