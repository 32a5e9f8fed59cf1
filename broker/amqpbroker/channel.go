package amqpbroker

import (
	"context"
	"errors"
	"math"
	"strconv"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/internal/amqpconn"
	"github.com/swarmiji/swarmiji/internal/wake"
)

const (
	// ackDelay limits the time that an acknowledgement waits for others. With a prefetch below 8 an
	// acknowledgement does not wait.
	ackDelay = time.Millisecond
	// ackBatch limits the acknowledgements that wait.
	ackBatch = 64
	// maxConsumers limits the consumers of a channel. When more would be needed, a new prefetch
	// cancels all and starts one.
	maxConsumers = 8
)

// channel is one AMQP channel of a stream, with its consumers and the list of its unsettled
// deliveries. A delivery can be settled only on the channel that delivered it, because a delivery
// tag is valid only there.
type channel struct {
	st        *stream
	ch        *amqpconn.Channel
	lost      chan struct{} // closed by close: all unsettled deliveries are lost
	adjust    wake.Signal   // the consumers do not fit the wanted prefetch
	cancelled chan string   // tags of consumers that the server cancelled; closed with the channel

	// held during calls that wait for an answer: the client library allows one at a time
	rpc       sync.Mutex
	consumers []*consumer // guarded by rpc
	consumed  int         // number of consumers started so far, for their tags; guarded by rpc

	mu         sync.Mutex
	dead       bool      // close was called
	first      *delivery // the unsettled deliveries, a list in ascending order of tags
	last       *delivery
	next       uint64          // every tag below it was delivered
	ahead      map[uint64]bool // delivered tags above next; consumers report independently
	acked      []uint64        // tags that are acknowledged here, but not sent yet
	ackSentAt  time.Time       // when acknowledgements were sent last
	threshold  int             // the number of acknowledgements that may wait
	timer      *time.Timer     // sends the waiting acknowledgements
	armed      bool            // the timer runs
	unsettled  int
	capacity   int           // how many deliveries the server may send at most
	orphans    int           // unsettled deliveries of cancelled consumers
	short      bool          // the consumers have less prefetch than wanted, until orphans are settled
	settledAll chan struct{} // see settledSignal; nil: no goroutine waits
	syncing    *roundTrip    // the next round trip, not started yet
	syncBusy   bool          // the goroutine of runRoundTrips exists
}

// consumer is one basic.consume.
type consumer struct {
	tag       string
	prefetch  int
	done      chan struct{} // closed when its last delivery is in the list
	orphaned  bool          // guarded by channel.mu
	unsettled int           // guarded by channel.mu
}

// newChannel returns the channel ch of stream st, without consumers. It starts no goroutine.
func newChannel(st *stream, ch *amqpconn.Channel) *channel {
	g := &channel{st: st, ch: ch, lost: make(chan struct{}), adjust: wake.New(), next: 1, threshold: 1}
	g.cancelled = ch.NotifyCancel(make(chan string, 2*maxConsumers))
	g.timer = time.AfterFunc(time.Hour, g.flushAcks)
	g.timer.Stop()
	return g
}

// close ends the use of the AMQP channel, which may be open or closed already. It sends the
// waiting acknowledgements, marks all unsettled deliveries as lost, drops the deliveries that
// Receive has not returned, and closes the AMQP channel. It returns when all consumers have
// ended. It takes g.mu and g.rpc.
func (g *channel) close() {
	g.mu.Lock()
	g.sendAcks(true) // acknowledgements whose Ack has returned; it fails if the channel is closed
	g.dead = true
	g.timer.Stop()
	close(g.lost)
	g.mu.Unlock()
	g.st.dropHeld(g)
	g.rpc.Lock()
	defer g.rpc.Unlock()
	// the server may have closed it; its answer shows that it has the last acknowledgements
	_ = g.ch.Close()
	for _, c := range g.consumers {
		<-c.done
	}
	g.st.dropHeld(g) // deliveries that the consumers received at the last moment
}

