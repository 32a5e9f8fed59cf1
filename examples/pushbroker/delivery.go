package pushbroker

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// state says whether a delivery may still be settled.
type state int

const (
	open state = iota
	settled
	lost // the hub took it back
)

// delivery is one delivery of a message.
type delivery struct {
	sub   *subscription
	item  *item
	n     int // of this hand-out
	state state
}

// Message implements [broker.Delivery].
func (d *delivery) Message() *broker.Message { return d.item.message }

// Deliveries implements [broker.Delivery]. The hub counts exactly.
func (d *delivery) Deliveries() (int, bool) { return d.n, true }

// Lost implements [broker.Delivery].
func (d *delivery) Lost() <-chan struct{} { return d.sub.node.gone }

// Ack implements [broker.Delivery].
func (d *delivery) Ack(context.Context) error {
	return d.locked(func() {})
}

// Release implements [broker.Delivery].
func (d *delivery) Release(_ context.Context, after time.Duration) error {
	return d.locked(func() {
		if after > 0 {
			d.item.queue.add(d.item, time.Now().Add(after))
			return
		}
		d.item.queue.giveBack(d.item)
	})
}

// DeadLetter implements [broker.Delivery].
func (d *delivery) DeadLetter(_ context.Context, dead broker.Dead) error {
	return d.locked(func() { d.item.queue.deadLetter(d.item.message, dead) })
}

func (d *delivery) locked(then func()) error {
	d.sub.node.hub.mu.Lock()
	defer d.sub.node.hub.mu.Unlock()
	return d.settle(then)
}

// settle ends the delivery and then calls then. If the delivery was settled before, it returns an
// error and does not call then. It notifies a caller that waits in Publish, and frees the place of
// the message. Call it with the hub's mutex held.
func (d *delivery) settle(then func()) error {
	switch d.state {
	case settled:
		return fmt.Errorf("pushbroker: %w", broker.ErrSettled)
	case lost:
		return fmt.Errorf("pushbroker: %w", broker.ErrLeaseLost)
	}
	d.state = settled
	delete(d.sub.unsettled, d)
	d.item.leave()
	then()
	d.sub.queue.place()
	return nil
}
