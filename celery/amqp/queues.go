package amqp

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/amqpconn"
)

// Declare implements [broker.Declarer]. It creates the queues that do not exist, as Celery does,
// and uses existing queues as they are. It waits for the server and stops at the first error; the
// queues before it exist then. Returns ErrUnsupported for a queue with levels or turns.
func (b *Broker) Declare(ctx context.Context, qs ...broker.Queue) error {
	for _, q := range qs {
		if err := checkQueue(q.Name); err != nil {
			return amqpconn.BrokerError(err, "declare", q.Name)
		}
		if len(q.Levels) > 0 {
			return fmt.Errorf("priority levels of queue %q: %w", q.Name, broker.ErrUnsupported)
		}
		if err := broker.RefuseFair(q); err != nil {
			return err
		}
		err := b.con.Retry(ctx, func(sess *amqpconn.Session) error { return b.declareWork(ctx, sess, q.Name) })
		if err != nil {
			return amqpconn.BrokerError(err, "declare", q.Name)
		}
	}
	return nil
}

// declareWork makes sure that the queue exists and that delayed messages reach it. It waits for the
// server.
//
// An existing queue is used as it is: a declaration with other arguments would be refused. A queue
// that is missing is declared as Celery does, with a direct exchange of its name.
func (b *Broker) declareWork(ctx context.Context, sess *amqpconn.Session, queue string) error {
	if err := b.delays.DeclareEnd(ctx, sess); err != nil {
		return err
	}
	err := sess.Do(ctx, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		return err
	})
	if amqpconn.IsNotFound(err) {
		err = sess.Do(ctx, func(ch *amqp.Channel) error {
			if err := ch.ExchangeDeclare(queue, amqp.ExchangeDirect, true, false, false, false, nil); err != nil {
				return err
			}
			if _, err := ch.QueueDeclare(queue, true, false, false, false, nil); err != nil {
				return err
			}
			return ch.QueueBind(queue, queue, queue, false, nil)
		})
	}
	if err != nil {
		return err
	}
	return sess.Do(ctx, func(ch *amqp.Channel) error { return b.delays.BindOn(ch, sess, queue) })
}

// isClassic reports whether an existing queue is known to be a classic one. It waits for the server.
// AMQP does not tell the type of a queue. But a declaration as a classic queue succeeds if the
// queue has no other arguments, and otherwise the refusal names the argument that differs.
// x-max-priority exists only on classic queues.
func isClassic(ctx context.Context, sess *amqpconn.Session, queue string) (bool, error) {
	err := sess.Do(ctx, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-queue-type": "classic"})
		return err
	})
	if amqpconn.IsPrecondition(err) {
		return strings.Contains(err.Error(), "'x-max-priority'"), nil
	}
	return err == nil, err
}

// warnDifference logs once for each key that a queue of the adapter exists with other settings.
func (b *Broker) warnDifference(ctx context.Context, key, name string, difference error) {
	if _, known := b.warned.LoadOrStore(key, struct{}{}); !known {
		b.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "celery: the queue exists with other settings and is used as it is; to create it again, delete it when it is empty",
			slog.String("amqp_queue", name), slog.String("difference", difference.Error()))
	}
}

// Stats implements [broker.Inspector]. RabbitMQ tells an AMQP client only the number of ready
// messages, so Held, Delayed and DeadDropped are -1. It waits for the server. Returns ErrNoQueue if
// the queue does not exist, ErrMalformed for a name that is not valid.
func (b *Broker) Stats(ctx context.Context, queue string) (broker.Stats, error) {
	err := checkQueue(queue)
	ready := 0
	if err == nil {
		ready, err = b.count(ctx, queue)
	}
	if err != nil {
		return broker.Stats{}, amqpconn.BrokerError(err, "inspect", queue)
	}
	dead, err := b.count(ctx, deadQueue(queue))
	if err != nil && !amqpconn.IsNotFound(err) {
		return broker.Stats{}, amqpconn.BrokerError(err, "inspect", queue)
	}
	return broker.Stats{Ready: ready, Held: -1, Delayed: -1, Dead: dead, DeadDropped: -1}, nil
}

// count returns the number of messages that wait in a queue, and waits for the server. Returns 0
// and the server's "not found" if the queue does not exist.
func (b *Broker) count(ctx context.Context, name string) (int, error) {
	n := 0
	err := b.con.Retry(ctx, func(sess *amqpconn.Session) error {
		return sess.Do(ctx, func(ch *amqp.Channel) error {
			q, err := amqpconn.Numbers(ch, name)
			n = q.Messages
			return err
		})
	})
	if err != nil {
		return 0, err // the function may still run if ctx has ended
	}
	return n, nil
}

// Purge implements [broker.Inspector]. It removes the waiting messages, waits for the server and
// returns their number. Delayed messages and dead letters stay. Returns ErrNoQueue if the queue
// does not exist, ErrMalformed for a name that is not valid.
func (b *Broker) Purge(ctx context.Context, queue string) (int, error) {
	if err := checkQueue(queue); err != nil {
		return 0, amqpconn.BrokerError(err, "purge", queue)
	}
	n, err := b.purge(ctx, queue)
	return n, amqpconn.BrokerError(err, "purge", queue)
}

// purge removes the waiting messages of the AMQP queue name and returns their number, 0 after an
// error. It waits for the server.
func (b *Broker) purge(ctx context.Context, name string) (int, error) {
	n := 0
	err := b.con.Retry(ctx, func(sess *amqpconn.Session) error {
		return sess.Do(ctx, func(ch *amqp.Channel) (err error) {
			n, err = ch.QueuePurge(name, false)
			return err
		})
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}
