package consumer_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/task"
)

// checking is a broker whose deliveries are an AckChecker with answers from a function.
type checking struct {
	*membroker.Broker
	answer func() (bool, error)
}

func (b checking) Unwrap() any { return b.Broker }
func (b checking) Subscribe(ctx context.Context, q string, o broker.SubscribeOptions) (broker.Subscription, error) {
	s, err := b.Broker.Subscribe(ctx, q, o)
	return checkingSub{s, b}, err
}

type checkingSub struct {
	broker.Subscription
	b checking
}

func (s checkingSub) Unwrap() any { return s.Subscription }
func (s checkingSub) Receive(ctx context.Context) (broker.Delivery, error) {
	d, err := s.Subscription.Receive(ctx)
	if err != nil {
		return nil, err
	}
	return checkingDelivery{d, s.b}, nil
}

type checkingDelivery struct {
	broker.Delivery
	b checking
}

func (d checkingDelivery) Unwrap() any                               { return d.Delivery }
func (d checkingDelivery) AckedBefore(context.Context) (bool, error) { return d.b.answer() }

// TestAckCheckerAway shows that a redelivered at-most-once task starts after the AckChecker has
// failed for 90 s and then reports no acknowledgement.
func TestAckCheckerAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := time.Now().Add(90 * time.Second)
		b := newTable(t, func(c *consumer.Config) {
			c.Broker = checking{c.Broker.(*membroker.Broker), func() (bool, error) {
				if time.Now().Before(until) {
					return false, broker.ErrUnavailable
				}
				return false, nil
			}}
		})
		f := b.submit(7, task.WithIdempotent(false))
		b.takeOnce(t)
		b.run()
		if got, err := f.Get(t.Context()); err != nil || got != 7 {
			t.Errorf("a task that was only held: %v %v after %d runs, %+v", got, err, b.runs.Load(), b.stats(t))
		}
		b.end()
	})
}

// TestExpiredThoughStarted shows that an at-most-once task that may have started ends as uncertain,
// also if it comes again after its expiry.
func TestExpiredThoughStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable(t, func(c *consumer.Config) { c.Broker = forgetful(c.Broker) })
		f := b.submit(7, task.WithIdempotent(false), task.WithExpires(time.Now().Add(time.Minute)))
		b.takeOnce(t)
		time.Sleep(time.Hour)
		b.run()
		if _, err := f.Get(t.Context()); !errors.Is(err, task.ErrUncertain) {
			t.Errorf("acknowledged early, so it may have started: %v; %+v", err, b.stats(t))
		}
		b.end()
	})
}
