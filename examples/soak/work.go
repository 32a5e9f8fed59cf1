package main

import (
	"context"
	"errors"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"os"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/internal/graphs"
	"github.com/swarmiji/swarmiji/internal/ledger"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/task"
)

// nothing is the argument and the result of the tasks: they need only their id.
type nothing struct{}

// work and exit return the tasks of a soak run.
func (s *settings) work() task.Task[nothing, nothing] { return s.define("soak.work") }
func (s *settings) exit() task.Task[nothing, nothing] { return s.define("soak.exit") }

func (s *settings) define(name string) task.Task[nothing, nothing] {
	return task.New[nothing, nothing](name, task.WithIdempotent(!s.atMostOnce), task.WithIgnoreResult(!s.results))
}

// connect opens the broker. It does not wait until the broker is available.
func (s *settings) connect(ctx context.Context, log *slog.Logger) (*open.Swarm, error) {
	if s.memory {
		return open.Open(ctx, "mem://", open.Options{Logger: log})
	}
	return open.Open(ctx, s.urls, open.Options{Name: s.id, Logger: log, Results: s.store})
}

// runConsumer consumes until a signal arrives.
func runConsumer(ctx context.Context, s *settings, log *slog.Logger) (err error) {
	swarm, err := s.connect(ctx, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeWithin(swarm.Close)) }()
	c, end, err := newConsumer(s, swarm, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	return consumer.RunUntilSignal(ctx, c)
}

// newConsumer makes a consumer that records its events in the ledger. end closes the ledger.
func newConsumer(s *settings, swarm *open.Swarm, log *slog.Logger) (c *consumer.Consumer, end func() error, err error) {
	book, err := ledger.Create(s.ledger, s.id)
	if err != nil {
		return nil, nil, err
	}
	cfg := consumer.Config{
		Broker: swarm.Broker, Logger: log, ShutdownTimeout: s.grace,
		Tuning: consumer.Tuning{MaxCrashes: s.crashes, AbsentAfter: s.absent, StoreRetry: s.insist},
		Queues: map[string]consumer.QueueConfig{s.queue: {Workers: s.concurrency, Prefetch: s.prefetch, Lease: s.lease}},
	}
	if s.results {
		cfg.Results = swarm.Results
	}
	if s.atMostOnce {
		cfg.Admit = []middleware.Admit{func(_ context.Context, r *task.Request) (func(), error) {
			return nil, book.Write(ledger.Taken, string(r.ID))
		}}
	}
	c, err = consumer.New(cfg)
	if err == nil {
		err = errors.Join(
			s.work().Handle(c, func(ctx context.Context, _ nothing) (nothing, error) { return nothing{}, s.perform(ctx, book) }),
			s.exit().Handle(c, func(ctx context.Context, _ nothing) (nothing, error) { return nothing{}, crash(ctx, book) }),
			graphs.Handle(c, func(ctx context.Context) error { return s.perform(ctx, book) }))
	}
	if err != nil {
		return nil, nil, errors.Join(err, book.Close())
	}
	return c, book.Close, nil
}

// perform is the handler of soak.work and of the steps of workflows. For a step, the id in the
// ledger begins with the correlation, which identifies the workflow.
func (s *settings) perform(ctx context.Context, book *ledger.Writer) error {
	r, _ := task.FromContext(ctx)
	id := string(r.ID)
	if r.Correlation != "" {
		id = r.Correlation + "/" + id
	}
	if err := book.Write(ledger.Started, id); err != nil {
		return err
	}
	if d := s.duration(r.ID); d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return book.Write(ledger.Finished, id)
}

// duration returns the run time of a task. It is the same at each start.
func (s *settings) duration(id task.ID) time.Duration {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id)) // a hash never returns an error
	share := rand.New(rand.NewPCG(s.seed, h.Sum64())).Float64()
	return time.Duration((0.5 + share) * float64(s.taskTime))
}

// crashed is the exit status of a process that was killed because of its memory use.
const crashed = 137

// crash is the handler of soak.exit. It records the start and ends the process.
func crash(ctx context.Context, book *ledger.Writer) error {
	r, _ := task.FromContext(ctx)
	if err := book.Write(ledger.Started, string(r.ID)); err != nil {
		return err
	}
	os.Exit(crashed)
	return nil
}

// closeTime limits the time to close everything at the end.
const closeTime = 10 * time.Second

func closeWithin(closer func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	return closer(ctx)
}
