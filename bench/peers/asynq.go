package main

import (
	"context"
	"errors"

	"github.com/hibiken/asynq"
)

type asynqSide struct {
	redis  asynq.RedisConnOpt
	client *asynq.Client
}

func dialAsynq(url string) (side, error) {
	opt, err := asynq.ParseRedisURI(url)
	if err != nil {
		return nil, err
	}
	return &asynqSide{opt, asynq.NewClient(opt)}, nil
}

func (s *asynqSide) submit(ctx context.Context) error {
	_, err := s.client.EnqueueContext(ctx, asynq.NewTask("peers.work", make([]byte, arguments)), asynq.Queue(queue))
	return err
}

// submitMany submits from 64 goroutines: asynq has no call for several tasks.
func (s *asynqSide) submitMany(ctx context.Context, n int) error {
	return parallel(ctx, n, 64, s.submit)
}

func (s *asynqSide) serve(ctx context.Context, seen func()) error {
	server := asynq.NewServer(s.redis, asynq.Config{
		Concurrency: workers, Queues: map[string]int{queue: 1}, LogLevel: asynq.FatalLevel,
	})
	err := server.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		seen()
		return nil
	}))
	if err != nil {
		return err
	}
	<-ctx.Done()
	server.Shutdown()
	return nil
}

func (s *asynqSide) clear(context.Context) error {
	i := asynq.NewInspector(s.redis)
	err := i.DeleteQueue(queue, true)
	return errors.Join(err, i.Close(), s.client.Close())
}