// isLost reports whether close was called, so that the deliveries of the channel are lost.
func (g *channel) isLost() bool {
	select {
	case <-g.lost:
		return true
	default:
		return false
	}
}

// adjustConsumers starts and cancels consumers so that their prefetches add up to the stream's
// wanted prefetch, and calls setAckThreshold. It waits for the server and returns its first error.
// It does nothing once the subscription is closed. It takes g.rpc, g.st.mu and g.mu.
//
// The server fixes a consumer's prefetch at its start. For a higher prefetch one more consumer is
// started. For a lower one, and beyond maxConsumers, one consumer replaces all. Unsettled
// deliveries of cancelled consumers count against the prefetch; as they end, more consumers follow.
func (g *channel) adjustConsumers() error {
	g.rpc.Lock()
	defer g.rpc.Unlock()
	if g.st.sub.fetch.Err() != nil {
		return nil
	}
	g.st.mu.Lock()
	want := g.st.want
	g.st.mu.Unlock()
	g.setAckThreshold(want)
	sum := 0
	for _, c := range g.consumers {
		sum += c.prefetch
	}
	switch {
	case want == unlimited && len(g.consumers) == 1 && g.consumers[0].prefetch == math.MaxInt32:
		return nil
	case want == unlimited, want < sum, want > sum && len(g.consumers) >= maxConsumers:
		if err := g.cancelConsumers(); err != nil {
			return err
		}
		sum = 0
	}
	if want == unlimited {
		return g.startConsumer(0)
	}
	g.mu.Lock()
	room := want - sum - g.orphans
	g.short = sum < want && g.orphans > 0
	enough := room >= max(1, want/4) || g.orphans == 0 && room > 0
	g.mu.Unlock()
	if !enough {
		return nil
	}
	return g.startConsumer(room)
}

// startConsumer starts a consumer with the given prefetch, 0 for no limit, and a goroutine that
// receives its deliveries. A prefetch above 65,535 becomes 65,535. It waits for the server, see
// Channel.Answered, and returns its error. Call it with g.rpc held; it takes g.mu.
func (g *channel) startConsumer(prefetch int) error {
	prefetch = min(prefetch, math.MaxUint16)
	if err := g.ch.Qos(prefetch, 0, false); err != nil {
		return err
	}
	g.consumed++
	c := &consumer{tag: "swj-" + strconv.Itoa(g.consumed), prefetch: prefetch, done: make(chan struct{})}
	if prefetch == 0 {
		c.prefetch = math.MaxInt32
	}
	var deliveries <-chan amqp.Delivery
	err := g.ch.Answered(func() (err error) {
		deliveries, err = g.ch.Consume(g.st.name, c.tag, false, false, false, false, nil)
		return err
	})
	if err != nil {
		return err
	}
	g.consumers = append(g.consumers, c)
	g.mu.Lock()
	g.capacity += c.prefetch
	g.mu.Unlock()
	go g.receiveFrom(c, deliveries)
	return nil
}

// receiveFrom adds each delivery of consumer c to the unsettled list and pushes it to the
// subscription, for Receive. It returns when deliveries is closed, and closes c.done. It takes g.mu
// and sub.mu.
func (g *channel) receiveFrom(c *consumer, deliveries <-chan amqp.Delivery) {
	defer close(c.done)
	for m := range deliveries {
		d := newDelivery(g, c, &m)
		g.add(d)
		g.st.sub.push(g.st, d)
	}
}

// stopFetching cancels all consumers and returns the error of cancelConsumers. It takes g.rpc.
func (g *channel) stopFetching() error {
	g.rpc.Lock()
	defer g.rpc.Unlock()
	return g.cancelConsumers()
}

