package amqpbroker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/amqpconn"
	"github.com/swarmiji/swarmiji/internal/amqpdelay"
	"github.com/swarmiji/swarmiji/internal/naming"
)

// queueArgs adds the arguments that all queues of the adapter have to args, in place, and returns
// it. args may be nil. See [amqpdelay.QueueArgs].
func (b *Broker) queueArgs(args amqp.Table) amqp.Table {
	return amqpdelay.QueueArgs(string(b.cfg.QueueType), args)
}

// deadArgs returns the arguments of a dead queue: those of unboundedDeadArgs and the limits of age
// and number. A full dead queue drops its oldest letters. If it refused new ones, the work queue
// could not settle.
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

// unboundedDeadArgs returns the arguments of a dead queue without limits, as earlier versions
// declared it. A quorum queue puts returned letters back in their old place only if it has a
// delivery limit. The limit is high, so that reading the letters never reaches it.
func (b *Broker) unboundedDeadArgs() amqp.Table {
	args := b.queueArgs(nil)
	if b.cfg.QueueType == Quorum {
		args["x-delivery-limit"] = int64(math.MaxInt32)
	}
	return args
}

// workArgs returns the arguments of a work queue. Messages that RabbitMQ itself dead-letters go to
// the dead queue that [delivery.DeadLetter] uses. A quorum queue gets Config.DeliveryLimit.
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

// Declare implements [broker.Declarer]. It creates the queues that do not exist, and waits for the
// server. A queue with more than one level becomes one AMQP queue per level, and four per level if
// it is fair. It stops at the first error; the queues before it exist then. Returns ErrMalformed
// for a name that is not valid or levels that do not ascend.
//
// The levels and the fairness of the first declaration are valid for ever. Every process that
// declares, subscribes or inspects uses them. A process that only publishes reads them with its
// first message that has a fairness key or a priority; its messages without a key use lane 0 before
// that. If it declares the queue, which need not name them, it uses them from the start.
func (b *Broker) Declare(ctx context.Context, qs ...broker.Queue) error {
	for _, q := range qs {
		if err := b.declare(ctx, q); err != nil {
			return wrap(err, "declare", q.Name)
		}
	}
	return nil
}

// declare creates the AMQP queues of q that do not exist, one for each level or lane, with all that
// declareWork lists. Before that it stores the levels in b.queues and on the server
// (declareLevels). If the queue exists with other levels or arguments, it uses the existing ones
// and logs the difference once.
//
// It waits for the server, also while the connection is lost. Returns ErrMalformed if the name is
// not valid or the levels do not ascend, and errors of the server; some AMQP queues may exist then.
func (b *Broker) declare(ctx context.Context, q broker.Queue) error {
	if !naming.ValidName(q.Name) {
		return fmt.Errorf("%w: queue name", broker.ErrMalformed)
	}
	for i, bound := range q.Levels {
		if i > 0 && bound <= q.Levels[i-1] {
			return fmt.Errorf("%w: levels %v do not ascend", broker.ErrMalformed, q.Levels)
		}
	}
	if err := b.declareLevels(ctx, q); err != nil {
		return err
	}
	if err := b.con.Retry(ctx, func(sess *amqpconn.Session) error {
		b.ensureAckNotes(ctx, sess)
		return nil
	}); err != nil {
		return err
	}
	for _, name := range b.amqpQueues(q.Name) {
		if err := b.declareWork(ctx, q.Name, name); err != nil {
			return err
		}
	}
	b.noteLearned(q.Name)
	return nil
}

// declareWork declares one AMQP queue of a queue with its delay exchange and its binding. It does
// not declare the dead queue, which the first consumer or dead letter creates. It waits for the
// server, also while the connection is lost, see [amqpconn.Conn.Retry].
func (b *Broker) declareWork(ctx context.Context, queue, amqpQueue string) error {
	return b.con.Retry(ctx, func(sess *amqpconn.Session) error { return b.declareWorkOn(ctx, sess, queue, amqpQueue) })
}

// declareConsumed declares on the connection sess the stream of acknowledgement notes, the dead
// queue of a queue, and then all that declareWork lists. A queue that is consumed needs a dead
// queue, because the server may dead-letter its messages. It waits for the server and stops at its
// first error.
func (b *Broker) declareConsumed(ctx context.Context, sess *amqpconn.Session, queue, amqpQueue string) error {
	b.ensureAckNotes(ctx, sess)
	if err := b.declareDead(ctx, sess, queue); err != nil {
		return err
	}
	return b.declareWorkOn(ctx, sess, queue, amqpQueue)
}

