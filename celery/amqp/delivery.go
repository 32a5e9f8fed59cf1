package amqp

import (
	"context"
	"fmt"
	"math"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/amqpconn"
)

// delivery is one message that the server delivered on a channel.
type delivery struct {
	msg     broker.Message
	channel *channel
	tag     uint64
	count   int
	exact   bool

	// guarded by channel.mu
	prev, next *delivery // in the channel's list of unsettled deliveries
	settled    bool      // or a copy is being published by Release or DeadLetter
}

// deliveries returns how often m was delivered and whether that is exact. Quorum queues count the
// returns in a header, from the first redelivery on. Classic queues know only whether the delivery
// is the first: (2, false) means that it is not.
func deliveries(m *amqp.Delivery) (n int, exact bool) {
	if !m.Redelivered {
		return 1, true
	}
	if n, ok := amqpconn.Integer(m.Headers["x-delivery-count"]); ok && n >= 0 && n < math.MaxInt32 {
		return int(n) + 1, true
	}
	return 2, false
}

// Message implements [broker.Delivery]. It returns the same pointer each time.
func (d *delivery) Message() *broker.Message { return &d.msg }

// Deliveries implements [broker.Delivery]. On classic queues every later delivery is (2, false).
func (d *delivery) Deliveries() (n int, exact bool) { return d.count, d.exact }

// Lost implements [broker.Delivery]. All deliveries of one AMQP channel share one Go channel.
func (d *delivery) Lost() <-chan struct{} { return d.channel.lost }

// check returns nil if d can be settled, ErrSettled if it is settled or being settled, ErrLeaseLost
// if its AMQP channel is closed. Call it with d.channel.mu held.
func (d *delivery) check() error {
	switch {
	case d.settled:
		return broker.ErrSettled
	case d.channel.dead:
		return broker.ErrLeaseLost
	}
	return nil
}

// wrapErr returns err with the operation what, the message's id and the queue in its text, nil for
// a nil err.
func (d *delivery) wrapErr(what string, err error) error {
	if err == nil {
		return nil
	}
	return amqpconn.BrokerError(fmt.Errorf("message %.128q: %w", d.msg.ID, err), what, d.channel.sub.queue)
}

// Ack implements [broker.Delivery]. It does not block. The acknowledgement may be sent up to 1 ms
// later, with others. If it is lost with the channel, Ack has returned nil, and the message is
// delivered again. Returns ErrSettled or ErrLeaseLost if d cannot be settled.
func (d *delivery) Ack(context.Context) error {
	d.channel.mu.Lock()
	defer d.channel.mu.Unlock()
	if err := d.check(); err != nil {
		return d.wrapErr("acknowledge", err)
	}
	d.settled = true
	d.channel.ack(d)
	return nil
}

// giveBack returns d to its queue, without waiting. It does nothing if d is settled or its channel
// is closed.
func (d *delivery) giveBack() {
	d.channel.mu.Lock()
	defer d.channel.mu.Unlock()
	if d.check() == nil {
		d.requeue()
	}
}

// requeue marks d as settled, removes it from its channel's unsettled list, and sends the server a
// rejection with requeue at once. A later multiple acknowledgement therefore does not cover d. It
// ignores the error of the sending. Call it with d.channel.mu held.
func (d *delivery) requeue() {
	d.settled = true
	d.channel.remove(d)
	_ = d.channel.ch.Nack(d.tag, false, true) // a closed channel returns the message anyway
}

// Release implements [broker.Delivery]. If after is 0 or less the message goes back at once, and
// Release does not block. Otherwise a copy with the next Generation waits in the delay queues.
// Release waits until the server has confirmed the copy, and then acknowledges the delivery.
// Headers that the copy cannot keep are logged.
//
// Returns ErrSettled or ErrLeaseLost if d cannot be settled, ErrUnsupported for more than 8.7
// years. If the copy cannot be published, Release returns that error and d can be settled again.
func (d *delivery) Release(ctx context.Context, after time.Duration) error {
	if after <= 0 {
		d.channel.mu.Lock()
		defer d.channel.mu.Unlock()
		if err := d.check(); err != nil {
			return d.wrapErr("release", err)
		}
		d.requeue()
		return nil
	}
	at := time.Now().Add(after)
	return d.wrapErr("release", d.publishThenAck(func() error {
		b, queue := d.channel.sub.b, d.channel.sub.queue
		next := d.msg
		next.Generation++
		var p amqp.Publishing
		b.warnDropped(ctx, queue, next.ID, encodeCopy(&p, &next))
		return b.delays.Publish(ctx, queue, &p, at)
	}))
}

// DeadLetter implements [broker.Delivery]. It publishes a copy with the reason to the dead queue,
// which it declares if necessary, and waits for the confirmation. Then it acknowledges the
// delivery. If the channel was closed meanwhile it returns ErrLeaseLost: the letter stays, and the
// message is delivered again. See publishThenAck for the other errors.
func (d *delivery) DeadLetter(ctx context.Context, dead broker.Dead) error {
	dead.Message = &d.msg
	return d.wrapErr("dead-letter", d.publishThenAck(func() error {
		return d.channel.sub.b.publishDead(ctx, d.channel.sub.queue, dead)
	}))
}

// publishThenAck calls publish, which publishes a copy of the message, and then acknowledges d.
//
//   - d cannot be settled: it returns ErrSettled or ErrLeaseLost and does not call publish.
//   - publish fails: it returns the error, and d can be settled again.
//   - The channel was closed during publish: it returns ErrLeaseLost, although the copy is
//     published.
//
// While publish runs, other settlements of d return ErrSettled.
func (d *delivery) publishThenAck(publish func() error) error {
	g := d.channel
	g.mu.Lock()
	if err := d.check(); err != nil {
		g.mu.Unlock()
		return err
	}
	d.settled = true
	g.mu.Unlock()
	err := publish()
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil {
		d.settled = false
		return err
	}
	if g.dead { // the copy is published, and the original will be delivered again
		d.settled = false
		return broker.ErrLeaseLost
	}
	g.ack(d)
	return nil
}
