package amqpbroker

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/amqpconn"
	"github.com/swarmiji/swarmiji/internal/keyset"
)

// queueArgs adds to args what every queue of ours has. Quorum queues that dead-letter do it at-least-once: the message
// leaves when its target has confirmed it.
func (b *Broker) queueArgs(args amqp.Table) amqp.Table {
	if args == nil {
		args = amqp.Table{}
	}
	args["x-queue-type"] = string(b.cfg.QueueType)
	if _, ok := args["x-dead-letter-exchange"]; ok && b.cfg.QueueType == Quorum {
		args["x-dead-letter-strategy"] = "at-least-once"
		args["x-overflow"] = "reject-publish" // without it the strategy is refused
	}
	return args
}

// workArgs are the arguments of a work queue: what RabbitMQ itself dead-letters goes where Bury puts it as well.
func (b *Broker) workArgs(queue string) amqp.Table {
	args := amqp.Table{
		"x-dead-letter-exchange":    "",
		"x-dead-letter-routing-key": b.names.dead(queue),
	}
	if b.cfg.QueueType == Quorum {
		args["x-delivery-limit"] = int64(b.cfg.DeliveryLimit)
	}
	return b.queueArgs(args)
}

// Declare implements [broker.Declarer]. A queue with more than one level becomes one AMQP queue per level; the Broker
// remembers the levels, so both sides have to declare them before they publish and subscribe.
func (b *Broker) Declare(ctx context.Context, qs ...broker.Queue) error {
	for _, q := range qs {
		if !keyset.ValidName(q.Name) {
			return wrap(fmt.Errorf("%w: queue name", broker.ErrMalformed), "declare", q.Name)
		}
		if !slices.IsSorted(q.Levels) || len(slices.Compact(slices.Clone(q.Levels))) != len(q.Levels) {
			return wrap(fmt.Errorf("%w: levels %v do not ascend", broker.ErrMalformed, q.Levels), "declare", q.Name)
		}
		// One level needs no queue of its own. A declaration without levels leaves known ones as they are.
		if len(q.Levels) > 1 {
			l := &levels{bounds: slices.Clone(q.Levels)}
			for _, bound := range l.bounds {
				l.queues = append(l.queues, b.names.level(q.Name, bound))
			}
			b.queues.Store(q.Name, l)
		}
		for _, name := range b.all(q.Name) {
			if err := b.declareWork(ctx, q.Name, name); err != nil {
				return wrap(err, "declare", q.Name)
			}
		}
	}
	return nil
}

// declareWork declares one AMQP queue of a queue with all that belongs to it.
func (b *Broker) declareWork(ctx context.Context, queue, amqpQueue string) error {
	return b.retry(ctx, func(sess *amqpconn.Session) error { return b.declareWorkOn(ctx, sess, queue, amqpQueue) })
}

func (b *Broker) declareWorkOn(ctx context.Context, sess *amqpconn.Session, queue, amqpQueue string) error {
	if err := b.declareDeliver(ctx, sess); err != nil {
		return err
	}
	if err := b.declareOne(ctx, sess, b.names.dead(queue), b.queueArgs(nil)); err != nil {
		return err
	}
	if err := b.declareOne(ctx, sess, amqpQueue, b.workArgs(queue)); err != nil {
		return err
	}
	return sess.Do(ctx, func(ch *amqp.Channel) error { return b.bindOn(ch, sess, amqpQueue) })
}

// declareOne declares a queue. One that exists with other arguments is used as it is, with a warning.
func (b *Broker) declareOne(ctx context.Context, sess *amqpconn.Session, name string, args amqp.Table) error {
	err := sess.Do(ctx, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(name, true, false, false, false, args)
		return err
	})
	if !amqpconn.IsPrecondition(err) {
		return err
	}
	if _, known := b.warned.LoadOrStore(name, struct{}{}); !known {
		b.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "amqp: the queue exists with other settings and is used as it is; delete it when it is empty to have it made anew",
			slog.String("amqp_queue", name), slog.String("difference", err.Error()))
	}
	return sess.Do(ctx, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
		return err
	})
}

// retry calls fn with the session, and again with the next one if the session ended meanwhile: fn must be idempotent.
func (b *Broker) retry(ctx context.Context, fn func(sess *amqpconn.Session) error) error {
	for {
		sess, err := b.con.Session(ctx)
		if err != nil {
			return err
		}
		if err = fn(sess); err == nil || sess.Err() == nil || ctx.Err() != nil {
			return err
		}
	}
}
