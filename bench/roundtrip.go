package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// roundTrip measures callers that submit a task, wait for its result, and repeat.
func roundTrip(ctx context.Context, cfg *config) (report Report, err error) {
	c, err := dial(ctx, cfg)
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, finish(ctx, c)) }()
	if err := c.declare(ctx); err != nil {
		return Report{}, err
	}
	done := make(chan struct{})
	var called error
	go func() {
		defer close(done)
		report, called = callN(ctx, cfg, c)
	}()
	err = serveUntil(ctx, c, done, func([]byte) {})
	return report, errors.Join(err, called)
}

// callN makes one call in advance, then n timed calls.
func callN(ctx context.Context, cfg *config, c client) (Report, error) {
	if err := c.call(ctx); err != nil {
		return Report{}, err
	}
	var (
		wg   sync.WaitGroup
		next atomic.Int64
		errs = make([]error, cfg.Concurrency)
		m    = newMeter(cfg.N)
	)
	m.start()
	for i := range cfg.Concurrency {
		wg.Go(func() {
			for next.Add(1) <= int64(cfg.N) && errs[i] == nil {
				begin := time.Now()
				errs[i] = c.call(ctx)
				m.record(time.Since(begin))
			}
		})
	}
	wg.Wait()
	return m.stop(cfg.N), errors.Join(errs...)
}

func discard(time.Duration) {}
