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

// upkeepLoop renews the held jobs and runs the monitor for all subscribed queues, at each
// checkInterval until Close. It is one goroutine for all queues. With Config.NoMonitor it only
// renews. One check waits for the server for at most a checkInterval (at least minTimeout). Errors
// are ignored, because the next check repeats the work. At its end it closes b.upkeepDone.
func (b *Broker) upkeepLoop() {
	defer close(b.upkeepDone)
	pace := time.NewTicker(b.checkInterval())
	defer pace.Stop()
	for {
		select {
		case <-b.life.Done():
			return
		case <-pace.C:
		}
		ctx, cancel := context.WithTimeout(b.life, max(b.checkInterval(), minTimeout))
		for _, d := range b.heldNewestFirst() {
			d.renewOrCheck(ctx)
		}
		if !b.cfg.NoMonitor {
			for _, k := range b.subscribedQueues() {
				_ = b.requeueExpired(ctx, k) // the next check repeats it
			}
		}
		cancel()
	}
}

// subscribedQueues returns the keys of the queues that were subscribed to. It takes b.mu.
func (b *Broker) subscribedQueues() []keys {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Values(b.upkeep))
}

// Monitor returns the jobs of dead workers to the queue, at each tenth of [Config.Timeout], until
// ctx ends. It is for a program without a subscription to the queue, since a subscription has a
// monitor unless [Config.NoMonitor] is set. Any number of monitors may run.
//
// It returns ctx's error, [broker.ErrClosed], [broker.ErrMalformed] for an invalid name, or an
// error that waiting does not remove: [broker.ErrAccess] or [broker.ErrUnsupported]. Other errors
// are ignored, and the next check repeats the work.
func (b *Broker) Monitor(ctx context.Context, queue string) error {
	k, err := keysOf(queue)
	if err != nil {
		return err
	}
	pace := time.NewTicker(b.checkInterval())
	defer pace.Stop()
	for {
		if err := b.requeueExpired(ctx, k); err != nil && (permanent(err) || errors.Is(err, broker.ErrClosed)) {
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

// requeueExpired checks all jobs in progress of a queue once. It returns jobs that are in progress
// for longer than Config.Timeout to the front of the queue. It works page by page, because the
// server is blocked while a script runs. It logs the number of returned jobs as a warning and wakes
// the subscriptions, for which it takes b.mu. After an error, jobs that were returned before are
// not logged. Returns the errors of runScript, and ErrUnsupported for an answer of another form.
func (b *Broker) requeueExpired(ctx context.Context, k keys) error {
	timeout := strconv.FormatInt(b.cfg.Timeout.Microseconds(), 10)
	cursor, back := "0", 0
	for {
		answer, err := b.runScript(ctx, "monitor", b.scripts.monitor, []string{k.progress, k.jobs}, timeout, cursor)
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
		b.log(slog.LevelWarn, k.queue, "jobs were in progress for longer than the timeout and are queued again", slog.Int("jobs", back))
		b.wakeSubscriptions(k.queue)
	}
	return nil
}
