package amqpbroker

import (
	"context"
	"sync"
	"time"

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

// How long Stats and Purge remember that a queue is missing. The server closes the channel that
// asks for a missing queue.
const (
	levellessFor = 10 * time.Minute // the levels of a queue that exists; they do not change
	deadlessFor  = 30 * time.Second // its dead queue, which a dead letter makes
)

// isRecent reports whether the time that is noted for a queue is not older than age.
func isRecent(notes *sync.Map, queue string, age time.Duration) bool {
	at, ok := notes.Load(queue)
	return ok && time.Since(at.(time.Time)) < age //nolint:forcetypeassert // nothing else is in it
}

// learnIfLeveled is learn, but for a queue that was found without levels a while ago.
func (b *Broker) learnIfLeveled(ctx context.Context, queue string) error {
	if isRecent(&b.levelless, queue, levellessFor) {
		return nil
	}
	return b.learn(ctx, queue)
}

// readyIn returns how many messages wait in all levels of a queue. It notes a queue without levels.
func (b *Broker) readyIn(ctx context.Context, queue string) (int, error) {
	n, err := b.ready(ctx, b.all(queue))
	if _, levels := b.queues.Load(queue); err == nil && !levels && !isRecent(&b.levelless, queue, levellessFor) {
		b.levelless.Store(queue, time.Now())
	}
	return n, err
}

// Stats implements [broker.Inspector]. RabbitMQ tells an AMQP client only what is ready: Held,
// Delayed and DeadDropped are -1. The first dead letter of a queue that no process has consumed
// may be counted half a minute late.
func (b *Broker) Stats(ctx context.Context, queue string) (broker.Stats, error) {
	if _, err := b.route(queue, defaultPriority); err != nil {
		return broker.Stats{}, wrap(err, "inspect", queue)
	}
	if err := b.learnIfLeveled(ctx, queue); err != nil {
		return broker.Stats{}, wrap(err, "inspect", queue)
	}
	ready, err := b.readyIn(ctx, queue)
	if err != nil {
		return broker.Stats{}, wrap(err, "inspect", queue)
	}
	dead := 0
	if !isRecent(&b.deadless, queue, deadlessFor) {
		dead, err = b.ready(ctx, []string{b.names.dead(queue)})
		switch {
		case amqpconn.IsNotFound(err):
			b.deadless.Store(queue, time.Now())
		case err != nil:
			return broker.Stats{}, wrap(err, "inspect", queue)
		}
	}
	return broker.Stats{Ready: ready, Held: -1, Delayed: -1, Dead: dead, DeadDropped: -1}, nil
}

// Purge implements [broker.Inspector].
func (b *Broker) Purge(ctx context.Context, queue string) (int, error) {
	if _, err := b.route(queue, defaultPriority); err != nil {
		return 0, wrap(err, "purge", queue)
	}
	if err := b.learnIfLeveled(ctx, queue); err != nil {
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
