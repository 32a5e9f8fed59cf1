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
	// ackDelay is how long an acknowledgement waits for its neighbours. With a prefetch of less than 8 none waits.
	ackDelay = time.Millisecond
	// ackBatch is the most acknowledgements that wait for each other.
	ackBatch = 64
	// maxConsumers is how many consumers a channel may have before a new prefetch starts over with one.
	maxConsumers = 8
)

// generation is one channel of a stream: its consumers, and the ledger of its deliveries. What it handed out is settled on
// it or never: delivery tags mean nothing on another channel.
type generation struct {
	st        *stream
	ch        *amqpconn.Channel
	lost      chan struct{}
	retune    wake.Signal
	cancelled chan string // consumers that the server cancelled; closed with the channel

	rpc       sync.Mutex  // held during calls that wait for an answer: the client library cannot have two at a time
	consumers []*consumer // guarded by rpc
	consumed  int         // ever, for the tags; guarded by rpc

	mu         sync.Mutex
	dead       bool
	first      *delivery       // the unsettled deliveries, ascending by tag
	last       *delivery       //
	next       uint64          // every tag below was delivered
	ahead      map[uint64]bool // tags above next that were delivered: several consumers report independently
	acked      []uint64        // acknowledged, and the server does not know yet
	told       time.Time       // when the server was last told of an acknowledgement
	threshold  int             // so many may wait
	timer      *time.Timer     // sends what waits
	armed      bool
	unsettled  int
	capacity   int  // how many deliveries the server may let us have
	orphans    int  // unsettled deliveries of consumers that we cancelled
	short      bool // the consumers may hold less than is wanted, until orphans are settled
	settledAll chan struct{}
	syncing    *roundTrip // waits for the one under way
	syncBusy   bool
}

// consumer is one basic.consume.
type consumer struct {
	tag       string
	prefetch  int
	done      chan struct{} // closed when its last delivery is in the ledger
	orphaned  bool          // guarded by generation.mu
	unsettled int           // guarded by generation.mu
}

func newGeneration(st *stream, ch *amqpconn.Channel) *generation {
	g := &generation{st: st, ch: ch, lost: make(chan struct{}), retune: wake.New(), next: 1, threshold: 1}
	g.cancelled = ch.NotifyCancel(make(chan string, 2*maxConsumers))
	g.timer = time.AfterFunc(time.Hour, g.flush)
	g.timer.Stop()
	return g
}

// end is called when the channel is given up or has gone.
func (g *generation) end() {
	g.mu.Lock()
	g.send(true) // those whose Ack has returned and that have waited for others; it fails on a channel that has gone
	g.dead = true
	g.timer.Stop()
	close(g.lost)
	g.mu.Unlock()
	g.st.drop(g)
	g.rpc.Lock()
	defer g.rpc.Unlock()
	_ = g.ch.Close() // the server may have closed it; the last acknowledgements are taken when it answers
	for _, c := range g.consumers {
		<-c.done
	}
	g.st.drop(g) // what its consumers held at the last moment
}

func (g *generation) isLost() bool {
	select {
	case <-g.lost:
		return true
	default:
		return false
	}
}

// tune makes the consumers' prefetches add up to what is wanted. The server fixes a consumer's prefetch when it starts, so
// more is had from one more consumer, and less from starting over. Then the deliveries of the cancelled consumers count
// against the new prefetch, and further consumers follow as those are settled. When the subscription is closed nothing is
// fetched any more, whatever is wanted: that is known before the consumers are cancelled, and looked at under rpc.
func (g *generation) tune() error {
	g.rpc.Lock()
	defer g.rpc.Unlock()
	if g.st.sub.fetch.Err() != nil {
		return nil
	}
	g.st.mu.Lock()
	want := g.st.want
	g.st.mu.Unlock()
	g.setThreshold(want)
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
		return g.start(0)
	}
	g.mu.Lock()
	room := want - sum - g.orphans
	g.short = sum < want && g.orphans > 0
	enough := room >= max(1, want/4) || g.orphans == 0 && room > 0
	g.mu.Unlock()
	if !enough {
		return nil
	}
	return g.start(room)
}

// start starts a consumer; g.rpc is held. A prefetch of 0 is none.
func (g *generation) start(prefetch int) error {
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
	go g.feed(c, deliveries)
	return nil
}

// feed enters deliveries in the ledger and passes them on.
func (g *generation) feed(c *consumer, deliveries <-chan amqp.Delivery) {
	defer close(c.done)
	for m := range deliveries {
		d := newDelivery(g, c, &m)
		g.enter(d)
		g.st.sub.push(g.st, d)
	}
}

// cancelAll stops the fetching.
func (g *generation) cancelAll() error {
	g.rpc.Lock()
	defer g.rpc.Unlock()
	return g.cancelConsumers()
}

