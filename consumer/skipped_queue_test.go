package consumer_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
)

// crowded is a broker that allows no consumer for one queue.
type crowded struct {
	*membroker.Broker
	full string
}

func (b crowded) Subscribe(ctx context.Context, queue string, o broker.SubscribeOptions) (broker.Subscription, error) {
	if queue == b.full {
		return nil, broker.ErrTooMany
	}
	return b.Broker.Subscribe(ctx, queue, o)
}

// TestStatsOfASkippedQueue shows that Stats lists a queue for which the broker allowed no
// consumer.
func TestStatsOfASkippedQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable(t, func(c *consumer.Config) {
			c.Broker = crowded{c.Broker.(*membroker.Broker), "full"}
			c.Queues = map[string]consumer.QueueConfig{"default": {Workers: 2}, "full": {Workers: 2}}
		})
		b.run()
		synctest.Wait()
		defer b.end()
		defer func() {
			if p := recover(); p != nil {
				t.Errorf("Stats panics: %v", p)
			}
		}()
		if s := b.c.Stats(); len(s.Queues) != 2 || s.Queues[0].Workers != 2 || s.Queues[1].Workers != 0 {
			t.Errorf("%+v", s)
		}
	})
}
