package roadtest

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
)

// testSeverKeepsTask: where a lease outlives the connection, cuts in the middle of a task are no reason to run it again: it
// goes on, its lease is renewed and it is settled through the next connection. A task that was on its way to the consumer when
// the connection was cut is its own, too, without its knowledge: it comes again when the lease is over.
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
		want(r, submit(r, work, 0), 0) // the consumer is back
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