// cancelConsumers cancels the consumers and waits until all they were sent is in the ledger; g.rpc is held.
func (g *generation) cancelConsumers() error {
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

func (g *generation) setThreshold(want int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.threshold = ackBatch
	if want >= 0 {
		g.threshold = min(max(want/4, 1), ackBatch)
	}
}

// enter puts d into the ledger.
func (g *generation) enter(d *delivery) {
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

// remove takes d out of the ledger; g.mu is held.
func (g *generation) remove(d *delivery) {
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
	if g.st.urgent && g.unsettled >= g.capacity {
		g.st.unsure.Store(true)
	}
	g.unsettled--
	if d.consumer.orphaned {
		if g.orphans--; g.short {
			g.retune.Notify()
		}
	}
	if g.first == nil && g.settledAll != nil {
		close(g.settledAll)
		g.settledAll = nil
	}
}

// allSettled returns a channel that is closed when nothing is unsettled; nothing is delivered any more.
func (g *generation) allSettled() <-chan struct{} {
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

// ack settles d. The server is told when a quarter of the prefetch is settled or a moment has passed, since one
// acknowledgement "this tag and all below" stands for many; now asks for it at once. g.mu is held.
func (g *generation) ack(d *delivery, now bool) {
	g.remove(d)
	g.acked = append(g.acked, d.tag)
	if now || len(g.acked) >= g.threshold {
		g.send(now)
	}
	if len(g.acked) > 0 && !g.armed {
		g.armed = true
		g.timer.Reset(ackDelay)
	}
}

// flush tells the server of all acknowledgements.
func (g *generation) flush() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.armed = false
	if !g.dead {
		g.send(true)
	}
}

// send tells the server of the acknowledgements that one multiple acknowledgement can stand for, and of the others if all
// is set or they are many; g.mu is held. Writes go to memory, so nothing waits here. A failure means that the channel has
// gone, and then the messages are seen again.
func (g *generation) send(all bool) {
	if len(g.acked) == 0 {
		return
	}
	// Below the first unsettled delivery, and below the first tag that we have not seen, everything is settled.
	frontier := g.next
	if g.first != nil && g.first.tag < frontier {
		frontier = g.first.tag
	}
	var top uint64
	n := 0
	g.told = time.Now()
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

// mayCome reports whether the server has messages for us that have not come yet.
func (g *generation) mayCome() bool {
	g.rpc.Lock()
	defer g.rpc.Unlock()
	g.mu.Lock()
	full := g.dead || g.unsettled >= g.capacity
	g.mu.Unlock()
	if full {
		return false
	}
	q, err := g.ch.QueueDeclarePassive(g.st.name, true, false, false, false, nil)
	if err != nil {
		return false
	}
	// What left the queue before it was counted has left the channel after one more round trip.
	return g.ch.Qos(1, 0, false) == nil && q.Messages > 0
}

// lingerTime is how long a channel stays open after its last acknowledgements. RabbitMQ (3.10) holds acknowledgements to a
// quorum queue back while many are under way, and forgets those when the channel closes: without the wait one stop in five
// right after a burst of 256 single acknowledgements had some of the tasks run again.
const lingerTime = 250 * time.Millisecond

// linger waits until the server has had the time to apply the last acknowledgements. An idle channel does not wait.
func (g *generation) linger() {
	g.mu.Lock()
	wait := time.Until(g.told.Add(lingerTime))
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

// roundTrip is an answer of the server that several callers wait for.
type roundTrip struct {
	done chan struct{}
	err  error
}

// failed reports whether the answer has come and is an error.
func (r *roundTrip) failed() bool {
	select {
	case <-r.done:
		return r.err != nil
	default:
		return false
	}
}

// await waits for the answer until ctx ends or lost is closed.
func (r *roundTrip) await(ctx context.Context, lost <-chan struct{}) error {
	select {
	case <-r.done:
		return r.err
	case <-lost:
		return errChannelGone
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errChannelGone = errors.New("the channel has gone")

// barrier returns nil when the server's channel has taken all that was sent before. Callers share round trips.
func (g *generation) barrier(ctx context.Context) error {
	g.mu.Lock()
	if g.dead {
		g.mu.Unlock()
		return errChannelGone
	}
	r := g.syncing
	if r == nil {
		r = &roundTrip{done: make(chan struct{})}
		g.syncing = r
	}
	if !g.syncBusy {
		g.syncBusy = true
		go g.roundTrips()
	}
	g.mu.Unlock()
	return r.await(ctx, nil)
}

// roundTrips makes round trips as long as somebody waits for one. A prefetch for future consumers is a request without any
// effect, since each start of a consumer sets its own.
func (g *generation) roundTrips() {
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
