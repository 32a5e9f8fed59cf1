package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/task"
)

// lateReport is the line that late prints.
type lateReport struct {
	Broker    string  `json:"broker"`
	N         int     `json:"n"`
	Heavy     int     `json:"heavy"`
	Light     int     `json:"light"`
	Producers int     `json:"producers"`
	Consumers int     `json:"consumers"`
	Loaded    float64 `json:"loaded_s"` // the time in which the backlog was queued
	Rate      float64 `json:"rate"`     // tasks in a second while light tasks were submitted
	Left      int64   `json:"left"`     // heavy tasks that still waited at the end
	Count     int     `json:"light_tasks"`
	P50       float64 `json:"late_ms_p50"`
	P99       float64 `json:"late_ms_p99"`
	Max       float64 `json:"late_ms_max"`
	Passed50  int64   `json:"passed_p50"` // tasks that started between Submit's return and the start
	Passed99  int64   `json:"passed_p99"`
	PassedMax int64   `json:"passed_max"`
	Load      string  `json:"load"`
}

// logger logs only warnings and errors.
func logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// connections opens a swarm for each call. In memory all share one.
type connections struct {
	url    string
	shared *open.Swarm
	opened []*open.Swarm
}

func (c *connections) open(ctx context.Context) (*open.Swarm, error) {
	if c.shared != nil {
		return c.shared, nil
	}
	s, err := open.Open(ctx, c.url, open.Options{Logger: logger(), Namespace: "fair"})
	if err != nil {
		return nil, err
	}
	c.opened = append(c.opened, s)
	if strings.HasPrefix(c.url, "mem:") {
		c.shared = s
	}
	return s, nil
}

func (c *connections) close(ctx context.Context) error {
	var errs []error
	for _, s := range c.opened {
		errs = append(errs, s.Close(context.WithoutCancel(ctx)))
	}
	return errors.Join(errs...)
}

// turn is the task of late. Its argument is the number of a light task, or -1 for a heavy one.
var turn = task.New[int, task.None]("fair.turn", task.WithIgnoreResult(true))

const lateQueue = "fair-late"

// lateRun is one run of late.
type lateRun struct {
	cfg       *config
	started   atomic.Int64
	ran       atomic.Int64
	producers []*producer.Producer

	mu     sync.Mutex
	sent   map[int]*lightTask
	late   []time.Duration
	passed []int64
	arrive chan struct{} // has an element for each light task that has started
}

// lightTask is a light task that was submitted.
type lightTask struct {
	at        time.Time
	confirmed int64 // the tasks that had started then; -1: not confirmed yet
}