// cancelConsumers cancels all consumers and waits until their deliveries are in the unsettled list.
// These become orphans, which count against the prefetch of later consumers. It stops at the first
// error. Call it with g.rpc held; it takes g.mu.
func (g *channel) cancelConsumers() error {
	for len(g.consumers) > 0 {
		c := g.consumers[0]
		if err := g.ch.Cancel(c.tag, false); err != nil {
			return err
		}
		<-c.done
		g.mu.Lock()
		c.orphaned = true
		g.capacity -= c.prefetch
		g.orphans += c.unsettled
		g.mu.Unlock()
		g.consumers = g.consumers[1:]
	}
	return nil
}

// setAckThreshold sets the number of acknowledgements that are collected before one is sent: a
// quarter of want, at least 1 and at most ackBatch. Unlimited: ackBatch. It takes g.mu.
func (g *channel) setAckThreshold(want int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.threshold = ackBatch
	if want >= 0 {
		g.threshold = min(max(want/4, 1), ackBatch)
	}
}

// add adds d to the unsettled list, which is ordered by delivery tag, and counts it for its
// consumer and the channel. It clears st.unsure: less urgent levels need not wait for messages of
// this one. It takes g.mu.
func (g *channel) add(d *delivery) {
	g.mu.Lock()
	defer g.mu.Unlock()
	d.consumer.unsettled++
	g.unsettled++
	g.st.unsure.Store(false)
	before := g.last
	for before != nil && before.tag > d.tag { // only with several consumers
		before = before.prev
	}
	if d.prev = before; before == nil {
		d.next, g.first = g.first, d
	} else {
		d.next, before.next = before.next, d
	}
	if d.next == nil {
		g.last = d
	} else {
		d.next.prev = d
	}
	if d.tag != g.next {
		if g.ahead == nil {
			g.ahead = make(map[uint64]bool)
		}
		g.ahead[d.tag] = true
		return
	}
	g.next++
	for len(g.ahead) > 0 && g.ahead[g.next] {
		delete(g.ahead, g.next)
		g.next++
	}
}

// remove removes d from the unsettled list and updates the counters. If the prefetch of a level
// for which others wait was used up, it sets st.unsure. If orphans free prefetch it wakes
// the stream to start another consumer. If d was the last delivery it closes the channel of
// settledSignal. Call it with g.mu held.
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
	d.consumer.unsettled--
	if g.st.awaited && g.unsettled >= g.capacity {
		g.st.unsure.Store(true)
	}
	g.unsettled--
	if d.consumer.orphaned {
		if g.orphans--; g.short {
			g.adjust.Notify()
		}
	}
	if g.first == nil && g.settledAll != nil {
		close(g.settledAll)
		g.settledAll = nil
	}
}

// settledSignal returns a channel that is closed when no delivery is unsettled. Call it once, after
// the fetching was stopped. It takes g.mu.
func (g *channel) settledSignal() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	ch := make(chan struct{})
	if g.first == nil {
		close(ch)
	} else {
		g.settledAll = ch
	}
	return ch
}

// ack removes d from the unsettled list and collects its acknowledgement. It does not block.
//
// The collected acknowledgements are sent when a quarter of the prefetch is collected or after
// ackDelay, because one multiple acknowledgement can stand for many. If now is true they are sent
// at once. Call it with g.mu held. The caller sets d.state.
func (g *channel) ack(d *delivery, now bool) {
	g.remove(d)
	g.acked = append(g.acked, d.tag)
	if now || len(g.acked) >= g.threshold {
		g.sendAcks(now)
	}
	if len(g.acked) > 0 && !g.armed {
		g.armed = true
		g.timer.Reset(ackDelay)
	}
}

// flushAcks sends all collected acknowledgements, unless the channel is closed. It takes g.mu.
func (g *channel) flushAcks() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.armed = false
	if !g.dead {
		g.sendAcks(true)
	}
}

