package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// rawAMQP is the bare AMQP client. It has two connections, one to publish and one to consume, as
// Swarmiji does.
type rawAMQP struct {
	cfg   *config
	queue string // name on the server
	reply string // queue of replies
	body  int    // bytes of a message, the same as a task of Swarmiji

	pub, con *amqp.Connection
	out      *confirming

	calls calls // by correlation id
}

func dialRawAMQP(ctx context.Context, cfg *config) (client, error) {
	c := &rawAMQP{cfg: cfg, reply: cfg.Queue + "-reply"}
	var err error
	if c.queue, err = locate(ctx, cfg); err != nil {
		return nil, err
	}
	if c.body, err = bodySize(ctx, cfg); err != nil {
		return nil, err
	}
	if c.pub, err = amqp.Dial(cfg.Broker); err != nil {
		return nil, fmt.Errorf("connect to %s: %w", cfg.address(), err)
	}
	if c.con, err = amqp.Dial(cfg.Broker); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to %s: %w", cfg.address(), err), c.pub.Close())
	}
	if c.out, err = newConfirming(c.pub); err != nil {
		return nil, errors.Join(err, c.close(ctx))
	}
	if cfg.Workload == "roundtrip" || cfg.Workload == fill && cfg.Results {
		if err := c.listen(); err != nil {
			return nil, errors.Join(err, c.close(ctx))
		}
	}
	return c, nil
}

// declare does nothing. Swarmiji's broker has already made the queue, so that its arguments are the
// same.
func (c *rawAMQP) declare(context.Context) error { return nil }

func (c *rawAMQP) message() amqp.Publishing {
	return amqp.Publishing{
		ContentType: "application/octet-stream", MessageId: someID,
		DeliveryMode: amqp.Persistent, Body: stamped(c.body),
	}
}

func (c *rawAMQP) submit(context.Context) error { return c.out.publish(c.queue, c.message()) }

func (c *rawAMQP) submitAll(_ context.Context, n int) error {
	var sent [window]*amqp.DeferredConfirmation
	for i := range n + window {
		if d := sent[i%window]; d != nil && !d.Wait() {
			return errors.New("a message was refused")
		}
		sent[i%window] = nil
		if i >= n {
			continue
		}
		d, err := c.out.send(c.queue, c.message())
		if err != nil {
			return err
		}
		sent[i%window] = d
	}
	return c.out.returned()
}

// listen consumes the replies in a goroutine and ends the calls that they answer.
func (c *rawAMQP) listen() error {
	ch, err := c.con.Channel()
	if err != nil {
		return err
	}
	if _, err := ch.QueueDeclare(c.reply, true, false, false, false, nil); err != nil {
		return err
	}
	replies, err := ch.Consume(c.reply, "", false, true, false, false, nil)
	if err != nil {
		return err
	}
	go func() {
		for d := range replies {
			c.calls.end(d.CorrelationId)
			if err := d.Ack(false); err != nil {
				return // the channel is closed, and the callers' contexts report it
			}
		}
	}()
	return nil
}

func (c *rawAMQP) call(ctx context.Context) error {
	m := c.message()
	id, done := c.calls.begin()
	m.CorrelationId, m.ReplyTo = id, c.reply
	if err := c.out.publish(c.queue, m); err != nil {
		return err
	}
	return await(ctx, done)
}

// together is the number of deliveries that -multiple acknowledges at once.
const together = 64

// linger holds the time that a channel stays open after its last acknowledgement, outside of the
// measurement. When a channel closes, RabbitMQ 3.10 forgets acknowledgements that a quorum queue
// has not applied yet. Their tasks would count as left over.
const linger = 500 * time.Millisecond

