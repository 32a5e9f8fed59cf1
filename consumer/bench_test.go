package consumer_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// BenchmarkRoad measures a task from the producer through the memory broker to its settlement:
// encode, queue, receive, decode, run, settle.
func BenchmarkRoad(b *testing.B) {
	server := membroker.NewServer(membroker.Config{})
	type args struct{ A, B int }
	add := task.New[args, int]("add", task.WithIgnoreResult(true))
	var done atomic.Int64
	all := make(chan struct{})
	c, err := consumer.New(consumer.Config{Broker: server.Connect(), Queues: map[string]consumer.QueueConfig{"default": {Workers: 2, Prefetch: 256}}})
	if err != nil {
		b.Fatal(err)
	}
	if err := add.Handle(c, func(_ context.Context, p args) (int, error) {
		if done.Add(1) == int64(b.N) {
			close(all)
		}
		return p.A + p.B, nil
	}); err != nil {
		b.Fatal(err)
	}
	p, err := producer.New(producer.Config{Broker: server.Connect()})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	running, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := c.Run(running); err != nil {
			b.Error(err)
		}
	})
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if _, err := add.Submit(ctx, p, args{1, 2}); err != nil {
			b.Fatal(err)
		}
	}
	select {
	case <-all:
	case <-ctx.Done():
		b.Fatal("the tasks did not all run")
	}
	b.StopTimer()
	stop()
	wg.Wait()
}
