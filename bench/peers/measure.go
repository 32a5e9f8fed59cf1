package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const queue = "peers"

// side is a task system as its users use it.
type side interface {
	// submit submits one task.
	submit(ctx context.Context) error
	// submitMany submits n tasks in as few calls as the system has for that.
	submitMany(ctx context.Context, n int) error
	// serve runs tasks until ctx ends and calls seen in the handler of each.
	serve(ctx context.Context, seen func()) error
	// clear empties the queue and closes the connections.
	clear(ctx context.Context) error
}

func dial(ctx context.Context, name, url string) (side, error) {
	switch name {
	case "swarmiji":
		return dialSwarmiji(ctx, url)
	case "river":
		return dialRiver(ctx, url)
	case "asynq":
		return dialAsynq(url)
	}
	return nil, fmt.Errorf("unknown side %q", name)
}

// measure runs one workload with n tasks on an empty queue.
func measure(ctx context.Context, name, load, url string, n int) (r Result, err error) {
	s, err := dial(ctx, name, url)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, s.clear(context.WithoutCancel(ctx))) }()
	if err := s.submit(ctx); err != nil { // connections and statements are ready then
		return Result{}, err
	}
	if err := serveAll(ctx, s, 1, nil); err != nil {
		return Result{}, err
	}
	start := time.Now()
	switch load {
	case "bulk":
		err = s.submitMany(ctx, n)
	case "single":
		for range n {
			if err = s.submit(ctx); err != nil {
				break
			}
		}
	case "parallel":
		err = parallel(ctx, n, 64, s.submit)
	case "drain":
		if err = s.submitMany(ctx, n); err == nil {
			start = time.Now()
			err = serveAll(ctx, s, n, nil)
		}
	case "both":
		err = serveAll(ctx, s, n, func(ctx context.Context) error {
			for i := 0; i < n; i += 1000 {
				if err := s.submitMany(ctx, min(1000, n-i)); err != nil {
					return err
				}
			}
			return nil
		})
	default:
		err = fmt.Errorf("unknown workload %q", load)
	}
	return Result{PerSecond: float64(n) / time.Since(start).Seconds()}, err
}

// quiet returns the logger of all sides.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// serveAll serves until n tasks were run. With submit it submits meanwhile. The time of the
// graceful stop counts, since all tasks are settled only then.
func serveAll(ctx context.Context, s side, n int, submit func(ctx context.Context) error) error {
	g, ctx := errgroup.WithContext(ctx)
	serving, stop := context.WithCancel(ctx)
	var taken atomic.Int64
	g.Go(func() error {
		return s.serve(serving, func() {
			if taken.Add(1) == int64(n) {
				stop()
			}
		})
	})
	if submit != nil {
		g.Go(func() error { return submit(ctx) })
	}
	err := g.Wait()
	stop()
	if got := taken.Load(); err == nil && got != int64(n) {
		err = fmt.Errorf("%d tasks were run, %d submitted", got, n)
	}
	return err
}

// parallel calls f n times from several goroutines.
func parallel(ctx context.Context, n, goroutines int, f func(context.Context) error) error {
	g, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range goroutines {
		g.Go(func() error {
			for next.Add(1) <= int64(n) {
				if err := f(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}
