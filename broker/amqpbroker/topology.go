package amqpbroker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/amqpconn"
	"github.com/swarmiji/swarmiji/internal/keyset"
	"github.com/swarmiji/swarmiji/internal/wake"
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

// deadArgs are the arguments of a dead queue: those of an unbounded one, and its bounds. A full one
// drops its oldest letters: one that refused new ones would keep its work queue from settling.
func (b *Broker) deadArgs() amqp.Table {
	args := b.unboundedDeadArgs()
	if b.cfg.DeadTTL > 0 {
		args["x-message-ttl"] = max(1, b.cfg.DeadTTL.Milliseconds())
	}
	if b.cfg.DeadMax > 0 {
		args["x-max-length"] = int64(b.cfg.DeadMax)
		args["x-overflow"] = "drop-head"
	}
	return args
}

// unboundedDeadArgs are those of the dead queues that earlier versions have declared. A quorum
// queue puts what is given back at its old place only if it has a delivery limit; reading dead
// letters must not reach it.
func (b *Broker) unboundedDeadArgs() amqp.Table {
	args := b.queueArgs(nil)
	if b.cfg.QueueType == Quorum {
		args["x-delivery-limit"] = int64(math.MaxInt32)
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

// Declare implements [broker.Declarer]. A queue with more than one level becomes one AMQP queue per level. The levels that a
// queue was first declared with hold for ever and for every process that declares, subscribes or inspects; one that only
// publishes has to declare the queue as well, without naming levels if it likes, to make use of them.
func (b *Broker) Declare(ctx context.Context, qs ...broker.Queue) error {
	for _, q := range qs {
		if err := b.declare(ctx, q); err != nil {
			return wrap(err, "declare", q.Name)
		}
	}
	return nil
}

func (b *Broker) declare(ctx context.Context, q broker.Queue) error {
	if !keyset.ValidName(q.Name) {
		return fmt.Errorf("%w: queue name", broker.ErrMalformed)
	}
	for i, bound := range q.Levels {
		if i > 0 && bound <= q.Levels[i-1] {
			return fmt.Errorf("%w: levels %v do not ascend", broker.ErrMalformed, q.Levels)
		}
	}
	if err := b.settleLevels(ctx, q.Name, slices.Clone(q.Levels)); err != nil {
		return err
	}
	for _, name := range b.all(q.Name) {
		if err := b.declareWork(ctx, q.Name, name); err != nil {
			return err
		}
	}
	return nil
}

// declareWork declares one AMQP queue of a queue with all that belongs to it. The dead queue is made
// by the first consumer or dead letter.
func (b *Broker) declareWork(ctx context.Context, queue, amqpQueue string) error {
	return b.retry(ctx, func(sess *amqpconn.Session) error { return b.declareWorkOn(ctx, sess, queue, amqpQueue) })
}

// declareConsumed is declareWork with the dead queue, into which the server dead-letters what a
// consumer has held.
func (b *Broker) declareConsumed(ctx context.Context, sess *amqpconn.Session, queue, amqpQueue string) error {
	if err := b.declareDead(ctx, sess, queue); err != nil {
		return err
	}
	return b.declareWorkOn(ctx, sess, queue, amqpQueue)
}

func (b *Broker) declareDead(ctx context.Context, sess *amqpconn.Session, queue string) error {
	b.deadless.Delete(queue)
	return b.declareOne(ctx, sess, b.names.dead(queue), b.deadArgs())
}

func (b *Broker) declareWorkOn(ctx context.Context, sess *amqpconn.Session, queue, amqpQueue string) error {
	if err := b.declareDeliver(ctx, sess); err != nil {
		return err
	}
	if err := b.declareOne(ctx, sess, amqpQueue, b.workArgs(queue)); err != nil {
		return err
	}
	if err := sess.Do(ctx, func(ch *amqp.Channel) error { return b.bindOn(ch, sess, amqpQueue) }); err != nil {
		return err
	}
	b.prepareNotes(ctx, sess)
	return nil
}

// prepareWait bounds the wait for the stream of acknowledgements.
const prepareWait = 2 * time.Second

// prepareNotes makes the stream of acknowledgements before the first message is acknowledged, since a stream tells nothing of
// what came before it. Without it the queue works all the same.
func (b *Broker) prepareNotes(ctx context.Context, sess *amqpconn.Session) {
	ctx, cancel := context.WithTimeout(ctx, prepareWait)
	defer cancel()
	err := b.acks.log.prepare(ctx, sess)
	refused := errors.Is(err, amqpconn.ErrAccess)
	b.acks.refused.Store(refused)
	if _, known := b.warned.Load(b.acks.log.queue); refused && !known {
		b.warned.Store(b.acks.log.queue, struct{}{})
		b.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "amqp: the server refuses the stream for notes of acknowledgements; tasks that run at most once do not start",
			slog.String("amqp_queue", b.acks.log.queue), slog.String("error", err.Error()))
	}
}

// declareOne declares a queue. One that exists with other arguments is used as it is, with a warning.
func (b *Broker) declareOne(ctx context.Context, sess *amqpconn.Session, name string, args amqp.Table) error {
	difference, err := b.declareOrFind(ctx, sess, name, args)
	if difference != nil && args["x-overflow"] == "drop-head" { // a dead queue, which may be one without bounds
		bounded := difference
		if difference, err = b.declareOrFind(ctx, sess, name, b.unboundedDeadArgs()); difference == nil {
			b.tellUnbounded(ctx, name)
			return err
		}
		difference = bounded
	}
	if difference != nil {
		b.warnDifference(ctx, name, name, difference)
	}
	return err
}

// declareOrFind declares a queue. If one exists with other arguments, difference is what the server says of them.
func (b *Broker) declareOrFind(ctx context.Context, sess *amqpconn.Session, name string, args amqp.Table) (difference, err error) {
	err = sess.Do(ctx, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(name, true, false, false, false, args)
		return err
	})
	if !amqpconn.IsPrecondition(err) {
		return nil, err
	}
	return err, sess.Do(ctx, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
		return err
	})
}

// tellUnbounded tells once that a dead queue of an earlier version has no bounds. It works as it
// did, so that this is no warning.
func (b *Broker) tellUnbounded(ctx context.Context, name string) {
	if _, known := b.warned.LoadOrStore(name, struct{}{}); !known {
		b.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "amqp: the dead queue was declared without bounds; unless a policy bounds it already, set one",
			slog.String("amqp_queue", name), slog.String("command", b.deadPolicy()))
	}
}

// warnDifference warns once for each key.
func (b *Broker) warnDifference(ctx context.Context, key, name string, difference error) {
	if _, known := b.warned.LoadOrStore(key, struct{}{}); !known {
		b.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "amqp: the queue exists with other settings and is used as it is; delete it when it is empty to have it made anew",
			slog.String("amqp_queue", name), slog.String("difference", difference.Error()))
	}
}

// startPause is between two looks at a queue whose node is down or still starting.
const startPause = 200 * time.Millisecond

// retry calls fn with the session, and again with the next one if the session ended meanwhile, or while the node of a queue
// is down: fn must be idempotent.
func (b *Broker) retry(ctx context.Context, fn func(sess *amqpconn.Session) error) error {
	for {
		sess, err := b.con.Session(ctx)
		if err != nil {
			return err
		}
		err = fn(sess)
		if amqpconn.IsNodeDown(err) && wake.Sleep(ctx, startPause) {
			continue
		}
		if err == nil || !sess.Ended() || ctx.Err() != nil {
			return err
		}
		select {
		case <-sess.Done():
		case <-ctx.Done():
			return err
		}
	}
}
