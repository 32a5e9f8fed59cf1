package amqp

import (
	"strconv"
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
)

// channel is one AMQP channel of a subscription, with the list of its unsettled deliveries. A
// delivery can be settled only on the channel that delivered it, because a delivery tag is valid
// only there.
type channel struct {
	sub       *subscription
	ch        *amqpconn.Channel
	lost      chan struct{} // closed by close: all unsettled deliveries are lost
	cancelled chan string   // tags of consumers that the server cancelled; closed with the channel
	shared    bool          // the prefetch is that of the channel, not of a consumer

	// held during calls that wait for an answer: the client library allows one at a time
	rpc      sync.Mutex
	tag      string        // of the consumer, "" without one; guarded by rpc
	received chan struct{} // closed after the consumer's last delivery; guarded by rpc
	consumed int           // number of consumers started so far, for their tags; guarded by rpc

	mu    sync.Mutex
	dead  bool      // close was called
	first *delivery // the unsettled deliveries, a list in ascending order of tags
	last  *delivery
	next  uint64      // every tag below it was delivered
	acked []uint64    // tags that are acknowledged here, but not sent yet
	timer *time.Timer // sends the waiting acknowledgements
	armed bool        // the timer runs
	// threshold is the number of acknowledgements that may wait
	threshold int
	empty     chan struct{} // see settledSignal; nil: no goroutine waits
}

// newChannel returns the channel ch of a subscription, without a consumer.
func newChannel(s *subscription, ch *amqpconn.Channel, classic bool) *channel {
	g := &channel{sub: s, ch: ch, shared: classic, lost: make(chan struct{}), next: 1, threshold: 1}
	g.cancelled = ch.NotifyCancel(make(chan string, 1))
	g.timer = time.AfterFunc(time.Hour, g.flushAcks)
	g.timer.Stop()
	return g
}

// adjust applies the wanted prefetch of the subscription and waits for the server. It does nothing
// once the subscription is closed.
//
// On a classic queue the limit is that of the whole channel, as Celery sets it. It can change while
// a consumer runs. Other queues refuse such a limit: there a change starts another consumer.
func (g *channel) adjust() error {
	g.rpc.Lock()
	defer g.rpc.Unlock()
	if g.sub.fetch.Err() != nil {
		return nil
	}
	g.sub.mu.Lock()
	want := g.sub.want
	g.sub.mu.Unlock()
	g.setThreshold(want)
	if g.tag != "" && (want == 0 || !g.shared) {
		if err := g.cancel(); err != nil {
			return err
		}
	}
	if want == 0 {
		return nil
	}
	if err := g.ch.Qos(max(want, 0), 0, g.shared); err != nil || g.tag != "" {
		return err
	}
	g.consumed++
	tag := "swarmiji-" + strconv.Itoa(g.consumed)
	var deliveries <-chan amqp.Delivery
	err := g.ch.Answered(func() (err error) {
		deliveries, err = g.ch.Consume(g.sub.queue, tag, false, false, false, false, nil)
		return err
	})
	if err != nil {
		return err
	}
	received := make(chan struct{})
	g.tag, g.received = tag, received
	go func() { // ends with the consumer
		defer close(received)
		for m := range deliveries {
			g.sub.push(g.add(&m))
		}
	}()
	return nil
}

// cancel ends the consumer, if one runs, and waits until its last delivery is in the list. Call it
// with g.rpc held.
func (g *channel) cancel() error {
	if g.tag == "" {
		return nil
	}
	if err := g.ch.Cancel(g.tag, false); err != nil {
		return err
	}
	g.tag = ""
	<-g.received
	return nil
}

// setThreshold sets the number of acknowledgements that are collected before one is sent: a quarter
// of want, at least 1 and at most ackBatch. Unlimited: ackBatch.
func (g *channel) setThreshold(want int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.threshold = ackBatch
	if want >= 0 {
		g.threshold = min(max(want/4, 1), ackBatch)
	}
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
	g.sub.mu.Lock()
	g.sub.active = nil
	g.sub.mu.Unlock()
	g.rpc.Lock()
	defer g.rpc.Unlock()
	_ = g.ch.Close() // its answer shows that the server has the last acknowledgements
	if g.tag != "" {
		<-g.received
	}
	g.sub.takeHeld()
}

// add returns the delivery of m and appends it to the unsettled list. Tags ascend, because the
// channel has one consumer at a time.
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
func (s *subscription) drain(g *channel) error {
	g.rpc.Lock()
	err := g.cancel()
	for _, d := range s.takeHeld() {
		d.giveBack()
	}
	g.flushAcks()
	if err == nil {
		err = g.ch.Qos(1, 0, false) // a round trip: the messages are in the queue after it
	}
	g.rpc.Unlock()
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
