package endtoend

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// testStuckHoldsNothing: at the limit of stuck handlers a consumer gives back the tasks that it
// fetched and did not start, as after Pause. Otherwise tasks would wait for ever beside an idle
// consumer of their queue (S20).
func testStuckHoldsNothing(t *testing.T, open Open) {
	const n = 2 * consumer.MaxStuck
	r := newRoad(t, open, func(_ *producer.Config, c *consumer.Config) {
		c.Queues[queueName] = consumer.QueueConfig{Workers: 64, Prefetch: 128}
	})
	sub, err := r.broker.Subscribe(r.ctx(), queueName, broker.SubscribeOptions{Prefetch: 1})
	if err != nil {
		t.Fatal(err)
	}
	_, resizes := capability.As[broker.Resizer](sub)
	if err := sub.Close(r.ctx()); err != nil {
		t.Fatal(err)
	}
	if !resizes { // as pushbroker
		t.Skip("a subscription of this broker keeps what it holds until it is closed")
	}
	var stuck, ran atomic.Int64
	release := make(chan struct{})
	defer close(release)
	handle(r, work, func(_ context.Context, i int) (int, error) {
		stuck.Add(1)
		<-release
		return i, nil
	})
	r.start()
	calls := make([]task.Call, n)
	for i := range calls {
		calls[i] = work.Call(i, task.WithTimeLimit(20*time.Millisecond))
	}
	if _, err := r.producer.SubmitAll(r.ctx(), calls); err != nil {
		t.Fatal(err)
	}
	r.eventually("the bound is reached", func() bool {
		return r.consumer.Stats().Stuck >= consumer.MaxStuck && r.consumer.Stats().Active == 0
	})
	r.second(func(c *consumer.Consumer) {
		if err := work.Handle(c, func(_ context.Context, i int) (int, error) {
			ran.Add(1)
			return i, nil
		}); err != nil {
			t.Fatal(err)
		}
	})
	for end := time.Now().Add(r.h.Patience); stuck.Load()+ran.Load() < n; yield() {
		if time.Now().After(end) {
			t.Fatalf("%d tasks are stuck and %d have run elsewhere, of %d; %d are held", stuck.Load(), ran.Load(), n, r.consumer.Stats().Reserved)
		}
	}
}
