package amqp

import (
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/internal/amqpconn"
)

const (
	// ackDelay limits the time that an acknowledgement waits for others. With a prefetch below 8 an
	// acknowledgement does not wait.
	ackDelay = time.Millisecond
	// ackBatch limits the acknowledgements that wait.
	ackBatch = 64
	// consumerTag names the one consumer of a channel.
	consumerTag = "swarmiji"
)

// channel is one AMQP channel of a subscription, with the list of its unsettled deliveries. A
// delivery can be settled only on the channel that delivered it, because a delivery tag is valid
// only there.
type channel struct {
	sub       *subscription
	ch        *amqpconn.Channel
	lost      chan struct{} // closed by close: all unsettled deliveries are lost
	threshold int           // the number of acknowledgements that may wait

	mu    sync.Mutex
	dead  bool      // close was called
	first *delivery // the unsettled deliveries, a list in ascending order of tags
	last  *delivery
	next  uint64      // every tag below it was delivered
	acked []uint64    // tags that are acknowledged here, but not sent yet
	timer *time.Timer // sends the waiting acknowledgements
	armed bool        // the timer runs
	empty chan struct{}
}

// newChannel returns the channel ch of a subscription, without a consumer.
func newChannel(s *subscription, ch *amqpconn.Channel) *channel {
	g := &channel{sub: s, ch: ch, lost: make(chan struct{}), next: 1, threshold: ackBatch}
	if s.prefetch > 0 {
		g.threshold = min(max(s.prefetch/4, 1), ackBatch)
	}
	g.timer = time.AfterFunc(time.Hour, g.flushAcks)
	g.timer.Stop()
	return g
}

// close ends the use of the AMQP channel, which may be open or closed already. It sends the waiting
// acknowledgements, marks all unsettled deliveries as lost, drops the deliveries that Receive has
// not returned, and closes the AMQP channel.
func (g *channel) close() {
	g.mu.Lock()
	g.sendAcks(true) // acknowledgements whose Ack has returned; it fails if the channel is closed
	g.dead = true
	g.timer.Stop()
	close(g.lost)
	g.mu.Unlock()
	g.sub.takeHeld()
	_ = g.ch.Close() // its answer shows that the server has the last acknowledgements
}

// add returns the delivery of m and appends it to the unsettled list. Tags ascend, because the
// channel has one consumer.
func (g *channel) add(m *amqp.Delivery) *delivery {
	d := &delivery{channel: g, tag: m.DeliveryTag}
	decode(&d.msg, m)
	d.count, d.exact = deliveries(m)
	g.mu.Lock()
	defer g.mu.Unlock()
	if d.prev = g.last; d.prev == nil {
		g.first = d
	} else {
		d.prev.next = d
	}
	g.last, g.next = d, d.tag+1
	return d
}

// remove removes d from the unsettled list. Call it with g.mu held.
func (g *channel) remove(d *delivery) {
	if d.prev == nil {
		g.first = d.next
	} else {
		d.prev.next = d.next
	}
	if d.next == nil {
		g.last = d.prev
	} else {
		d.next.prev = d.prev
	}
	d.prev, d.next = nil, nil
	if g.first == nil && g.empty != nil {
		close(g.empty)
		g.empty = nil
	}
}

// settledSignal returns a channel that is closed when no delivery is unsettled. Call it once, after
// the fetching was stopped.
func (g *channel) settledSignal() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	ch := make(chan struct{})
	if g.first == nil {
		close(ch)
	} else {
		g.empty = ch
	}
	return ch
}

// ack removes d from the unsettled list and collects its acknowledgement. It does not block. The
// collected acknowledgements are sent when a quarter of the prefetch is collected or after
// ackDelay, because one multiple acknowledgement can stand for many. Call it with g.mu held. The
// caller sets d.state.
func (g *channel) ack(d *delivery) {
	g.remove(d)
	g.acked = append(g.acked, d.tag)
	if len(g.acked) >= g.threshold {
		g.sendAcks(false)
	}
	if len(g.acked) > 0 && !g.armed {
		g.armed = true
		g.timer.Reset(ackDelay)
	}
}

// flushAcks sends all collected acknowledgements, unless the channel is closed.
func (g *channel) flushAcks() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.armed = false
	if !g.dead {
		g.sendAcks(true)
	}
}

// sendAcks sends one multiple acknowledgement for the tags below the first that is unsettled. It
// sends the other collected tags singly if all is true or if they have reached the threshold. Call
// it with g.mu held. It does not block, because writes go to a buffer. An error means that the
// channel is closed. Then the messages are delivered again.
func (g *channel) sendAcks(all bool) {
	frontier := g.next
	if g.first != nil {
		frontier = g.first.tag
	}
	var top uint64
	n := 0
	rest := g.acked[:0]
	for _, tag := range g.acked {
		if tag < frontier {
			top = max(top, tag)
			n++
		} else {
			rest = append(rest, tag)
		}
	}
	if n > 0 {
		_ = g.ch.Ack(top, n > 1)
	}
	if all || len(rest) >= g.threshold {
		for _, tag := range rest {
			_ = g.ch.Ack(tag, false)
		}
		rest = rest[:0]
	}
	g.acked = rest
}

// drain ends the fetching and returns the deliveries that Receive has not returned to the queue.
// Then it blocks until all other deliveries are settled, the channel is closed, or the Broker is
// closed. Returns the error of the cancellation or of the round trip that follows it, without
// waiting for the other deliveries.
func (s *subscription) drain(g *channel, deliveries <-chan amqp.Delivery) error {
	canceled := make(chan error, 1)
	go func() { canceled <- g.ch.Cancel(consumerTag, false) }() // ends with the channel at the latest
	for m := range deliveries {                                 // closed with the consumer
		g.add(&m).giveBack()
	}
	err := <-canceled
	for _, d := range s.takeHeld() {
		d.giveBack()
	}
	g.flushAcks()
	if err == nil {
		err = g.ch.Qos(1, 0, false) // a round trip: the messages are in the queue after it
	}
	s.signalReturned()
	if err != nil {
		return err
	}
	select {
	case <-g.settledSignal():
	case <-g.ch.Done():
	case <-s.b.stop.Done():
	}
	return nil
}
