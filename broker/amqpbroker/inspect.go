package amqpbroker

import (
	"context"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/amqpconn"
)

// ready returns how many messages wait in the queues.
func (b *Broker) ready(ctx context.Context, amqpQueues []string) (int, error) {
	n := 0
	err := b.retry(ctx, func(sess *amqpconn.Session) error {
		n = 0
		return sess.Do(ctx, func(ch *amqp.Channel) error {
			for _, name := range amqpQueues {
				q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
				if err != nil {
					return err
				}
				n += q.Messages
			}
			return nil
		})
	})
	if err != nil {
		return 0, err // fn may still be at work if ctx has ended
	}
	return n, nil
}

// Stats implements [broker.Inspector]. RabbitMQ tells an AMQP client only what is ready: Held,
// Delayed and DeadDropped are -1.
func (b *Broker) Stats(ctx context.Context, queue string) (broker.Stats, error) {
	if _, err := b.route(queue, defaultPriority); err != nil {
		return broker.Stats{}, wrap(err, "inspect", queue)
	}
	if err := b.learn(ctx, queue); err != nil {
		return broker.Stats{}, wrap(err, "inspect", queue)
	}
	ready, err := b.ready(ctx, b.all(queue))
	if err != nil {
		return broker.Stats{}, wrap(err, "inspect", queue)
	}
	dead, err := b.ready(ctx, []string{b.names.dead(queue)})
	if err != nil && !amqpconn.IsNotFound(err) {
		return broker.Stats{}, wrap(err, "inspect", queue)
	}
	return broker.Stats{Ready: ready, Held: -1, Delayed: -1, Dead: dead, DeadDropped: -1}, nil
}

// Purge implements [broker.Inspector].
func (b *Broker) Purge(ctx context.Context, queue string) (int, error) {
	if _, err := b.route(queue, defaultPriority); err != nil {
		return 0, wrap(err, "purge", queue)
	}
	if err := b.learn(ctx, queue); err != nil {
		return 0, wrap(err, "purge", queue)
	}
	n := 0
	err := b.retry(ctx, func(sess *amqpconn.Session) error {
		return sess.Do(ctx, func(ch *amqp.Channel) error {
			for _, name := range b.all(queue) {
				purged, err := ch.QueuePurge(name, false)
				if err != nil {
					return err
				}
				n += purged
			}
			return nil
		})
	})
	if err != nil {
		return 0, wrap(err, "purge", queue)
	}
	return n, nil
}
