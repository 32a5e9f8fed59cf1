package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// enqueue submits n tasks without a consumer.
func enqueue(ctx context.Context, cfg *config) (report Report, err error) {
	c, err := dial(ctx, cfg)
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, finish(ctx, c)) }()
	if err := warmUp(ctx, c); err != nil {
		return Report{}, err
	}
	m := newMeter(cfg.N)
	m.start()
	if err := submitN(ctx, cfg, c, m.record); err != nil {
		return Report{}, err
	}
	report = m.stop(cfg.N)
	return report, awaitLeft(ctx, c, cfg.N+1)
}

// warmUp declares the queue and sends one task, so that no connection is opened in the timed part.
func warmUp(ctx context.Context, c client) error {
	if err := c.declare(ctx); err != nil {
		return err
	}
	return c.submit(ctx)
}

// submitN submits the tasks with the configured concurrency. It calls record with the time of each
// Submit.
func submitN(ctx context.Context, cfg *config, c client, record func(time.Duration)) error {
	if cfg.Concurrency == 1 {
		return c.submitAll(ctx, cfg.N)
	}
	var (
		wg   sync.WaitGroup
		next atomic.Int64
		errs = make([]error, cfg.Concurrency)
	)
	for i := range cfg.Concurrency {
		wg.Go(func() {
			for next.Add(1) <= int64(cfg.N) && errs[i] == nil {
				begin := time.Now()
				errs[i] = c.submit(ctx)
				record(time.Since(begin))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// patience limits the wait for a queue to reach the expected length.
const patience = 10 * time.Second

// awaitLeft waits until the queue has the expected length. That shows that no task was lost or left
// over.
func awaitLeft(ctx context.Context, c client, want int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	last := -1 // not known
	var lastErr error
	for {
		n, err := c.left(ctx)
		switch {
		case err == nil && n == want:
			return nil
		case err == nil:
			last = n
		case ctx.Err() == nil:
			lastErr = err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%d tasks are in the queue where %d should be: %w", last, want, errors.Join(ctx.Err(), lastErr))
		}
	}
}

// finish removes the queue and closes the client. A remaining queue does not make the figures
// doubtful.
func finish(ctx context.Context, c client) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	err := c.close(ctx)
	if rerr := c.remove(ctx); rerr != nil {
		fmt.Fprintln(os.Stderr, "bench: the queue stays on the server:", rerr)
	}
	return err
}
