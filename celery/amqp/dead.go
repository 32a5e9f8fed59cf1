package amqp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/amqpconn"
	"github.com/swarmiji/swarmiji/internal/amqpdead"
)

// deadQueue returns the name of the queue that holds the dead letters of a queue.
func deadQueue(queue string) string { return queue + ".dead" }

// deadArgs returns the arguments of a dead queue: the limits of age and number. A full dead queue
// drops its oldest letters. If it refused new ones, the work queue could not settle.
func (b *Broker) deadArgs() amqp.Table {
	args := amqp.Table{}
	if b.cfg.DeadTTL > 0 {
		args["x-message-ttl"] = max(1, b.cfg.DeadTTL.Milliseconds())
	}
	if b.cfg.DeadMax > 0 {
		args["x-max-length"] = int64(b.cfg.DeadMax)
		args["x-overflow"] = "drop-head"
	}
	return args
}

// PutDead implements [broker.DeadLetterer]. It declares the dead queue if that does not exist, and
// waits until RabbitMQ has confirmed the letter. The queue itself need not exist. Returns
// ErrMalformed for a name that is not valid or a missing message. After ErrIndeterminate the letter
// may be stored.
func (b *Broker) PutDead(ctx context.Context, queue string, d broker.Dead) error {
	err := checkQueue(queue)
	if err == nil && d.Message == nil {
		err = fmt.Errorf("%w: no message", broker.ErrMalformed)
	}
	if err == nil {
		err = b.publishDead(ctx, queue, d)
	}
	return amqpconn.BrokerError(err, "dead-letter in", queue)
}

// publishDead publishes the dead letter d to the dead queue of queue and waits for the
// confirmation. If the dead queue does not exist, it declares the queue and publishes again, once.
// Headers that the copy cannot keep are logged.
func (b *Broker) publishDead(ctx context.Context, queue string, d broker.Dead) error {
	d = d.Normalized()
	var p amqp.Publishing
	b.warnDropped(ctx, queue, d.Message.ID, encodeCopy(&p, d.Message))
	amqpdead.Stamp(&p, queue, d)
	name := deadQueue(queue)
	err := b.direct.Publish(ctx, "", name, &p)
	if !errors.Is(err, amqpconn.ErrUnroutable) {
		return err
	}
	err = b.con.Retry(ctx, func(sess *amqpconn.Session) error {
		difference, err := sess.DeclareOrFind(ctx, name, b.deadArgs())
		if err == nil && difference != nil {
			b.warnDifference(ctx, name, name, difference)
		}
		return err
	})
	if err != nil {
		return err
	}
	return b.direct.Publish(ctx, "", name, &p)
}

// warnDropped logs a warning with the names of the headers that the copy of a message has lost. It
// does nothing if dropped is empty.
func (b *Broker) warnDropped(ctx context.Context, queue, id string, dropped []string) {
	if len(dropped) > 0 {
		b.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "celery: a copy of a message could not keep all headers",
			slog.String("queue", queue), slog.String("task_id", id), slog.Any("dropped", dropped))
	}
}

// ScanDead implements [broker.DeadLetterer], see [amqpdead.Scans.Scan]. Until it returns, no other
// consumer sees the letters.
//
// Returns nil without a call of fn if the dead queue does not exist, ErrNoQueue if the queue does
// not exist either. If ctx ends it returns ErrUnavailable at once, and another goroutine returns
// the kept letters.
func (b *Broker) ScanDead(ctx context.Context, queue string, fn func(*broker.Dead) broker.DeadAction) error {
	err := checkQueue(queue)
	if err == nil {
		open := func(ctx context.Context, fn func(ch *amqp.Channel, name string) error) error {
			return b.openDead(ctx, queue, fn)
		}
		decode := func(d *amqp.Delivery) broker.Dead {
			m := &broker.Message{}
			decode(m, d)
			return amqpdead.Read(queue, m, d)
		}
		err = b.scans.Scan(ctx, queue, open, decode, fn)
	}
	return amqpconn.BrokerError(err, "scan the dead letters of", queue)
}

// openDead calls fn with a temporary channel and the name of the dead queue of queue, and returns
// fn's error. If the dead queue does not exist but the queue does, fn is not called and openDead
// returns nil. Returns the server's "not found" if neither exists.
func (b *Broker) openDead(ctx context.Context, queue string, fn func(ch *amqp.Channel, name string) error) error {
	name := deadQueue(queue)
	err := b.con.Do(ctx, func(ch *amqp.Channel) error {
		if _, err := ch.QueueDeclarePassive(name, true, false, false, false, nil); err != nil {
			return err
		}
		return fn(ch, name)
	})
	if amqpconn.IsNotFound(err) {
		_, err = b.count(ctx, queue)
	}
	return err
}

// PurgeDead implements [broker.DeadLetterer]. It waits for the server and returns the number of
// removed letters, 0 if the dead queue does not exist. Returns ErrNoQueue if the queue does not
// exist either. After an error the number is 0, although letters may have been removed.
func (b *Broker) PurgeDead(ctx context.Context, queue string) (int, error) {
	if err := checkQueue(queue); err != nil {
		return 0, amqpconn.BrokerError(err, "purge the dead letters of", queue)
	}
	n, err := b.purge(ctx, deadQueue(queue))
	if amqpconn.IsNotFound(err) {
		_, err = b.count(ctx, queue)
	}
	return n, amqpconn.BrokerError(err, "purge the dead letters of", queue)
}
