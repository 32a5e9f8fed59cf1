package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
)

// ready is the number of due tasks that are enqueued and drained, first without delayed tasks and
// then with all of them waiting.
const ready = 50_000

// far is the delay of the delayed tasks.
const far = 12 * time.Hour

// delayed measures how n delayed tasks affect others: the enqueue rate of due tasks before and
// after, the enqueue rates of the first and the last delayed tasks, and a consumer beside them.
func delayed(ctx context.Context, cfg *config) (report Report, err error) {
	dialled, err := dial(ctx, cfg)
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, finish(ctx, dialled)) }()
	c, ok := dialled.(*swarm)
	if !ok || cfg.local() {
		return Report{}, errors.New("the workload delayed is Swarmiji's on a server; the bare clients have no delays")
	}
	if err := warmUp(ctx, c); err != nil {
		return Report{}, err
	}
	slow, err := slowCommands(ctx, cfg)
	if err != nil {
		return Report{}, err
	}
	d := &Delayed{}
	var one Report
	if d.Before, one, err = readyOnes(ctx, cfg, c, 1); err != nil {
		return Report{}, err
	}
	d.Drain, d.RSSBefore = one.Rate, one.RSS
	begin := time.Now()
	if d.First, d.Final, err = delayAll(ctx, cfg, c); err != nil {
		return Report{}, err
	}
	took := time.Since(begin)
	if d.After, one, err = readyOnes(ctx, cfg, c, 0); err != nil {
		return Report{}, err
	}
	d.DrainLate, d.RSSAfter, d.Idle = one.Rate, one.RSS, one.CPU
	if err := slow(d); err != nil {
		return Report{}, err
	}
	return Report{N: cfg.N, Seconds: took.Seconds(), Rate: float64(cfg.N) / took.Seconds(), Delayed: d}, nil
}

// readyOnes enqueues due tasks and lets another process drain them. waiting is the number of tasks
// already in the queue.
func readyOnes(ctx context.Context, cfg *config, c *swarm, waiting int) (rate float64, drained Report, err error) {
	m := newMeter(0)
	m.start()
	if err := c.submitAll(ctx, ready); err != nil {
		return 0, Report{}, err
	}
	rate = m.stop(ready).Rate
	if err := awaitLeft(ctx, c, ready+waiting); err != nil {
		return 0, Report{}, err
	}
	if drained, err = watchFrom(ctx, cfg, ready+waiting); err != nil {
		return 0, Report{}, err
	}
	return rate, drained, awaitLeft(ctx, c, 0)
}

// delayAll submits the delayed tasks and returns the rates of the first and the last tenth.
func delayAll(ctx context.Context, cfg *config, c *swarm) (first, last float64, err error) {
	chunk := max(cfg.N/10, 1)
	dues := make([]time.Time, chunk)
	at := time.Now().Add(far)
	for sent := 0; sent < cfg.N; sent += len(dues) {
		dues = dues[:min(chunk, cfg.N-sent)]
		for i := range dues {
			dues[i] = at.Add(time.Duration(sent+i) * time.Millisecond)
		}
		m := newMeter(0)
		m.start()
		if err := c.submitAt(ctx, dues); err != nil {
			return 0, 0, err
		}
		if last = m.stop(len(dues)).Rate; sent == 0 {
			first = last
		}
	}
	i, ok := capability.As[broker.Inspector](c.submits.Broker)
	if !ok {
		return 0, 0, broker.ErrUnsupported
	}
	s, err := i.Stats(ctx, cfg.Queue)
	if err == nil && s.Delayed >= 0 && s.Delayed != cfg.N {
		err = errors.New(strconv.Itoa(s.Delayed) + " tasks are delayed, of " + strconv.Itoa(cfg.N))
	}
	return first, last, err
}

// watch is the workload of the process that drains the due tasks and is then idle.
const watch = "watch"

// watchFrom runs a process with the workload watch and returns its report.
func watchFrom(ctx context.Context, cfg *config, n int) (Report, error) {
	self, err := os.Executable()
	if err != nil {
		return Report{}, err
	}
	one := *cfg
	one.N = n
	cmd := exec.CommandContext(ctx, self, append(one.args(watch), "-concurrency", "256")...) //nolint:gosec // this very program, with flags of its own
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return Report{}, err
	}
	var r Report
	return r, json.Unmarshal(out, &r)
}

// watchQueue drains n tasks and measures the rate. Then it measures the cost of the idle consumer.
func watchQueue(ctx context.Context, cfg *config) (report Report, err error) {
	c, err := dial(ctx, cfg)
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, c.close(context.WithoutCancel(ctx))) }()
	var (
		taken       atomic.Int64
		m           = newMeter(0)
		drained     = make(chan struct{})
		done, rates = make(chan struct{}), Report{}
	)
	go func() {
		defer close(done)
		select {
		case <-drained:
		case <-ctx.Done():
			return
		}
		pass(ctx, idleAfter)
		m.start()
		pass(ctx, cfg.For)
		rates.CPU = m.stop(1).CPU
	}()
	err = serveUntil(ctx, c, done, func([]byte) {
		switch taken.Add(1) {
		case 1:
			m.start()
		case int64(cfg.N):
			rates = m.stop(cfg.N - 1)
			close(drained)
		}
	})
	return rates, err
}
