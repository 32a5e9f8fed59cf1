package consumer_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
)

// deliveries is a broker that wraps its deliveries.
type deliveries struct {
	*membroker.Broker
	wrap func(broker.Delivery) broker.Delivery
}

func (b deliveries) Unwrap() any { return b.Broker }

func (b deliveries) Subscribe(ctx context.Context, queue string, o broker.SubscribeOptions) (broker.Subscription, error) {
	s, err := b.Broker.Subscribe(ctx, queue, o)
	return wrappedSubscription{s, b.wrap}, err
}

type wrappedSubscription struct {
	broker.Subscription
	wrap func(broker.Delivery) broker.Delivery
}

func (s wrappedSubscription) Unwrap() any { return s.Subscription }

func (s wrappedSubscription) Receive(ctx context.Context) (broker.Delivery, error) {
	d, err := s.Subscription.Receive(ctx)
	if err != nil {
		return nil, err
	}
	return s.wrap(d), nil
}

// forgetful returns a broker that may forget acknowledgements. Its AckChecker reports that each
// message was acknowledged before.
func forgetful(b broker.Broker) broker.Broker {
	return deliveries{b.(*membroker.Broker), func(d broker.Delivery) broker.Delivery { return forgottenAck{d} }}
}

type forgottenAck struct{ broker.Delivery }

func (d forgottenAck) Unwrap() any { return d.Delivery }

func (forgottenAck) AckedBefore(context.Context) (bool, error) { return true, nil }

// noAccess returns a broker whose user may not write dead letters.
func noAccess(b broker.Broker) broker.Broker {
	return deliveries{b.(*membroker.Broker), func(d broker.Delivery) broker.Delivery { return noAccessDelivery{d} }}
}

type noAccessDelivery struct{ broker.Delivery }

func (d noAccessDelivery) Unwrap() any { return d.Delivery }

func (d noAccessDelivery) DeadLetter(context.Context, broker.Dead) error {
	return fmt.Errorf("configure access to the dead queue: %w", broker.ErrAccess)
}

// noNotes returns a broker that refuses early acknowledgements. RabbitMQ's adapter does so if the
// server does not permit its stream of notes.
func noNotes(b broker.Broker) broker.Broker {
	return deliveries{b.(*membroker.Broker), func(d broker.Delivery) broker.Delivery { return noNotesDelivery{d} }}
}

type noNotesDelivery struct{ broker.Delivery }

func (d noNotesDelivery) Unwrap() any { return d.Delivery }

func (d noNotesDelivery) AckSync(context.Context) error {
	return fmt.Errorf("%w: %w: the server refuses the notes of acknowledgements", broker.ErrUnavailable, broker.ErrAccess)
}

// noAckAnswers returns a broker that executes early acknowledgements and loses each answer.
func noAckAnswers(b broker.Broker) broker.Broker {
	return deliveries{b.(*membroker.Broker), func(d broker.Delivery) broker.Delivery { return ackWithoutAnswer{d} }}
}

type ackWithoutAnswer struct{ broker.Delivery }

func (d ackWithoutAnswer) Unwrap() any { return d.Delivery }

func (d ackWithoutAnswer) AckSync(ctx context.Context) error {
	_ = broker.AckSync(ctx, d.Delivery) // an earlier call may have settled it
	return fmt.Errorf("the answer is lost: %w", broker.ErrIndeterminate)
}

// ahead is a broker whose clock is ahead of the clock of the processes.
type ahead struct {
	*membroker.Broker
	by     time.Duration
	rounds *atomic.Int64 // messages that were put back; after a thousand the clocks agree
}

func (b ahead) Unwrap() any { return b.Broker }

func (b ahead) PublishAt(ctx context.Context, queue string, m *broker.Message, at time.Time) error {
	return b.Broker.PublishAt(ctx, queue, m, at.Add(-b.by))
}

func (b ahead) PublishBatch(ctx context.Context, ms []broker.Outgoing) error {
	for i := range ms {
		ms[i].At = b.early(ms[i].At)
	}
	return b.Broker.PublishBatch(ctx, ms)
}

func (b ahead) Retry(ctx context.Context, d broker.Delivery, next broker.Outgoing) error {
	if b.rounds.Add(1) < 1000 {
		next.At = b.early(next.At)
	}
	return b.Broker.Retry(ctx, d, next)
}

func (b ahead) early(at time.Time) time.Time {
	if at.IsZero() {
		return at
	}
	return at.Add(-b.by)
}
