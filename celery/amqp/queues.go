package amqp

import (
	"context"
	"log/slog"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/amqpconn"
)

// maxPriority is the highest priority of a queue with levels, the x-max-priority of Celery's
// documentation. Celery's priority 10 is 90 here, and 0 is 100.
const maxPriority = 10

// Declare implements [broker.Declarer]. It creates the queues that do not exist, as Celery does,
// and uses existing queues as they are. It waits for the server and stops at the first error; the
// queues before it exist then. Returns ErrUnsupported for a queue with turns.
//
// A queue with levels is created with an x-max-priority of 10. The bounds of the levels have no
// effect: the message format sets Celery's priority, which RabbitMQ applies. A difference of an
// existing queue is logged once.
func (b *Broker) Declare(ctx context.Context, qs ...broker.Queue) error {
	for _, q := range qs {
		if err := checkQueue(q.Name); err != nil {
			return amqpconn.BrokerError(err, "declare", q.Name)
		}
		if err := broker.RefuseFair(q); err != nil {
			return err
		}
		if len(q.Levels) > 0 {
			b.levels.Store(q.Name, struct{}{})
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
	var args amqp.Table
	if _, ok := b.levels.Load(queue); ok {
		args = amqp.Table{"x-max-priority": int32(maxPriority)}
	}
	err := sess.Do(ctx, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		return err
	})
	switch {
	case amqpconn.IsNotFound(err):
		err = sess.Do(ctx, func(ch *amqp.Channel) error {
			if err := ch.ExchangeDeclare(queue, amqp.ExchangeDirect, true, false, false, false, nil); err != nil {
				return err
			}
			if _, err := ch.QueueDeclare(queue, true, false, false, false, args); err != nil {
				return err
			}
			return ch.QueueBind(queue, queue, queue, false, nil)
		})
	case err == nil && args != nil:
		var difference error
		if difference, err = sess.DeclareOrFind(ctx, queue, args); err == nil && difference != nil {
			b.warnDifference(ctx, queue, queue, difference)
		}
	}
	if err != nil {
		return err
	}
	return sess.Do(ctx, func(ch *amqp.Channel) error { return b.delays.BindOn(ch, sess, queue) })
}

// isClassic reports whether an existing queue is known to be a classic one, and waits for the
// server.
//
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