func late(ctx context.Context, cfg *config) (err error) {
	c := &connections{url: cfg.broker}
	r := &lateRun{cfg: cfg, sent: make(map[int]*lightTask), arrive: make(chan struct{}, 1_000_000)}
	defer func() {
		for _, p := range r.producers {
			err = errors.Join(err, p.Close(context.WithoutCancel(ctx)))
		}
		err = errors.Join(err, c.close(ctx))
	}()
	before := load()
	for range cfg.producers {
		s, err := c.open(ctx)
		if err != nil {
			return err
		}
		p, err := producer.New(producer.Config{
			Broker: s.Broker, Router: router.Static(lateQueue), Queues: []broker.Queue{{Name: lateQueue, Fair: true}}, Timeout: time.Minute, Logger: logger(),
		})
		if err != nil {
			return err
		}
		r.producers = append(r.producers, p)
	}
	begun := time.Now()
	if err := r.queueAll(ctx); err != nil {
		return err
	}
	report := lateReport{
		N: cfg.n, Heavy: cfg.heavy, Light: cfg.light, Producers: cfg.producers, Consumers: cfg.consumers, Loaded: time.Since(begun).Seconds(),
	}
	report.Broker, _, _ = strings.Cut(cfg.broker, ":")
	stop, err := r.consume(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	begun = time.Now()
	ran := r.ran.Load()
	n, err := r.submitLight(ctx)
	if err != nil {
		return err
	}
	report.Rate = float64(r.ran.Load()-ran) / time.Since(begun).Seconds()
	timeout := time.After(2 * time.Minute)
	for i := range n {
		select {
		case <-r.arrive:
		case <-timeout:
			return fmt.Errorf("%d of %d light tasks have not started", n-i, n)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	r.mu.Lock()
	report.Count, report.Left = n, int64(cfg.n+n)-r.ran.Load()
	report.P50, report.P99, report.Max = ms(part(r.late, 0.5)), ms(part(r.late, 0.99)), ms(part(r.late, 1))
	report.Passed50, report.Passed99, report.PassedMax = part(r.passed, 0.5), part(r.passed, 0.99), part(r.passed, 1)
	r.mu.Unlock()
	report.Load = before + " to " + load()
	if report.Left <= 0 {
		return errors.New("no heavy task was left: -n is too small")
	}
	return printed(report)
}

// queueAll queues the heavy tasks, by all producers at once.
func (r *lateRun) queueAll(ctx context.Context) error {
	const atOnce = 5000
	var all sync.WaitGroup
	errs := make([]error, len(r.producers))
	for i, p := range r.producers {
		all.Go(func() {
			for at := i * atOnce; at < r.cfg.n && errs[i] == nil; at += len(r.producers) * atOnce {
				calls := make([]task.Call, min(atOnce, r.cfg.n-at))
				for j := range calls {
					calls[j] = turn.Call(-1, task.WithFairnessKey(fmt.Sprint("heavy ", (at+j)%r.cfg.heavy)))
				}
				_, errs[i] = p.SubmitAll(ctx, calls)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// consume starts the consumers and waits until they have run some tasks. stop ends them.
func (r *lateRun) consume(ctx context.Context, c *connections) (stop func() error, err error) {
	running, end := context.WithCancel(ctx)
	errs := make(chan error, r.cfg.consumers)
	for range r.cfg.consumers {
		s, err := c.open(ctx)
		if err != nil {
			end()
			return nil, err
		}
		one, err := consumer.New(consumer.Config{
			Broker: s.Broker, Queues: map[string]consumer.QueueConfig{lateQueue: {Fair: true}}, Revocations: revoke.NewLocal(logger()), Logger: logger(),
			ShutdownTimeout: 10 * time.Second,
		})
		if err == nil {
			err = turn.Handle(one, r.run)
		}
		if err != nil {
			end()
			return nil, err
		}
		go func() { errs <- one.Run(running) }()
	}
	stop = func() error {
		end()
		var all []error
		for range r.cfg.consumers {
			all = append(all, <-errs)
		}
		return errors.Join(all...)
	}
	for r.ran.Load() < 500 {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), stop())
		}
	}
	return stop, nil
}

// run is the handler.
func (r *lateRun) run(_ context.Context, number int) (task.None, error) {
	begun, before := time.Now(), r.started.Add(1)-1
	if number >= 0 {
		r.mu.Lock()
		sent := r.sent[number]
		r.late = append(r.late, begun.Sub(sent.at))
		passed := int64(0)
		if sent.confirmed >= 0 { // otherwise the task is faster than the answer of Submit
			passed = before - sent.confirmed
		}
		r.passed = append(r.passed, passed)
		r.mu.Unlock()
		r.arrive <- struct{}{}
	}
	time.Sleep(r.cfg.lasts)
	r.ran.Add(1)
	return task.None{}, nil
}

// submitLight submits light tasks by random producers, and returns their number.
func (r *lateRun) submitLight(ctx context.Context) (n int, err error) {
	random := rand.New(rand.NewPCG(1, 2))
	for begun := time.Now(); time.Since(begun) < r.cfg.long; n++ {
		select {
		case <-time.After(time.Duration(random.ExpFloat64() * float64(50*time.Millisecond))):
		case <-ctx.Done():
			return n, ctx.Err()
		}
		sent := &lightTask{time.Now(), -1}
		r.mu.Lock()
		r.sent[n] = sent
		r.mu.Unlock()
		p := r.producers[random.IntN(len(r.producers))]
		if _, err := turn.Submit(ctx, p, n, task.WithFairnessKey(fmt.Sprint("light ", random.IntN(r.cfg.light)))); err != nil {
			return n, err
		}
		r.mu.Lock()
		sent.confirmed = r.started.Load()
		r.mu.Unlock()
	}
	return n, nil
}
