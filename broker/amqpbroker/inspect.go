package amqpbroker

import (
	"context"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/amqpconn"
)

// countReady returns the number of messages that wait in the given AMQP queues, and waits for the
// server. Returns 0 and the server's "not found" if one of them does not exist.
func (b *Broker) countReady(ctx context.Context, amqpQueues []string) (int, error) {
	n := 0
	err := b.con.Retry(ctx, func(sess *amqpconn.Session) error {
		n = 0
		return sess.Do(ctx, func(ch *amqp.Channel) error {
			for _, name := range amqpQueues {
				q, err := amqpconn.Numbers(ch, name)
				if err != nil {
					return err
				}
				n += q.Messages
			}
			return nil
		})
	})
	if err != nil {
		return 0, err // the function may still run if ctx has ended
	}
	return n, nil
}

// How long Stats and Purge remember that a queue is missing. Each question for a missing queue
// costs a channel, which the server closes.
const (
	levellessFor = 10 * time.Minute // for the levels of an existing queue, which do not change
	deadlessFor  = 30 * time.Second // for its dead queue, which the first dead letter creates
)

// isRecent reports whether notes holds a time for queue that is not older than age.
func isRecent(notes *sync.Map, queue string, age time.Duration) bool {
	at, ok := notes.Load(queue)
	return ok && time.Since(at.(time.Time)) < age //nolint:forcetypeassert // nothing else is in it
}

// loadLevelsCached calls loadLevels, which waits for the server, and returns its error. It does
// nothing if the queue was found without levels less than levellessFor ago.
func (b *Broker) loadLevelsCached(ctx context.Context, queue string) error {
	if isRecent(&b.levelless, queue, levellessFor) {
		return nil
	}
	return b.loadLevels(ctx, queue)
}

// countReadyInQueue returns the number of messages that wait in all known levels of a queue. It
// waits for the server. If the queue has no levels it records the time in b.levelless for
// loadLevelsCached. Returns the server's "not found" if the queue does not exist.
func (b *Broker) countReadyInQueue(ctx context.Context, queue string) (int, error) {
	n, err := b.countReady(ctx, b.amqpQueues(queue))
	if _, levels := b.queues.Load(queue); err == nil && !levels && !isRecent(&b.levelless, queue, levellessFor) {
		b.levelless.Store(queue, time.Now())
	}
	return n, err
}

// Stats implements [broker.Inspector]. RabbitMQ tells an AMQP client only the number of ready
// messages, so Held, Delayed and DeadDropped are -1. The first dead letter of a queue that no
// process has consumed may be counted half a minute late. It waits for the server. Returns
// ErrNoQueue if the queue does not exist, ErrMalformed for a name that is not valid, and errors of
// the server.
func (b *Broker) Stats(ctx context.Context, queue string) (broker.Stats, error) {
	if _, err := b.route(queue, defaultPriority); err != nil {
		return broker.Stats{}, wrap(err, "inspect", queue)
	}
	if err := b.loadLevelsCached(ctx, queue); err != nil {
		return broker.Stats{}, wrap(err, "inspect", queue)
	}
	ready, err := b.countReadyInQueue(ctx, queue)
	if err != nil {
		return broker.Stats{}, wrap(err, "inspect", queue)
	}
	dead := 0
	if !isRecent(&b.deadless, queue, deadlessFor) {
		dead, err = b.countReady(ctx, []string{b.names.dead(queue)})
		switch {
		case amqpconn.IsNotFound(err):
			b.deadless.Store(queue, time.Now())
		case err != nil:
			return broker.Stats{}, wrap(err, "inspect", queue)
		}
	}
	return broker.Stats{Ready: ready, Held: -1, Delayed: -1, Dead: dead, DeadDropped: -1}, nil
}

// Purge implements [broker.Inspector]. It removes the waiting messages of all priority levels,
// waits for the server and returns their number. Delayed messages and dead letters stay. Returns
// ErrNoQueue if the queue does not exist, ErrMalformed for a name that is not valid. After an error
// the number is 0, although some messages may have been removed.
func (b *Broker) Purge(ctx context.Context, queue string) (int, error) {
	if _, err := b.route(queue, defaultPriority); err != nil {
		return 0, wrap(err, "purge", queue)
	}
	if err := b.loadLevelsCached(ctx, queue); err != nil {
		return 0, wrap(err, "purge", queue)
	}
	n := 0
	err := b.con.Retry(ctx, func(sess *amqpconn.Session) error {
		return sess.Do(ctx, func(ch *amqp.Channel) error {
			for _, name := range b.amqpQueues(queue) {
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
