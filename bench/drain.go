package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
)

// drain consumes n tasks that wait in the queue.
func drain(ctx context.Context, cfg *config) (report Report, err error) {
	c, err := dial(ctx, cfg)
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, finish(ctx, c)) }()
	if err := c.declare(ctx); err != nil {
		return Report{}, err
	}
	empty, err := preload(ctx, cfg, c)
	if err != nil {
		return Report{}, fmt.Errorf("preload: %w", err)
	}
	defer func() { err = errors.Join(err, empty()) }()
	if err := awaitLeft(ctx, c, cfg.N); err != nil {
		return Report{}, err
	}
	report, err = consumeAll(ctx, cfg, c)
	if err != nil {
		return Report{}, err
	}
	return report, awaitLeft(ctx, c, 0)
}

// consumeAll measures from the first task to the last, so starting and stopping do not count for
// either side.
func consumeAll(ctx context.Context, cfg *config, c client) (Report, error) {
	m := newMeter(0)
	var (
		taken  atomic.Int64
		report Report
		done   = make(chan struct{})
	)
	err := serveUntil(ctx, c, done, func([]byte) {
		switch taken.Add(1) {
		case 1:
			m.start()
		case int64(cfg.N):
			report = m.stop(cfg.N - 1)
			close(done)
		}
	})
	if n := taken.Load(); err == nil && n != int64(cfg.N) {
		err = fmt.Errorf("%d tasks were run, %d queued", n, cfg.N)
	}
	report.N = cfg.N
	return report, err
}

// serveUntil serves until done is closed.
func serveUntil(ctx context.Context, c client, done <-chan struct{}, seen func([]byte)) error {
	serving, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- c.serve(serving, seen) }()
	select {
	case <-done:
	case err := <-ended:
		return errors.Join(errors.New("the consumer stopped early"), err, ctx.Err())
	}
	stop()
	return <-ended
}
