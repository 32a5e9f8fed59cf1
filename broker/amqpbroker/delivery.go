package amqpbroker

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
	msg      broker.Message
	channel  *channel
	consumer *consumer
	tag      uint64
	count    int
	exact    bool
	since    int64 // see publishedAt

	// guarded by channel.mu
	prev, next *delivery // in the channel's list of unsettled deliveries
	state      settleState
	note       *roundTrip // result of the note that AckSync writes
}

// settleState is the progress of a delivery's settlement.
type settleState uint8

const (
	open  settleState = iota
	busy              // a copy is being published by Release or [delivery.DeadLetter]
	acked             // AckSync sent the acknowledgement; it is not known whether it arrived
	// AckSync knows that the acknowledgement arrived; its note is not confirmed yet
	taken
	settled
)

// newDelivery returns the delivery of m to consumer c on the channel g. It does not add it to the
// channel's list.
func newDelivery(g *channel, c *consumer, m *amqp.Delivery) *delivery {
	d := &delivery{channel: g, consumer: c, tag: m.DeliveryTag, since: publishedAt(m)}
	decode(&d.msg, m)
	d.count, d.exact = deliveries(m)
	return d
}

// deliveries returns how often m was delivered and whether that is exact.
//
// Quorum queues count the returns in a header, from the first redelivery on. On a first delivery
// the header is ignored, since a foreign publisher may have copied it. Classic queues know only
// whether the delivery is the first: (2, false) means that it is not.
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

// Deliveries implements [broker.Delivery]. On quorum queues it is exact. On classic queues every
// later delivery is (2, false).
func (d *delivery) Deliveries() (n int, exact bool) { return d.count, d.exact }

// Lost implements [broker.Delivery]. All deliveries of one AMQP channel share one Go channel.
func (d *delivery) Lost() <-chan struct{} { return d.channel.lost }

// check returns nil if d can be settled, ErrSettled if it is settled or being settled, ErrLeaseLost
// if its AMQP channel is closed. Call it with d.channel.mu held.
func (d *delivery) check() error {
	switch {
	case d.state == settled || d.state == busy || d.state == acked || d.state == taken:
		return broker.ErrSettled
	case d.channel.dead:
		return broker.ErrLeaseLost
	default:
		return nil
	}
}

// wrapErr returns err with the operation what, the message's id and the queue in its text, nil for
// a nil err.
func (d *delivery) wrapErr(what string, err error) error {
	if err == nil {
		return nil
	}
	return wrap(fmt.Errorf("message %.128q: %w", d.msg.ID, err), what, d.channel.st.sub.queue)
}

// Ack implements [broker.Delivery]. It does not block. The acknowledgement may be sent up to 1 ms
// later, with others. If it is lost with the channel, Ack has returned nil, and the message is
// delivered again. Returns ErrSettled or ErrLeaseLost if d cannot be settled. It takes the
// channel's mutex and removes d from the channel's unsettled list.
func (d *delivery) Ack(context.Context) error {
	d.channel.mu.Lock()
	defer d.channel.mu.Unlock()
	if err := d.check(); err != nil {
		return d.wrapErr("acknowledge", err)
	}
	d.state = settled
	d.channel.ack(d, false)
	return nil
}

// AckSync implements [broker.SyncAcker]. It sends the acknowledgement, waits for a round trip on
// the same channel, and writes a note of it into a stream. It takes the channel's mutex, but not
// while it waits.
//
// The round trip shows that the server's channel has received the acknowledgement. A classic queue
// has removed the message then. A quorum queue removes it soon: the server does not wait until a
// majority of the nodes has stored it. If the server dies in that moment the message is delivered
// again, and AckedBefore finds the note.
//
// Errors:
//
//   - broker.ErrLeaseLost: nothing was sent, and the message is delivered again.
//   - broker.ErrSettled: d is settled, or another settlement is in progress.
//   - broker.ErrIndeterminate: the acknowledgement was sent, and no answer arrived before ctx or
//     the channel ended, or the note could not be written. AckSync may be called again to wait
//     longer: it sends no second acknowledgement, but a failed note again. Once Lost is closed it
//     returns this error at once.
//   - broker.ErrUnavailable with broker.ErrAccess: the server does not permit the stream, and
//     nothing was sent.
func (d *delivery) AckSync(ctx context.Context) error {
	g, key := d.channel, d.key().prefix64()
	g.mu.Lock()
	if d.state != acked && d.state != taken {
		err := d.check()
		if err == nil && g.st.sub.b.acks.refused.Load() {
			err = fmt.Errorf("%w: %w: the server refuses the notes of acknowledgements", broker.ErrUnavailable, broker.ErrAccess)
		}
		if err != nil {
			g.mu.Unlock()
			return d.wrapErr("acknowledge", err)
		}
		d.state = acked
		g.ack(d, true)
	}
	if d.note == nil || d.note.failed() {
		d.note = g.st.sub.b.acks.add(key)
	}
	note, known := d.note, d.state == taken
	g.mu.Unlock()
	if !known {
		if err := g.barrier(ctx); err != nil {
			return d.wrapErr("acknowledge", fmt.Errorf("%w: %w", broker.ErrIndeterminate, err))
		}
		g.mu.Lock()
		d.state = taken
		g.mu.Unlock()
	}
	err := note.await(ctx, g.lost)
	g.mu.Lock()
	defer g.mu.Unlock()
	// If the channel is closed, another consumer may have the message and may have read the notes
	// before this one was written.
	if err == nil && g.dead {
		err = errChannelClosed
	}
	if err != nil {
		return d.wrapErr("acknowledge", fmt.Errorf("%w: write the note: %w", broker.ErrIndeterminate, err))
	}
	d.state = settled
	return nil
}

