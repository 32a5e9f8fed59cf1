package membroker

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// settleState says whether a delivery is settled.
type settleState uint8

const (
	open    settleState = iota
	settled             // by its consumer
	taken               // the broker has taken it back
)

// delivery implements broker.Delivery and broker.SyncAcker. The queue's mutex guards state. The
// other fields except link do not change.
type delivery struct {
	item  *item
	m     *broker.Message // of the item when it was delivered
	sub   *subscription
	lost  chan struct{} // closed when the connection ends; shared by all its deliveries
	link  links[delivery]
	count int32 // number of deliveries of the item when it was delivered, with this one
	state settleState
}

// links returns a pointer to the neighbors of d in its chain, which the chain changes.
func (d *delivery) links() *links[delivery] { return &d.link }

// Message implements [broker.Delivery]. It returns the same pointer each time.
func (d *delivery) Message() *broker.Message { return d.m }

// Deliveries implements [broker.Delivery]. It is always exact.
func (d *delivery) Deliveries() (n int, exact bool) { return int(d.count), true }

// Lost implements [broker.Delivery]. The channel is closed when the connection is cut or the Broker
// is closed.
func (d *delivery) Lost() <-chan struct{} { return d.lost }

// Ack implements [broker.Delivery]. It removes the message at once and does not wait. Waiting
// receivers may get further messages. It takes the queue's mutex, then b.mu. Returns ErrSettled if
// d is settled, ErrLeaseLost if the broker has taken the message back.
func (d *delivery) Ack(context.Context) error {
	q := d.sub.q
	q.mu.Lock()
	if err := d.check(); err != nil {
		q.unlock()
		return err
	}
	d.settle()
	q.forget(d.item)
	d.done()
	return nil
}

// AckSync implements [broker.SyncAcker]. It is Ack, which takes effect before it returns.
func (d *delivery) AckSync(ctx context.Context) error { return d.Ack(ctx) }

// Release implements [broker.Delivery]. It takes effect at once and does not wait. Without a delay
// the message goes back to its old place in the queue, and a waiting receiver may get it. With a
// delay it is ready after that time, at the end of its level, with the same Generation. It takes
// the queue's mutex, then b.mu. Returns ErrSettled if d is settled, ErrLeaseLost if the broker has
// taken the message back.
func (d *delivery) Release(_ context.Context, after time.Duration) error {
	q := d.sub.q
	q.mu.Lock()
	if err := d.check(); err != nil {
		q.unlock()
		return err
	}
	d.settle()
	if after > 0 {
		q.delay(d.item, time.Now().Add(after))
	} else {
		q.giveBack(d.item)
	}
	d.done()
	return nil
}

// DeadLetter implements [broker.Delivery]. It moves the message to the dead letters of its queue at
// once, and drops the oldest letters above the limits. It does not wait. It takes the queue's
// mutex, then b.mu. Returns ErrSettled if d is settled, ErrLeaseLost if the broker has taken the
// message back.
func (d *delivery) DeadLetter(_ context.Context, dead broker.Dead) error {
	q := d.sub.q
	q.mu.Lock()
	if err := d.check(); err != nil {
		q.unlock()
		return err
	}
	d.settle()
	q.putDead(d.m, dead)
	q.forget(d.item)
	d.done()
	return nil
}

// check returns nil if d can be settled, ErrSettled if its consumer has settled it, and
// ErrLeaseLost if the broker has taken it back. Call it with the queue's mutex held.
func (d *delivery) check() error {
	switch d.state {
	case settled:
		return fmt.Errorf("membroker: %q: %w", d.m.ID, broker.ErrSettled)
	case taken:
		return fmt.Errorf("membroker: %q: %w", d.m.ID, broker.ErrLeaseLost)
	}
	return nil
}

// settle marks d as settled and removes it from its subscription, whose prefetch has a free place
// then. The item itself stays: the caller forgets it or puts it back. Call it with the queue's
// mutex held.
func (d *delivery) settle() {
	s := d.sub
	d.state = settled
	s.held.remove(d)
	s.unsettled--
	s.q.undeliver(d.item)
	s.refresh()
}

// done ends a settlement: it gives ready messages to waiting receivers and frees the queue's mutex.
// If d was the last delivery of a closed subscription it then removes the subscription from its
// Broker. Call it with the queue's mutex held and the Broker's b.mu free, which it takes.
func (d *delivery) done() {
	s := d.sub
	s.q.dispatch()
	drained := s.err != nil && s.unsettled == 0
	s.q.unlock()
	if drained {
		s.b.forget(s)
	}
}
