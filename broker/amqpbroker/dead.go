package amqpbroker

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/amqpconn"
	"github.com/swarmiji/swarmiji/internal/amqpdead"
	"github.com/swarmiji/swarmiji/internal/wake"
)

// publishDead publishes the dead letter d to the dead queue of queue and waits for the
// confirmation. d.Message is copied with [encodeCopy], which never refuses a message; dropped
// headers are logged. Reason, Queue, At, Stack and Attempts become headers.
//
// If the dead queue does not exist or RabbitMQ refuses the letter, publishDead declares the queue
// and publishes again, up to 10 times. RabbitMQ refuses letters while another process creates the
// queue; then it first pauses for deadPause. Returns the errors of the declaration and all other
// errors of the publish at once. If ctx ends during a pause it returns the last error.
func (b *Broker) publishDead(ctx context.Context, queue string, d broker.Dead) error {
	d = d.Normalized()
	var p amqp.Publishing
	b.warnDropped(ctx, queue, d.Message.ID, encodeCopy(&p, d.Message))
	amqpdead.Stamp(&p, queue, d)
	for attempt := 0; ; attempt++ {
		err := b.direct.Publish(ctx, "", b.names.dead(queue), &p)
		making := errors.Is(err, amqpconn.ErrRefused) // another process is just creating the quorum queue
		if !making && !errors.Is(err, amqpconn.ErrUnroutable) || attempt == deadAttempts {
			return err
		}
		if err := b.con.Retry(ctx, func(sess *amqpconn.Session) error { return b.declareDead(ctx, sess, queue) }); err != nil {
			return err
		}
		if making && !wake.Sleep(ctx, deadPause) {
			return err
		}
	}
}

// The number of retries and the pause before a retry of a dead letter whose dead queue did not
// exist.
const (
	deadAttempts = 10
	deadPause    = 50 * time.Millisecond
)

// PutDead implements [broker.DeadLetterer]. It declares the dead queue if that does not exist, and
// waits until RabbitMQ has confirmed the letter. The queue itself need not exist. Returns
// ErrMalformed for a name that is not valid or a missing message. After ErrIndeterminate the letter
// may be stored.
func (b *Broker) PutDead(ctx context.Context, queue string, d broker.Dead) error {
	if _, err := b.route(queue, defaultPriority); err != nil {
		return wrap(err, "dead-letter in", queue)
	}
	if d.Message == nil {
		return wrap(fmt.Errorf("%w: no message", broker.ErrMalformed), "dead-letter in", queue)
	}
	return wrap(b.publishDead(ctx, queue, d), "dead-letter in", queue)
}

// decodeDead returns the dead letter in d, a message of the dead queue of queue.
func decodeDead(queue string, d *amqp.Delivery) broker.Dead {
	m := &broker.Message{}
	decode(m, d)
	return amqpdead.Read(queue, m, d)
}

// withDeadQueue calls fn with a temporary channel and the name of the dead queue of queue, and
// returns fn's error. If again is true, fn is called again when the connection ends during the
// call. It waits for the server.
//
// If the dead queue does not exist but the queue does, fn is not called and withDeadQueue returns
// nil. Returns the server's "not found" if neither exists, ErrMalformed for a name that is not
// valid.
func (b *Broker) withDeadQueue(ctx context.Context, queue string, again bool, fn func(ch *amqp.Channel, name string) error) error {
	if _, err := b.route(queue, defaultPriority); err != nil {
		return err
	}
	// letters that are published again need their level and lane
	if err := b.loadLevelsCached(ctx, queue); err != nil && !amqpconn.IsNotFound(err) {
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
		err = b.con.Retry(ctx, do)
	default:
		err = do(sess)
	}
	if amqpconn.IsNotFound(err) {
		_, err = b.countReady(ctx, b.amqpQueues(queue))
	}
	return err
}

// PurgeDead implements [broker.DeadLetterer]. It waits for the server and returns the number of
// removed letters, 0 if the dead queue does not exist. Returns ErrNoQueue if the queue does not
// exist either. After an error the number is 0, although letters may have been removed.
func (b *Broker) PurgeDead(ctx context.Context, queue string) (int, error) {
	var n int
	err := b.withDeadQueue(ctx, queue, true, func(ch *amqp.Channel, name string) error {
		var err error
		n, err = ch.QueuePurge(name, false)
		return err
	})
	if err != nil {
		return 0, wrap(err, "purge the dead letters of", queue)
	}
	return n, nil
}