// key returns the name of the message in notes.
func (d *delivery) key() messageKey {
	return keyOf(d.channel.st.sub.queue, d.msg.ID, d.msg.Generation, d.msg.Body)
}

// AckedBefore implements [broker.AckChecker]. It reads the stream of acknowledgement notes up to
// its end, and blocks until that is done or ctx ends. It returns true if a note names the message.
//
// It also returns true if the notes do not go back to the time of publishing. The same holds if the
// message holds no such time, or one that lies more than clockSkew in the future. Returns
// ErrUnavailable if ctx ends first or the stream was created again, ErrClosed after Close.
func (d *delivery) AckedBefore(ctx context.Context) (bool, error) {
	var since time.Time
	if now := time.Now().Add(clockSkew).Unix(); d.since > 0 && d.since < now {
		since = time.Unix(d.since, 0)
	}
	acked, err := d.channel.st.sub.b.acks.has(ctx, d.key().prefix64(), since)
	return acked, d.wrapErr("read the notes of", err)
}

// giveBack returns d to its queue, without waiting. It is for deliveries that Receive has not
// returned. It does nothing if d is settled or its channel is closed. It takes d.channel.mu.
func (d *delivery) giveBack() {
	d.channel.mu.Lock()
	defer d.channel.mu.Unlock()
	if d.check() == nil {
		d.requeue()
	}
}

// requeue marks d as settled, removes it from its channel's unsettled list (see remove), and sends
// the server a rejection with requeue at once. A later multiple acknowledgement therefore does not
// cover d. It ignores the error of the sending. Call it with d.channel.mu held.
func (d *delivery) requeue() {
	d.state = settled
	d.channel.remove(d)
	_ = d.channel.ch.Nack(d.tag, false, true) // a closed channel returns the message anyway
}

// Release implements [broker.Delivery]. If after is 0 or less the message goes back at once, and
// Release does not block. Otherwise a copy with the next Generation waits in the delay queues.
// Release waits until the server has confirmed the copy, and then acknowledges the delivery.
// Headers that the copy cannot keep are logged.
//
// Returns ErrSettled or ErrLeaseLost if d cannot be settled, ErrUnsupported for more than 8.7
// years. If the copy cannot be published, Release returns that error and d can be settled again. It
// takes the channel's mutex, but not while it waits.
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
		b := d.channel.st.sub.b
		next := d.msg
		next.Generation++
		var p amqp.Publishing
		b.warnDropped(ctx, d.channel.st.sub.queue, next.ID, encodeCopy(&p, &next))
		return b.publishDelayed(ctx, d.channel.st.name, &p, at)
	}))
}

// DeadLetter implements [broker.Delivery]. It publishes a copy with the reason to the dead queue,
// which it declares if necessary, and waits for the confirmation. Then it acknowledges the
// delivery. If the channel was closed meanwhile it returns ErrLeaseLost: the letter stays, and the
// message is delivered again. See publishThenAck for the other errors.
func (d *delivery) DeadLetter(ctx context.Context, dead broker.Dead) error {
	dead.Message = &d.msg
	return d.wrapErr("dead-letter", d.publishThenAck(func() error {
		return d.channel.st.sub.b.publishDead(ctx, d.channel.st.sub.queue, dead)
	}))
}

// publishThenAck calls publish, which publishes a copy of the message, and then acknowledges d. It
// takes the channel's mutex, but not while publish runs.
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
	d.state = busy
	g.mu.Unlock()
	err := publish()
	g.mu.Lock()
	defer g.mu.Unlock()
	d.state = open
	if err != nil {
		return err
	}
	if g.dead { // the copy is published, and the original will be delivered again
		return broker.ErrLeaseLost
	}
	d.state = settled
	g.ack(d, false)
	return nil
}
