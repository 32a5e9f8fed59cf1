package membroker

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// outcome is what became of a delivery.
type outcome uint8

const (
	open    outcome = iota
	settled         // by its consumer
	taken           // back by the broker
)

// delivery implements broker.Delivery and broker.SyncAcker. Item, sub, lost and count do not change; state is guarded by
// the queue's mutex.
type delivery struct {
	item  *item
	sub   *subscription
	lost  chan struct{} // of the connection epoch: one for all its deliveries
	link  links[delivery]
	count int32
	state outcome
}

func (d *delivery) links() *links[delivery] { return &d.link }

// Message implements [broker.Delivery].
func (d *delivery) Message() *broker.Message { return d.item.m }

// Deliveries implements [broker.Delivery]. It is always exact.
func (d *delivery) Deliveries() (n int, exact bool) { return int(d.count), true }

// Lost implements [broker.Delivery].
func (d *delivery) Lost() <-chan struct{} { return d.lost }

// Ack implements [broker.Delivery].
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

// AckSync implements [broker.SyncAcker]: an Ack in memory is always taken before it returns.
func (d *delivery) AckSync(ctx context.Context) error { return d.Ack(ctx) }

// Release implements [broker.Delivery]. With no delay the message goes back to its old place in the queue; with one it
// keeps its Generation.
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

// Bury implements [broker.Delivery].
func (d *delivery) Bury(_ context.Context, dead broker.Dead) error {
	q := d.sub.q
	q.mu.Lock()
	if err := d.check(); err != nil {
		q.unlock()
		return err
	}
	d.settle()
	q.putDead(d.item.m, dead)
	q.forget(d.item)
	d.done()
	return nil
}

// check tells whether d may still be settled. The caller holds the queue's mutex.
func (d *delivery) check() error {
	switch d.state {
	case settled:
		return fmt.Errorf("membroker: %q: %w", d.item.m.ID, broker.ErrSettled)
	case taken:
		return fmt.Errorf("membroker: %q: %w", d.item.m.ID, broker.ErrLeaseLost)
	}
	return nil
}

// settle takes d from its subscription. The caller holds the queue's mutex.
func (d *delivery) settle() {
	s := d.sub
	d.state = settled
	s.held.remove(d)
	s.unsettled--
	s.q.held--
	s.refresh()
}

// done hands on what settling made possible and frees the queue's mutex.
func (d *delivery) done() {
	s := d.sub
	s.q.dispatch()
	drained := s.err != nil && s.unsettled == 0
	s.q.unlock()
	if drained {
		s.b.forget(s)
	}
}
