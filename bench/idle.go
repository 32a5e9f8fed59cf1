package main

import (
	"context"
	"errors"
	"time"
)

// idleAfter is the time that a consumer gets before the measurement: its polls become slow.
const idleAfter = 2 * time.Second

// idle measures the cost of a consumer without tasks, and that of a PostgreSQL server on this
// machine. It first sends one task, to be sure that the consumer consumes.
func idle(ctx context.Context, cfg *config) (report Report, err error) {
	c, err := dial(ctx, cfg)
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, finish(ctx, c)) }()
	begin := time.Now()
	if err := warmUp(ctx, c); err != nil {
		return Report{}, err
	}
	server, err := localServer(ctx, cfg)
	if err != nil {
		return Report{}, err
	}
	begun := time.Now()
	var opened time.Time
	done, warm := make(chan struct{}), make(chan struct{})
	m := newMeter(0)
	go func() {
		defer close(done)
		select {
		case <-warm:
		case <-ctx.Done():
			return
		}
		pass(ctx, idleAfter)
		before := server.cpuTime()
		m.start()
		pass(ctx, cfg.For)
		report = m.stop(1)
		report.Server = 100 * (server.cpuTime() - before).Seconds() / report.Seconds
		report.N, report.Rate, report.AllocsPerTask = 0, 0, 0
		report.Declaring, report.Opening = milliseconds(begun.Sub(begin)), milliseconds(opened.Sub(begun))
	}()
	err = serveUntil(ctx, c, done, func([]byte) {
		opened = time.Now()
		close(warm)
	})
	return report, err
}

func pass(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
