package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	metrics "github.com/rcrowley/go-metrics"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/middleware/gometrics"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/task"
)

// work returns the task to measure. Its result is its argument.
func work(cfg *config) task.Task[[]byte, []byte] {
	return task.New[[]byte, []byte]("bench.work", task.WithIgnoreResult(!cfg.Results))
}

// swarm is the client that uses Swarmiji as its users do: a producer and a consumer, each with its
// own connections.
type swarm struct {
	cfg      *config
	task     task.Task[[]byte, []byte]
	submits  *open.Swarm
	runs     *open.Swarm // the same as submits if no server is between them
	producer *producer.Producer
	sends    events.EventBus // of the producer and the listener; nil: no events
	tells    events.EventBus // of the consumer
	ends     []func(context.Context) error
	listener *listener
	metrics  *middleware.Metrics // nil: no metrics
}

func dialSwarm(ctx context.Context, cfg *config) (client, error) {
	c := &swarm{cfg: cfg, task: work(cfg)}
	var err error
	if c.submits, err = open.Open(ctx, cfg.namespaced(), open.Options{Logger: logger()}); err != nil {
		return nil, err
	}
	if c.runs = c.submits; !cfg.local() {
		if c.runs, err = open.Open(ctx, cfg.namespaced(), open.Options{Logger: logger()}); err != nil {
			return nil, errors.Join(err, c.submits.Close(ctx))
		}
	}
	if cfg.Events {
		if err := c.openBuses(); err != nil {
			return nil, errors.Join(err, c.close(ctx))
		}
	}
	if c.listens() {
		if c.listener, err = listen(ctx, c.sends); err != nil {
			return nil, errors.Join(err, c.close(ctx))
		}
	}
	if cfg.Metrics {
		registry := metrics.NewRegistry()
		c.metrics = gometrics.NewMetrics(registry)
		go read(ctx, registry)
	}
	pc := producer.Config{
		Broker: c.submits.Broker, Router: router.Static(cfg.Queue), Timeout: cfg.Timeout, Logger: logger(), Metrics: c.metrics,
	}
	if cfg.Results {
		pc.Results = c.submits.Results
	}
	if cfg.Events {
		pc.Events = c.sends
	}
	if c.producer, err = producer.New(pc); err != nil {
		return nil, errors.Join(err, c.close(ctx))
	}
	return c, nil
}

// logger logs only warnings and errors, which may explain a strange figure.
func logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// listens reports whether this process receives the events. With drain that is the process that
// fills the queue, unless only one process can reach the broker.
func (c *swarm) listens() bool {
	return c.cfg.Events && (c.cfg.Workload != "drain" || c.cfg.local())
}

func (c *swarm) openBuses() error {
	bus, end, err := roomy(c.cfg, c.submits)
	if err != nil {
		return err
	}
	c.sends, c.tells, c.ends = bus, bus, append(c.ends, end)
	if c.runs == c.submits {
		return nil
	}
	if c.tells, end, err = roomy(c.cfg, c.runs); err == nil {
		c.ends = append(c.ends, end)
	}
	return err
}

func (c *swarm) declare(ctx context.Context) error {
	var qs []broker.Queue
	for _, name := range c.cfg.names(max(c.cfg.Queues, c.cfg.Declared)) {
		qs = append(qs, broker.Queue{Name: name})
	}
	return broker.Declare(ctx, c.submits.Broker, qs...)
}

func (c *swarm) submit(ctx context.Context) error {
	_, err := c.task.Submit(ctx, c.producer, stamped(c.cfg.Payload))
	return err
}

// atOnce is the number of tasks in one SubmitAll.
const atOnce = 10_000

func (c *swarm) submitAll(ctx context.Context, n int) error {
	return c.submitEach(ctx, n, func(int) task.Call { return c.task.Call(stamped(c.cfg.Payload)) })
}

func (c *swarm) submitAt(ctx context.Context, due []time.Time) error {
	return c.submitEach(ctx, len(due), func(i int) task.Call {
		return c.task.Call(stampedAt(due[i], c.cfg.Payload), task.WithNotBefore(due[i]))
	})
}

// submitEach submits n calls in batches of atOnce.
func (c *swarm) submitEach(ctx context.Context, n int, call func(i int) task.Call) error {
	calls := make([]task.Call, 0, min(n, atOnce))
	for i := 0; i < n; i += len(calls) {
		calls = calls[:0]
		for j := range min(n-i, atOnce) {
			calls = append(calls, call(i+j))
		}
		if _, err := c.producer.SubmitAll(ctx, calls); err != nil {
			return err
		}
	}
	return nil
}