// sendAcks sends one multiple acknowledgement for the tags below the first that is unsettled or has
// not arrived. It sends the other collected tags singly if all is true or if they have reached the
// threshold. Call it with g.mu held.
//
// It sets g.ackSentAt and does not block, because writes go to a buffer. An error means that the
// channel is closed. Then the messages are delivered again.
func (g *channel) sendAcks(all bool) {
	if len(g.acked) == 0 {
		return
	}
	// Every tag below both the first unsettled delivery and the first tag that has not arrived is
	// settled.
	frontier := g.next
	if g.first != nil && g.first.tag < frontier {
		frontier = g.first.tag
	}
	var top uint64
	n := 0
	g.ackSentAt = time.Now()
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

// hasPending reports whether the server may send a message that has not arrived yet: the prefetch
// is not used up and the queue holds messages. It waits for two answers of the server. It returns
// false after an error and for a closed channel. It takes g.rpc and g.mu.
func (g *channel) hasPending() bool {
	g.rpc.Lock()
	defer g.rpc.Unlock()
	g.mu.Lock()
	full := g.dead || g.unsettled >= g.capacity
	g.mu.Unlock()
	if full {
		return false
	}
	q, err := amqpconn.Numbers(g.ch, g.st.name)
	if err != nil {
		return false
	}
	// After one more round trip, messages that had left the queue before the count have arrived here.
	return g.ch.Qos(1, 0, false) == nil && q.Messages > 0
}

// ackLinger is the time that a channel stays open after its last acknowledgements. RabbitMQ (3.10)
// holds acknowledgements to a quorum queue back while many are in progress, and forgets them when
// the channel closes. Without the wait, one stop in five after a burst ran some tasks again.
const ackLinger = 250 * time.Millisecond

// waitForAcks blocks until ackLinger has passed since the last acknowledgement was sent, or until
// the channel is closed. The server needs that time to apply them. It takes g.mu.
func (g *channel) waitForAcks() {
	g.mu.Lock()
	wait := time.Until(g.ackSentAt.Add(ackLinger))
	g.mu.Unlock()
	if wait <= 0 {
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-g.ch.Done():
	}
}

// roundTrip is the result of one request to the server that several callers wait for.
type roundTrip struct {
	done chan struct{}
	err  error
}

// failed reports whether the result is known and is an error. It does not block.
func (r *roundTrip) failed() bool {
	select {
	case <-r.done:
		return r.err != nil
	default:
		return false
	}
}

// await blocks until the result is known and returns it. It returns ctx's error if ctx ends first,
// errChannelClosed if lost is closed first.
func (r *roundTrip) await(ctx context.Context, lost <-chan struct{}) error {
	select {
	case <-r.done:
		return r.err
	case <-lost:
		return errChannelClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errChannelClosed = errors.New("the channel was closed")

// barrier blocks until the server's channel has received all that was sent on it before.
// Concurrent callers share a round trip. Returns errChannelClosed if the channel is closed, ctx's
// error if ctx ends. It takes g.mu, but not while it waits.
func (g *channel) barrier(ctx context.Context) error {
	g.mu.Lock()
	if g.dead {
		g.mu.Unlock()
		return errChannelClosed
	}
	r := g.syncing
	if r == nil {
		r = &roundTrip{done: make(chan struct{})}
		g.syncing = r
	}
	if !g.syncBusy {
		g.syncBusy = true
		go g.runRoundTrips()
	}
	g.mu.Unlock()
	return r.await(ctx, nil)
}

// runRoundTrips makes one round trip after the other while callers of barrier wait, and gives each
// caller its error. The request, basic.qos for future consumers, has no effect: every consumer sets
// its own prefetch. It takes g.mu, and g.rpc, which it holds while it waits for the server.
func (g *channel) runRoundTrips() {
	for {
		g.rpc.Lock()
		g.mu.Lock()
		r := g.syncing
		g.syncing = nil
		g.syncBusy = r != nil
		g.mu.Unlock()
		if r == nil {
			g.rpc.Unlock()
			return
		}
		r.err = g.ch.Qos(1, 0, false)
		g.rpc.Unlock()
		close(r.done)
	}
}
