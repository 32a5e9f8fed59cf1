package amqpbroker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/amqpconn"
)

// maxReason is the most bytes of a dead letter's reason that are kept.
const maxReason = 4 << 10

// bury publishes m to the dead queue of queue, which is declared if it is not there.
func (b *Broker) bury(ctx context.Context, queue string, m *broker.Message, cause error) error {
	var p amqp.Publishing
	b.warnDropped(ctx, queue, m.ID, encodeCopy(&p, m))
	reason := "no reason was given"
	if cause != nil {
		reason = cause.Error()
	}
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "")
	}
	p.Headers[headerReason] = reason
	p.Headers[headerQueue] = queue
	p.Headers[headerDied] = time.Now().UnixMilli()
	err := b.direct.Publish(ctx, "", b.names.dead(queue), &p)
	if !errors.Is(err, amqpconn.ErrUnroutable) {
		return err
	}
	if err := b.retry(ctx, func(sess *amqpconn.Session) error {
		return b.declareOne(ctx, sess, b.names.dead(queue), b.deadArgs())
	}); err != nil {
		return err
	}
	return b.direct.Publish(ctx, "", b.names.dead(queue), &p)
}

// deadLetter reads a message of the dead queue, put there by bury or by the server.
func deadLetter(queue string, d *amqp.Delivery) broker.Dead {
	m := &broker.Message{}
	decode(m, d)
	dead := broker.Dead{Message: m, Queue: queue}
	if q, ok := d.Headers[headerQueue].(string); ok {
		dead.Queue = q
	}
	if ms, ok := integer(d.Headers[headerDied]); ok {
		dead.At = time.UnixMilli(ms)
	}
	if r, ok := d.Headers[headerReason].(string); ok {
		dead.Reason = r
		return dead
	}
	dead.Reason = "dead-lettered by the server"
	if r, ok := d.Headers["x-first-death-reason"].(string); ok {
		dead.Reason += ": " + r
	}
	if deaths, ok := d.Headers["x-death"].([]any); ok && len(deaths) > 0 {
		if death, ok := deaths[0].(amqp.Table); ok {
			if t, ok := death["time"].(time.Time); ok {
				dead.At = t
			}
		}
	}
	return dead
}

// withDead calls fn with a channel of its own on the dead queue; again is whether fn may be called again when the connection
// has ended. A dead queue that is not there is an empty one, provided that the queue is there.
func (b *Broker) withDead(ctx context.Context, queue string, again bool, fn func(ch *amqp.Channel, name string) error) error {
	if _, err := b.route(queue, defaultPriority); err != nil {
		return err
	}
	name := b.names.dead(queue)
	do := func(sess *amqpconn.Session) error {
		return sess.Do(ctx, func(ch *amqp.Channel) error {
			if _, err := ch.QueueDeclarePassive(name, true, false, false, false, nil); err != nil {
				return err
			}
			return fn(ch, name)
		})
	}
	sess, err := b.con.Session(ctx)
	switch {
	case err != nil:
		return err
	case again:
		err = b.retry(ctx, do)
	default:
		err = do(sess)
	}
	if amqpconn.IsNotFound(err) {
		_, err = b.ready(ctx, b.all(queue))
	}
	return err
}

// maxListed is how many dead letters are fetched to keep their order.
const maxListed = 1000

// ListDead implements [broker.DeadLetterer]. AMQP has no look at a queue: messages are fetched and given back, and meanwhile
// other readers do not see them. A quorum queue puts what is given back behind what was given back before; so all are
// fetched, up to 1,000, even if fewer are asked for. Beyond 1,000 dead letters the order may change.
func (b *Broker) ListDead(ctx context.Context, queue string, n int) ([]broker.Dead, error) {
	var dead []broker.Dead
	err := b.withDead(ctx, queue, true, func(ch *amqp.Channel, name string) error {
		var last uint64
		dead = nil
		for range max(n, maxListed) {
			d, ok, err := ch.Get(name, false)
			if err != nil {
				return err
			}
			if !ok {
				break
			}
			last = d.DeliveryTag
			if len(dead) < n {
				dead = append(dead, deadLetter(queue, &d))
			}
		}
		if last == 0 {
			return nil
		}
		return ch.Nack(last, true, true)
	})
	if err != nil {
		return nil, wrap(err, "list the dead letters of", queue)
	}
	return dead, nil
}

// RequeueDead implements [broker.DeadLetterer]. A failure between publishing and removing leaves the message in both places.
func (b *Broker) RequeueDead(ctx context.Context, queue string, n int) (int, error) {
	var moved atomic.Int64 // when ctx has ended the function below may still be at work
	err := b.withDead(ctx, queue, false, func(ch *amqp.Channel, name string) error {
		for moved.Load() < int64(n) && ctx.Err() == nil {
			d, ok, err := ch.Get(name, false)
			if err != nil || !ok {
				return err
			}
			m := deadLetter(queue, &d).Message
			m.Generation++
			m.Expires = time.Time{} // it was asked for just now
			if err := b.republish(ctx, queue, m); err != nil {
				return errors.Join(err, ch.Nack(d.DeliveryTag, false, true))
			}
			if err := ch.Ack(d.DeliveryTag, false); err != nil {
				return fmt.Errorf("%d messages are published and may be dead letters still: %w", moved.Load()+1, err)
			}
			moved.Add(1)
		}
		return ctx.Err()
	})
	return int(moved.Load()), wrap(err, "requeue the dead letters of", queue)
}

// republish puts a dead letter back into its queue.
func (b *Broker) republish(ctx context.Context, queue string, m *broker.Message) error {
	key, err := b.route(queue, m.Priority)
	if err != nil {
		return err
	}
	var p amqp.Publishing
	b.warnDropped(ctx, queue, m.ID, encodeCopy(&p, m))
	return b.direct.Publish(ctx, "", key, &p)
}

// PurgeDead implements [broker.DeadLetterer].
func (b *Broker) PurgeDead(ctx context.Context, queue string) (int, error) {
	var n int
	err := b.withDead(ctx, queue, true, func(ch *amqp.Channel, name string) error {
		var err error
		n, err = ch.QueuePurge(name, false)
		return err
	})
	if err != nil {
		return 0, wrap(err, "purge the dead letters of", queue)
	}
	return n, nil
}