// declareDead declares the dead queue of a queue, waits for the server and returns the error of
// declareOne. It first deletes the queue's entry in b.deadless, so that Stats counts its letters.
func (b *Broker) declareDead(ctx context.Context, sess *amqpconn.Session, queue string) error {
	b.deadless.Delete(queue)
	return b.declareOne(ctx, sess, b.names.dead(queue), b.deadArgs())
}

// declareWorkOn declares on the connection sess one AMQP queue of a queue, with its delay
// exchange and its binding. It waits for the server and stops at the first error.
//
// Call ensureAckNotes before: the notes must be older than each message, see
// [delivery.AckedBefore].
func (b *Broker) declareWorkOn(ctx context.Context, sess *amqpconn.Session, queue, amqpQueue string) error {
	if err := b.delays.DeclareEnd(ctx, sess); err != nil {
		return err
	}
	if err := b.declareOne(ctx, sess, amqpQueue, b.workArgs(queue)); err != nil {
		return err
	}
	return sess.Do(ctx, func(ch *amqp.Channel) error { return b.delays.BindOn(ch, sess, amqpQueue) })
}

// prepareWait limits the wait for the stream of acknowledgement notes. A busy server takes seconds
// to create it.
const prepareWait = 10 * time.Second

// ensureAckNotes creates the stream of acknowledgement notes. It waits at most prepareWait and
// returns no error. If the server refuses access, it sets acks.refused, with which AckSync fails,
// and logs that once. Any other outcome clears acks.refused. Everything else in the queue works
// without the stream.
func (b *Broker) ensureAckNotes(ctx context.Context, sess *amqpconn.Session) {
	ctx, cancel := context.WithTimeout(ctx, prepareWait)
	defer cancel()
	err := b.acks.log.ensureStream(ctx, sess)
	refused := errors.Is(err, amqpconn.ErrAccess)
	b.acks.refused.Store(refused)
	if _, known := b.warned.Load(b.acks.log.queue); refused && !known {
		b.warned.Store(b.acks.log.queue, struct{}{})
		b.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "amqp: the server refuses the stream for notes of acknowledgements; tasks that run at most once do not start",
			slog.String("amqp_queue", b.acks.log.queue), slog.String("error", err.Error()))
	}
}

// declareOne declares a queue and waits for the server. If the queue exists with other arguments
// it logs the difference once and returns nil. A dead queue without limits, from an earlier
// version, is only logged at info level. Returns all other errors of the server.
func (b *Broker) declareOne(ctx context.Context, sess *amqpconn.Session, name string, args amqp.Table) error {
	difference, err := sess.DeclareOrFind(ctx, name, args)
	// a dead queue, which may be one without limits
	if difference != nil && args["x-overflow"] == "drop-head" {
		bounded := difference
		if difference, err = sess.DeclareOrFind(ctx, name, b.unboundedDeadArgs()); difference == nil {
			if err == nil {
				b.logUnbounded(ctx, name)
			}
			return err
		}
		difference = bounded
	}
	if difference != nil {
		b.warnDifference(ctx, name, name, difference)
	}
	return err
}

// logUnbounded logs once that a dead queue of an earlier version has no limits, with the command
// that sets them. It is not a warning, because the queue works as before.
func (b *Broker) logUnbounded(ctx context.Context, name string) {
	if _, known := b.warned.LoadOrStore(name, struct{}{}); !known {
		b.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "amqp: the dead queue was declared without bounds; unless a policy bounds it already, set one",
			slog.String("amqp_queue", name), slog.String("command", b.deadPolicyCommand()))
	}
}

// warnDifference logs once for each key that the queue name exists with other settings.
func (b *Broker) warnDifference(ctx context.Context, key, name string, difference error) {
	if _, known := b.warned.LoadOrStore(key, struct{}{}); !known {
		b.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "amqp: the queue exists with other settings and is used as it is; to create it again, delete it when it is empty",
			slog.String("amqp_queue", name), slog.String("difference", difference.Error()))
	}
}