func (c *rawAMQP) serve(ctx context.Context, seen func([]byte)) error {
	ch, err := c.con.Channel()
	if err != nil {
		return err
	}
	defer func() {
		<-time.After(linger)
		_ = ch.Close()
	}()
	if err := ch.Qos(max(c.cfg.Prefetch, 1), 0, false); err != nil {
		return err
	}
	deliveries, err := ch.Consume(c.queue, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	switch {
	case c.cfg.Workload == "roundtrip":
		return c.answer(ctx, deliveries)
	case c.cfg.Results:
		return c.settleWithResults(ctx, ch, deliveries, seen)
	}
	every := 1
	if c.cfg.Multiple {
		every = together
	}
	return settleEach(ctx, ch, deliveries, every, seen)
}

// settleEach acknowledges the deliveries, every of them at a time, and calls seen for each.
func settleEach(ctx context.Context, ch *amqp.Channel, deliveries <-chan amqp.Delivery, every int, seen func([]byte)) error {
	var tag uint64 // the last delivery that is not acknowledged yet
	for n := 1; ; n++ {
		select {
		case d, ok := <-deliveries:
			if !ok {
				return errors.New("the server ended the consumer")
			}
			seen(d.Body)
			if tag = d.DeliveryTag; n%every == 0 {
				if err := ch.Ack(tag, every > 1); err != nil {
					return err
				}
				tag = 0
			}
		case <-ctx.Done():
			if tag != 0 {
				return ch.Ack(tag, true)
			}
			return nil
		}
	}
}

// settleWithResults sends a persistent reply for each delivery. It acknowledges the delivery when
// the reply is confirmed, together with those before it.
func (c *rawAMQP) settleWithResults(ctx context.Context, ch *amqp.Channel, deliveries <-chan amqp.Delivery, seen func([]byte)) error {
	out, err := newConfirming(c.con)
	if err != nil {
		return err
	}
	type sent struct {
		tag       uint64
		confirmed *amqp.DeferredConfirmation
	}
	replies, acked := make(chan sent, max(c.cfg.Prefetch, 1)), make(chan error, 1)
	go func() {
		n := 0
		for r := range replies {
			if !r.confirmed.Wait() {
				acked <- errors.New("a reply was refused")
				return
			}
			if n++; n%together == 0 || len(replies) == 0 {
				if err := ch.Ack(r.tag, true); err != nil {
					acked <- err
					return
				}
			}
		}
		acked <- out.returned()
	}()
	for {
		select {
		case d, ok := <-deliveries:
			if !ok {
				return errors.New("the server ended the consumer")
			}
			seen(d.Body)
			confirmed, err := out.send(c.reply, c.message())
			if err != nil {
				return err
			}
			select {
			case replies <- sent{d.DeliveryTag, confirmed}:
			case err := <-acked:
				return err
			}
		case err := <-acked:
			return err
		case <-ctx.Done():
			close(replies)
			return <-acked
		}
	}
}

// answer sends a confirmed reply for each delivery and then acknowledges the delivery.
func (c *rawAMQP) answer(ctx context.Context, deliveries <-chan amqp.Delivery) error {
	out, err := newConfirming(c.con)
	if err != nil {
		return err
	}
	for {
		select {
		case d, ok := <-deliveries:
			if !ok {
				return errors.New("the server ended the consumer")
			}
			go func() { // otherwise one reply would wait for the confirmation of another
				m := c.message()
				m.CorrelationId = d.CorrelationId
				if err := out.publish(d.ReplyTo, m); err == nil {
					_ = d.Ack(false) // if the channel is closed, the caller's context reports it
				}
			}()
		case <-ctx.Done():
			return out.returned()
		}
	}
}

func (c *rawAMQP) left(context.Context) (int, error) {
	ch, err := c.con.Channel()
	if err != nil {
		return 0, err
	}
	defer func() { _ = ch.Close() }() // every delivery was acknowledged, so no message is lost
	q, err := ch.QueueDeclarePassive(c.queue, true, false, false, false, nil)
	return q.Messages, err
}

func (c *rawAMQP) remove(context.Context) error { return removeQueues(c.cfg, c.queue, c.reply) }

func (c *rawAMQP) close(context.Context) error { return errors.Join(c.pub.Close(), c.con.Close()) }

// confirming is a channel on which every message is confirmed and must reach a queue.
type confirming struct {
	ch      *amqp.Channel
	unknown atomic.Int64 // number of returned messages
}

func newConfirming(conn *amqp.Connection) (*confirming, error) {
	ch, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	if err := ch.Confirm(false); err != nil {
		return nil, err
	}
	c := &confirming{ch: ch}
	returns := ch.NotifyReturn(make(chan amqp.Return, 16))
	go func() {
		for range returns {
			c.unknown.Add(1)
		}
	}()
	return c, nil
}

// send publishes a message and does not wait.
func (c *confirming) send(queue string, m amqp.Publishing) (*amqp.DeferredConfirmation, error) {
	return c.ch.PublishWithDeferredConfirm("", queue, true, false, m)
}

// publish publishes a message and waits for its confirmation.
func (c *confirming) publish(queue string, m amqp.Publishing) error {
	d, err := c.send(queue, m)
	if err != nil {
		return err
	}
	if !d.Wait() {
		return errors.New("a message was refused")
	}
	return c.returned()
}

// returned returns an error if any message reached no queue.
func (c *confirming) returned() error {
	if n := c.unknown.Load(); n > 0 {
		return fmt.Errorf("%d messages had no queue to go to", n)
	}
	return nil
}
