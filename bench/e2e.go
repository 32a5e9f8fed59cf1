package main

import (
	"context"
	"errors"
	"sync/atomic"
)

// endToEnd submits and consumes n tasks at the same time.
func endToEnd(ctx context.Context, cfg *config) (report Report, err error) {
	c, err := dial(ctx, cfg)
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, finish(ctx, c)) }()
	if err := c.declare(ctx); err != nil {
		return Report{}, err
	}
	var (
		taken     atomic.Int64
		lost      int
		m         = newMeter(cfg.N)
		warm      = make(chan struct{})
		done      = make(chan struct{})
		submitted = make(chan error, 1)
	)
	submitting, abort := context.WithCancel(ctx)
	defer abort()
	go func() { submitted <- submitWhenWarm(submitting, cfg, c, m, warm) }()
	err = serveUntil(ctx, c, done, func(argument []byte) {
		switch n := taken.Add(1); {
		case n == 1:
			close(warm)
			return // the latency of the first task includes the start
		case n == int64(cfg.N)+1:
			m.record(age(argument))
			finish := func() {
				report = m.stop(cfg.N)
				report.Lost = lost
				close(done)
			}
			if !cfg.Events {
				finish()
				return
			}
			go func() { // not on the worker, which still has events to send
				lost = awaitEvents(ctx, c, cfg.N+1)
				finish()
			}()
		default:
			m.record(age(argument))
		}
	})
	abort()
	if err := errors.Join(err, <-submitted); err != nil {
		return Report{}, err
	}
	return report, awaitLeft(ctx, c, 0)
}

// submitWhenWarm sends one task first, and the others when that one has been consumed.
func submitWhenWarm(ctx context.Context, cfg *config, c client, m *meter, warm <-chan struct{}) error {
	if err := c.submit(ctx); err != nil {
		return err
	}
	select {
	case <-warm:
	case <-ctx.Done():
		return errors.New("the first task did not come through")
	}
	m.start()
	return submitN(ctx, cfg, c, discard)
}
