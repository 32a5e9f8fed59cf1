package amqpbroker

import (
	"context"
	"fmt"
	"math"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
)

// delivery is one message that the server handed to a channel.
type delivery struct {
	msg      broker.Message
	gen      *generation
	consumer *consumer
	tag      uint64
	count    int
	exact    bool
	since    int64 // see publishedAt

	// guarded by gen.mu
	prev, next *delivery // in the ledger
	state      settleState
	note       *roundTrip // of AckSync
}

type settleState uint8

const (
	open    settleState = iota
	busy                // a Release or Bury publishes a copy
	acked               // by AckSync, and it is not known whether the server has taken it
	taken               // by AckSync, and the server's channel has taken it; the note of it is under way
	settled             //
)

func newDelivery(g *generation, c *consumer, m *amqp.Delivery) *delivery {
	d := &delivery{gen: g, consumer: c, tag: m.DeliveryTag, since: publishedAt(m)}
	decode(&d.msg, m)
	d.count, d.exact = deliveries(m)
	return d
}

// deliveries reads how often a message was handed out. Quorum queues count the returns, from the first redelivery on; before
// it the header is what a foreign publisher has copied from somewhere. Classic queues know only whether there was a delivery.
func deliveries(m *amqp.Delivery) (n int, exact bool) {
	if !m.Redelivered {
		return 1, true
	}
	if n, ok := integer(m.Headers["x-delivery-count"]); ok && n >= 0 && n < math.MaxInt32 {
		return int(n) + 1, true
	}
	return 2, false
}

// Message implements [broker.Delivery].
func (d *delivery) Message() *broker.Message { return &d.msg }

// Deliveries implements [broker.Delivery].
func (d *delivery) Deliveries() (n int, exact bool) { return d.count, d.exact }

// Lost implements [broker.Delivery]. It is one channel for all that was delivered on one AMQP channel.
func (d *delivery) Lost() <-chan struct{} { return d.gen.lost }

// check returns why d cannot be settled; gen.mu is held.
func (d *delivery) check() error {
	switch {
	case d.state == settled || d.state == busy || d.state == acked || d.state == taken:
		return broker.ErrSettled
	case d.gen.dead:
		return broker.ErrLeaseLost
	default:
		return nil
	}
}

func (d *delivery) failed(what string, err error) error {
	if err == nil {
		return nil
	}
	return wrap(fmt.Errorf("message %.128q: %w", d.msg.ID, err), what, d.gen.st.sub.queue)
}

// Ack implements [broker.Delivery]. It never waits.
func (d *delivery) Ack(context.Context) error {
	d.gen.mu.Lock()
	defer d.gen.mu.Unlock()
	if err := d.check(); err != nil {
		return d.failed("acknowledge", err)
	}
	d.state = settled
	d.gen.ack(d, false)
	return nil
}

// AckSync implements [broker.SyncAcker]. It asks for an answer on the same channel behind the acknowledgement, and beside it
// writes a note into a stream. The answer shows that the server's channel has taken the acknowledgement. A classic queue has
// removed the message then. A quorum queue has been told and will: the channel does not wait until a majority of the nodes has
// written it down. If the server dies within that moment the message comes again, and the note tells AckedBefore.
//
// Errors: broker.ErrLeaseLost when nothing was sent, and the message will be seen again; broker.ErrIndeterminate when the
// acknowledgement was sent, and an answer did not come before ctx or the channel ended. Then AckSync may be called again, to
// wait for longer. Once Lost is closed it is broker.ErrIndeterminate at once. If the server does not permit the stream it is
// broker.ErrUnavailable with broker.ErrAccess, and nothing was sent.
func (d *delivery) AckSync(ctx context.Context) error {
	g, key := d.gen, d.key().short()
	g.mu.Lock()
	if d.state != acked && d.state != taken {
		err := d.check()
		if err == nil && g.st.sub.b.acks.refused.Load() {
			err = fmt.Errorf("%w: %w: the server refuses the notes of acknowledgements", broker.ErrUnavailable, broker.ErrAccess)
		}
		if err != nil {
			g.mu.Unlock()
			return d.failed("acknowledge", err)
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
			return d.failed("acknowledge", fmt.Errorf("%w: %w", broker.ErrIndeterminate, err))
		}
		g.mu.Lock()
		d.state = taken
		g.mu.Unlock()
	}
	err := note.await(ctx, g.lost)
	g.mu.Lock()
	defer g.mu.Unlock()
	// If the channel has gone the message may be with somebody who has read the notes before this one was there.
	if err == nil && g.dead {
		err = errChannelGone
	}
	if err != nil {
		return d.failed("acknowledge", fmt.Errorf("%w: the note of it: %w", broker.ErrIndeterminate, err))
	}
	d.state = settled
	return nil
}

func (d *delivery) key() messageKey {
	return keyOf(d.gen.st.sub.queue, d.msg.ID, d.msg.Generation, d.msg.Body)
}

// AckedBefore implements [broker.AckChecker]. It is true also if the notes do not reach back to when the message was published,
// or if the message does not say when that was.
func (d *delivery) AckedBefore(ctx context.Context) (bool, error) {
	var since time.Time
	if now := time.Now().Add(clockSkew).Unix(); d.since > 0 && d.since < now {
		since = time.Unix(d.since, 0)
	}
	acked, err := d.gen.st.sub.b.acks.has(ctx, d.key().short(), since)
	return acked, d.failed("read the notes of", err)
}

// giveBack returns d to its queue. It is for deliveries that nobody has got.
func (d *delivery) giveBack() {
	d.gen.mu.Lock()
	defer d.gen.mu.Unlock()
	if d.check() == nil {
		d.requeue()
	}
}

// requeue tells the server at once; gen.mu is held. So an acknowledgement "and all below" that follows leaves d alone.
func (d *delivery) requeue() {
	d.state = settled
	d.gen.remove(d)
	_ = d.gen.ch.Nack(d.tag, false, true) // it goes back in any case if the channel has gone
}

// Release implements [broker.Delivery]. After longer than 0 a copy with the next Generation waits in the delay topology, and
// the delivery is acknowledged when the copy is confirmed.
func (d *delivery) Release(ctx context.Context, after time.Duration) error {
	if after <= 0 {
		d.gen.mu.Lock()
		defer d.gen.mu.Unlock()
		if err := d.check(); err != nil {
			return d.failed("release", err)
		}
		d.requeue()
		return nil
	}
	at := time.Now().Add(after)
	return d.failed("release", d.replace(func() error {
		b := d.gen.st.sub.b
		next := d.msg
		next.Generation++
		var p amqp.Publishing
		b.warnDropped(ctx, d.gen.st.sub.queue, next.ID, encodeCopy(&p, &next))
		return b.publishDelayed(ctx, d.gen.st.name, &p, at)
	}))
}

// Bury implements [broker.Delivery]: a copy with the reason goes to the dead queue, and the delivery is acknowledged when the
// copy is confirmed.
func (d *delivery) Bury(ctx context.Context, dead broker.Dead) error {
	dead.Message = &d.msg
	return d.failed("bury", d.replace(func() error {
		return d.gen.st.sub.b.putDead(ctx, d.gen.st.sub.queue, dead)
	}))
}

// replace publishes a copy and then acknowledges d. If it fails d can be settled again.
func (d *delivery) replace(publish func() error) error {
	g := d.gen
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
	if g.dead { // the copy is there, and the message will be seen again
		return broker.ErrLeaseLost
	}
	d.state = settled
	g.ack(d, false)
	return nil
}
