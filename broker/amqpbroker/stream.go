package amqpbroker

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/internal/amqpconn"
	"github.com/swarmiji/swarmiji/internal/lanes"
	"github.com/swarmiji/swarmiji/internal/wake"
)

var errCancelled = errors.New("consumer cancelled by the server")

// isConsumerTimeout reports whether the server closed the channel because a delivery was held for
// longer than its consumer_timeout.
func isConsumerTimeout(err error) bool {
	return amqpconn.IsPrecondition(err) && strings.Contains(err.Error(), "timeout")
}

// stream consumes one AMQP queue for a subscription, on one channel at a time.
type stream struct {
	sub  *subscription
	name string // of the AMQP queue

	held    *lanes.Lane[delivery] // deliveries that Receive has not returned; guarded by sub.mu
	started bool                  // guarded by sub.mu

	level   int  // 0 is the most urgent
	awaited bool // other levels wait for its messages: it is more urgent, or the queue has a floor
	// the server may hold messages back: the prefetch was used up a moment ago, or no message has
	// arrived yet
	unsure   atomic.Bool
	watching bool // a goroutine of watchHeldBack runs; guarded by sub.mu

	mu      sync.Mutex
	want    int      // prefetch
	channel *channel // the current channel, nil without one

	// closed when the subscription was closed and its undelivered messages went back
	returned chan struct{}
	once     sync.Once
}

// newStream returns the stream of the AMQP queue name with the given prefetch, which passes its
// deliveries to held. It does not start it.
func newStream(s *subscription, name string, want int, held *lanes.Lane[delivery]) *stream {
	return &stream{sub: s, name: name, want: want, held: held, returned: make(chan struct{})}
}

// run consumes the queue, on a new channel whenever one is lost, and reports each loss to
// streamFailed. It returns when the subscription is closed and all deliveries are settled, or when
// the Broker is closed.
func (st *stream) run() {
	st.sub.b.con.Supervise(st.sub.fetch, st.consume, func(err error) { st.sub.streamFailed(st, err) })
	st.signalReturned()
}

// signalReturned closes st.returned, which lets Close of the subscription return. It may be called
// several times.
func (st *stream) signalReturned() { st.once.Do(func() { close(st.returned) }) }

// consume declares the queue with all that it needs and consumes it on the channel ch. Once
// consumers run it calls streamReady, and it adjusts them whenever the prefetch changes. It blocks
// until the channel ends and returns the error, errCancelled if the server cancelled a consumer.
// Its deliveries are lost then.
//
// When fetch ends, because the subscription is closed, it drains the channel instead, see drain. In
// all cases it closes the channel at the end. It takes st.mu.
func (st *stream) consume(fetch context.Context, ch *amqpconn.Channel) error {
	b := st.sub.b
	if err := b.declareConsumed(fetch, ch.Session(), st.sub.queue, st.name); err != nil {
		return err
	}
	g := newChannel(st, ch)
	defer g.close()
	st.unsure.Store(true)
	st.mu.Lock()
	st.channel = g
	st.mu.Unlock()
	if err := g.adjustConsumers(); err != nil {
		return err
	}
	st.sub.streamReady(st)
	for {
		select {
		case <-g.adjust:
			if err := g.adjustConsumers(); err != nil {
				return err
			}
			continue
		case _, ok := <-g.cancelled:
			if ok {
				g.flushAcks()
				return errCancelled
			}
			<-ch.Done()
			return ch.Err()
		case <-ch.Done():
			return ch.Err()
		case <-fetch.Done():
		}
		break
	}
	return st.drain(g)
}

// drain ends the fetching and returns the deliveries that Receive has not returned to the queue.
// Then it blocks until all other deliveries are settled, the channel is closed, or the Broker is
// closed. At the end it sends the outstanding acknowledgements and gives the server time to apply
// them.
//
// Returns the error of the cancellation or of the round trip that follows it, without waiting for
// the other deliveries. It takes sub.mu and the mutexes of g, but not while it waits.
func (st *stream) drain(g *channel) error {
	err := g.stopFetching()
	st.sub.mu.Lock()
	held := st.held.TakeAll()
	st.sub.mu.Unlock()
	for _, d := range held {
		d.giveBack()
	}
	g.flushAcks()
	// After a round trip the messages are in the queue when Close of the subscription returns.
	if err == nil {
		err = g.barrier(context.Background())
	}
	st.signalReturned()
	if err != nil {
		return err
	}
	select {
	case <-g.settledSignal():
	case <-g.ch.Done():
	case <-st.sub.b.stop.Done():
	}
	g.flushAcks()
	g.waitForAcks()
	return nil
}

// setPrefetch limits the unsettled messages of the stream to n: 0 stops the deliveries, and
// unlimited removes the limit. It blocks until the server has started and cancelled consumers
// accordingly. Without a channel, or if the channel is lost meanwhile, it returns nil: the next
// channel begins with n.
//
// Returns the server's error, or ctx's error if ctx ends first. The limit n stays wanted in both
// cases, and after the end of ctx a goroutine still applies it. It takes st.mu, but not while it
// waits.
func (st *stream) setPrefetch(ctx context.Context, n int) error {
	st.mu.Lock()
	st.want = n
	g := st.channel
	st.mu.Unlock()
	if g == nil {
		return nil
	}
	done := make(chan error, 1)
	go func() { done <- g.adjustConsumers() }() // ends with the channel at the latest
	select {
	case err := <-done:
		if g.isLost() {
			return nil // the next channel uses the new prefetch
		}
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// watchHeldBack starts a goroutine, unless one runs, that asks whether the server has further
// messages for this level. While it has, other levels wait. When the server has no more messages,
// or no channel is open, the goroutine lets the subscription deliver from them. Call it with sub.mu
// held.
func (st *stream) watchHeldBack() {
	if st.watching {
		return
	}
	st.watching = true
	go func() { // ends with the channel at the latest
		for st.unsure.Load() {
			st.mu.Lock()
			g := st.channel
			st.mu.Unlock()
			if g != nil && g.hasPending() && wake.Sleep(st.sub.fetch, pollPause) {
				continue
			}
			st.unsure.Store(false)
		}
		st.sub.mu.Lock()
		defer st.sub.mu.Unlock()
		st.watching = false
		st.sub.line.Serve()
	}()
}

// pollPause is the pause between two questions about a queue whose messages have not arrived. They
// normally arrive at once.
const pollPause = 20 * time.Millisecond

// dropHeld removes the deliveries of the closed channel g that Receive has not returned. If g is
// the current channel, the stream has no channel then. It takes st.mu and sub.mu.
func (st *stream) dropHeld(g *channel) {
	st.mu.Lock()
	if st.channel == g {
		st.channel = nil
	}
	st.mu.Unlock()
	st.sub.mu.Lock()
	defer st.sub.mu.Unlock()
	for _, d := range st.held.TakeAll() {
		if d.channel != g {
			st.held.Push(d, &d.msg)
		}
	}
}