func (c *swarm) call(ctx context.Context) error {
	f, err := c.task.Submit(ctx, c.producer, stamped(c.cfg.Payload))
	if err != nil {
		return err
	}
	b, err := f.Get(ctx)
	if err == nil && len(b) != c.cfg.Payload {
		err = fmt.Errorf("a result of %d bytes came back where %d went out", len(b), c.cfg.Payload)
	}
	return err
}

func (c *swarm) serve(ctx context.Context, seen func([]byte)) error {
	queues := make(map[string]consumer.QueueConfig, c.cfg.Queues)
	for _, name := range c.cfg.names(c.cfg.Queues) {
		queues[name] = consumer.QueueConfig{Workers: c.cfg.Workers, Prefetch: max(c.cfg.Prefetch, 0)}
	}
	cc := consumer.Config{
		Broker: c.runs.Broker,
		Queues: queues,
		Logger: logger(), ShutdownTimeout: 10 * time.Second, Metrics: c.metrics,
	}
	if c.cfg.Results {
		cc.Results = c.runs.Results
	}
	if c.cfg.Events {
		cc.Events = c.tells
	}
	runner, err := consumer.New(cc)
	if err != nil {
		return err
	}
	err = c.task.Handle(runner, func(_ context.Context, b []byte) ([]byte, error) {
		seen(b)
		return b, nil
	})
	if err != nil {
		return err
	}
	return runner.Run(ctx)
}

func (c *swarm) left(ctx context.Context) (int, error) {
	i, ok := capability.As[broker.Inspector](c.submits.Broker)
	if !ok {
		return 0, broker.ErrUnsupported
	}
	s, err := i.Stats(ctx, c.cfg.Queue)
	return s.Ready + max(s.Held, 0), err
}

func (c *swarm) remove(ctx context.Context) error {
	var names []string
	for _, name := range c.cfg.names(max(c.cfg.Queues, c.cfg.Declared)) {
		_, queue := broker.Locate(c.submits.Broker, name)
		names = append(names, queue, queue+".suspects")
	}
	return removeAll(ctx, c.cfg, names...)
}

func (c *swarm) close(ctx context.Context) error {
	var errs []error
	if c.producer != nil {
		errs = append(errs, c.producer.Close(ctx))
	}
	if c.listener != nil {
		errs = append(errs, c.listener.sub.Close(ctx))
	}
	for _, end := range c.ends {
		errs = append(errs, end(ctx))
	}
	errs = append(errs, c.submits.Close(ctx))
	if c.runs != nil && c.runs != c.submits {
		errs = append(errs, c.runs.Close(ctx))
	}
	return errors.Join(errs...)
}

// read reads all metrics every 500 ms until ctx ends, as an exporter does less often.
func read(ctx context.Context, registry metrics.Registry) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			registry.GetAll()
		case <-ctx.Done():
			return
		}
	}
}

// locate declares the queue as Swarmiji does and returns its name on the server.
func locate(ctx context.Context, cfg *config) (string, error) {
	s, err := open.Open(ctx, cfg.namespaced(), open.Options{Logger: logger()})
	if err != nil {
		return "", err
	}
	_, queue := broker.Locate(s.Broker, cfg.Queue)
	return queue, errors.Join(broker.Declare(ctx, s.Broker, broker.Queue{Name: cfg.Queue}), s.Close(ctx))
}

// bodySize returns the length of a task's message in bytes.
func bodySize(ctx context.Context, cfg *config) (int, error) {
	b := membroker.New()
	p, err := producer.New(producer.Config{Broker: b, Router: router.Static(cfg.Queue)})
	if err != nil {
		return 0, err
	}
	if _, err := work(cfg).Submit(ctx, p, stamped(cfg.Payload)); err != nil {
		return 0, err
	}
	sub, err := b.Subscribe(ctx, cfg.Queue, broker.SubscribeOptions{})
	if err != nil {
		return 0, err
	}
	d, err := sub.Receive(ctx)
	if err != nil {
		return 0, err
	}
	n := len(d.Message().Body)
	return n, errors.Join(d.Ack(ctx), p.Close(ctx), b.Close(ctx))
}
