package main

import (
	"context"
	"errors"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/open"
	_ "github.com/swarmiji/swarmiji/open/postgres"
	_ "github.com/swarmiji/swarmiji/open/redis"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/task"
)

var work = task.New[[]byte, struct{}]("peers.work", task.WithIgnoreResult(true))

type swarmijiSide struct {
	swarm    *open.Swarm
	producer *producer.Producer
}

func dialSwarmiji(ctx context.Context, url string) (side, error) {
	s, err := open.Open(ctx, url, open.Options{})
	if err != nil {
		return nil, err
	}
	p, err := producer.New(producer.Config{Broker: s.Broker, Router: router.Static(queue)})
	if err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	return &swarmijiSide{s, p}, broker.Declare(ctx, s.Broker, broker.Queue{Name: queue})
}

func (s *swarmijiSide) submit(ctx context.Context) error {
	_, err := work.Submit(ctx, s.producer, make([]byte, arguments))
	return err
}

func (s *swarmijiSide) submitMany(ctx context.Context, n int) error {
	calls := make([]task.Call, 0, min(n, 10_000))
	for i := 0; i < n; i += len(calls) {
		calls = calls[:0]
		for range min(n-i, cap(calls)) {
			calls = append(calls, work.Call(make([]byte, arguments)))
		}
		if _, err := s.producer.SubmitAll(ctx, calls); err != nil {
			return err
		}
	}
	return nil
}

func (s *swarmijiSide) serve(ctx context.Context, seen func()) error {
	c, err := consumer.New(consumer.Config{
		Broker: s.swarm.Broker, ShutdownTimeout: 10 * time.Second,
		Logger: quiet(), Revocations: revoke.NewLocal(quiet()),
		Queues: map[string]consumer.QueueConfig{queue: {Workers: workers, Prefetch: 512}},
	})
	if err != nil {
		return err
	}
	err = work.Handle(c, func(context.Context, []byte) (struct{}, error) {
		seen()
		return struct{}{}, nil
	})
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

func (s *swarmijiSide) clear(ctx context.Context) error {
	var err error
	if i, ok := capability.As[broker.Inspector](s.swarm.Broker); ok {
		_, err = i.Purge(ctx, queue)
	}
	return errors.Join(err, s.producer.Close(ctx), s.swarm.Close(ctx))
}

// workers is the number of handlers that run at once, on each side but River's.
const workers = 64
