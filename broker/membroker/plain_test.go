package membroker_test

import (
	"context"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/brokertest"
	"github.com/swarmiji/swarmiji/broker/membroker"
)

// The plain types hide every optional interface, like an adapter that has only the required ones.
type (
	plainBroker       struct{ broker.Broker }
	plainSubscription struct{ broker.Subscription }
	plainDelivery     struct{ broker.Delivery }
)

func (b plainBroker) Subscribe(ctx context.Context, queue string, o broker.SubscribeOptions) (broker.Subscription, error) {
	if err := broker.RefuseBounds(queue, o); err != nil {
		return nil, err
	}
	s, err := b.Broker.Subscribe(ctx, queue, o)
	if err != nil {
		return nil, err
	}
	return plainSubscription{s}, nil
}

func (s plainSubscription) Receive(ctx context.Context) (broker.Delivery, error) {
	d, err := s.Subscription.Receive(ctx)
	if err != nil {
		return nil, err
	}
	return plainDelivery{d}, nil
}

// TestConformanceOfAPlainAdapter shows that the suite requires only promised features of an
// adapter, and that the fallbacks of package broker work.
func TestConformanceOfAPlainAdapter(t *testing.T) {
	brokertest.Run(t, func(t testing.TB) *brokertest.Harness {
		h := harness(t)
		open, sever := h.Open, h.Sever
		h.Open = func(t testing.TB) broker.Broker { return plainBroker{open(t)} }
		h.Sever = func(t testing.TB, b broker.Broker) { sever(t, b.(plainBroker).Broker.(*membroker.Broker)) }
		h.Promises = brokertest.Promises{Durable: true}
		h.Prefix = "plain."
		h.Leases = 50 * time.Millisecond
		return h
	})
}
