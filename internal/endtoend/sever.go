package endtoend

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
)

// testSeverKeepsTask: if a lease outlives the connection, cuts in the middle of a task do not make
// it run again. The task continues, its lease is renewed, and the next connection settles it.
//
// A task that was in transit to the consumer at the cut also belongs to the consumer, which does
// not know it. That task is redelivered when its lease ends.
func testSeverKeepsTask(t *testing.T, open Open) {
	var side broker.Broker
	r := newRoad(t, open, func(_ *producer.Config, c *consumer.Config) {
		side = c.Broker
		c.Queues[queueName] = consumer.QueueConfig{Workers: 4, Lease: 2 * time.Second}
	})
	if r.h.Sever == nil || !r.h.KeepsHeld {
		t.Skip("the broker takes back what was held when connections are cut")
	}
	var runs, lost atomic.Int64
	started, release := make(chan struct{}, 100), make(chan struct{})
	handle(r, work, func(ctx context.Context, i int) (int, error) {
		if i == 0 {
			return 0, nil
		}
		runs.Add(1)
		started <- struct{}{}
		select {
		case <-release:
		case <-ctx.Done():
			lost.Add(1)
		}
		return i, nil
	})
	r.start()
	f := submit(r, work, 40)
	<-started
	for range 4 {
		r.h.Sever(t, side)
		want(r, submit(r, work, 0), 0) // the consumer is connected again
	}
	close(release)
	want(r, f, 40)
	if err := r.running.stop(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	if runs.Load() != 1 || lost.Load() != 0 {
		t.Fatalf("the task ran %d times, %d of them without its lease", runs.Load(), lost.Load())
	}
}
