package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// The number of single tasks of the workload due, and the gap between them, so that none waits for
// another.
const (
	singles    = 200
	singlesGap = 25 * time.Millisecond
)

// delayer is a client that can submit delayed tasks.
type delayer interface {
	client
	// submitAt sends one task for each time in due, pipelined. The task is due at that time and
	// carries it as its stamp.
	submitAt(ctx context.Context, due []time.Time) error
}

// due measures how late delayed tasks start: n tasks due in the same second, then single tasks. It
// returns an error if a task starts early.
func due(ctx context.Context, cfg *config) (report Report, err error) {
	dialled, err := dial(ctx, cfg)
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, finish(ctx, dialled)) }()
	c, ok := dialled.(delayer)
	if !ok {
		return Report{}, errors.New("the bare clients have no delays")
	}
	if err := c.declare(ctx); err != nil {
		return Report{}, err
	}
	var (
		l    = newLateness()
		done = make(chan struct{})
		end  = make(chan error, 1)
	)
	submitting, abort := context.WithCancel(ctx)
	defer abort()
	go func() {
		defer close(done)
		end <- func() (err error) {
			if report, err = l.together(submitting, c, cfg.N); err != nil {
				return err
			}
			return l.apart(submitting, c, &report)
		}()
	}()
	err = serveUntil(ctx, c, done, l.seen)
	abort()
	return report, errors.Join(err, <-end)
}

// lateness records how late tasks start.
type lateness struct {
	mu    sync.Mutex
	m     *meter // of the present round
	most  time.Duration
	least time.Duration
	left  atomic.Int64
	all   chan struct{} // closed when all tasks of the round have started
}

func newLateness() *lateness { return &lateness{m: newMeter(0)} }

// begin prepares for a round of n tasks.
func (l *lateness) begin(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.m, l.most, l.least, l.all = newMeter(n), 0, time.Hour, make(chan struct{})
	l.left.Store(int64(n))
}

// seen records the start of a task.
func (l *lateness) seen(argument []byte) {
	late := age(argument)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.m.record(late)
	l.most, l.least = max(l.most, late), min(l.least, late)
	if l.left.Add(-1) == 0 {
		close(l.all)
	}
}

// end waits until all tasks of the round have started.
func (l *lateness) end(ctx context.Context) error {
	select {
	case <-l.all:
	case <-ctx.Done():
		return fmt.Errorf("%d tasks have not started: %w", l.left.Load(), ctx.Err())
	}
	if l.least < 0 {
		return fmt.Errorf("a task started %v before its time", -l.least)
	}
	return nil
}

// together submits n tasks for the same second. It measures from that second until the last task
// has started.
func (l *lateness) together(ctx context.Context, c delayer, n int) (Report, error) {
	l.begin(n)
	at := time.Now().Add(6*time.Second + time.Duration(n)*400*time.Microsecond).Truncate(time.Second)
	dues := make([]time.Time, n)
	for i := range dues {
		dues[i] = at
	}
	if err := c.submitAt(ctx, dues); err != nil {
		return Report{}, err
	}
	if spare := time.Until(at); spare < time.Second {
		return Report{}, fmt.Errorf("submitting took too long: the tasks are due in %v", spare)
	}
	if err := l.end(ctx); err != nil {
		return Report{}, err
	}
	return Report{N: n, Last: milliseconds(l.most), Seconds: l.most.Seconds(), Rate: float64(n) / l.most.Seconds()}, nil
}

// apart submits single tasks and adds their lateness to the report.
func (l *lateness) apart(ctx context.Context, c delayer, r *Report) error {
	l.begin(singles)
	// brokers do not store finer times
	at := time.Now().Add(2 * time.Second).Truncate(time.Millisecond)
	dues := make([]time.Time, singles)
	for i := range dues {
		dues[i] = at.Add(time.Duration(i) * singlesGap)
	}
	if err := c.submitAt(ctx, dues); err != nil {
		return err
	}
	if err := l.end(ctx); err != nil {
		return err
	}
	one := l.m.stop(singles)
	r.P50, r.P99, r.Max = one.P50, one.P99, milliseconds(l.most)
	return nil
}
