package amqpbroker

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/internal/amqpconn"
	"github.com/swarmiji/swarmiji/internal/receive"
	"github.com/swarmiji/swarmiji/internal/wake"
)

var errCancelled = errors.New("consumer cancelled by the server")

// isConsumerTimeout reports whether the server closed the channel since a delivery was held for too long.
func isConsumerTimeout(err error) bool {
	return amqpconn.IsPrecondition(err) && strings.Contains(err.Error(), "timeout")
}

// stream consumes one AMQP queue for a subscription, on one channel after the other.
type stream struct {
	sub  *subscription
	name string // of the AMQP queue

	held    receive.Held[delivery] // guarded by sub.mu
	started bool                   // guarded by sub.mu

	urgent  bool        // there is a less urgent level
	unsure  atomic.Bool // the server may hold messages back: the prefetch was used up a moment ago, or nothing has come yet
	looking bool        // guarded by sub.mu

	mu   sync.Mutex
	want int         // prefetch
	gen  *generation // the present channel, nil while there is none

	returned chan struct{} // closed when the subscription was closed and what was held has gone back
	once     sync.Once
}

func newStream(s *subscription, name string, want int) *stream {
	return &stream{sub: s, name: name, want: want, returned: make(chan struct{})}
}

// run keeps the stream going until the subscription is closed and all that it handed out is settled.
func (st *stream) run() {
	st.sub.b.con.Supervise(st.sub.fetch, st.consume, func(err error) { st.sub.failed(st, err) })
	st.gaveBack()
}

func (st *stream) gaveBack() { st.once.Do(func() { close(st.returned) }) }

// consume is the life of one channel.
func (st *stream) consume(fetch context.Context, ch *amqpconn.Channel) error {
	b := st.sub.b
	if err := b.declareConsumed(fetch, ch.Session(), st.sub.queue, st.name); err != nil {
		return err
	}
	g := newGeneration(st, ch)
	defer g.end()
	st.unsure.Store(true)
	st.mu.Lock()
	st.gen = g
	st.mu.Unlock()
	if err := g.tune(); err != nil {
		return err
	}
	st.sub.consuming(st)
	for {
		select {
		case <-g.retune:
			if err := g.tune(); err != nil {
				return err
			}
			continue
		case _, ok := <-g.cancelled:
			if ok {
				g.flush()
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
	return st.windUp(g)
}

// windUp gives back what was not handed out and stays until what was is settled.
func (st *stream) windUp(g *generation) error {
	err := g.cancelAll()
	st.sub.mu.Lock()
	held := st.held.TakeAll()
	st.sub.mu.Unlock()
	for _, d := range held {
		d.giveBack()
	}
	g.flush()
	// A round trip, so that whoever closed the subscription finds the messages in the queue.
	if err == nil {
		err = g.barrier(context.Background())
	}
	st.gaveBack()
	if err != nil {
		return err
	}
	select {
	case <-g.allSettled():
	case <-g.ch.Done():
	case <-st.sub.b.stop.Done():
	}
	g.flush()
	g.linger()
	return nil
}

// setWant changes the prefetch.
func (st *stream) setWant(ctx context.Context, n int) error {
	st.mu.Lock()
	st.want = n
	g := st.gen
	st.mu.Unlock()
	if g == nil {
		return nil
	}
	done := make(chan error, 1)
	go func() { done <- g.tune() }() // bounded by the channel's life
	select {
	case err := <-done:
		if g.isLost() {
			return nil // the next channel gets it
		}
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// look finds out whether the server has messages for an urgent level that lacks some; sub.mu is held. When it has none, or
// when there is no channel to ask on, less urgent levels are served again.
func (st *stream) look() {
	if st.looking {
		return
	}
	st.looking = true
	go func() { // ends with the channel
		for st.unsure.Load() {
			st.mu.Lock()
			g := st.gen
			st.mu.Unlock()
			if g != nil && g.mayCome() && wake.Sleep(st.sub.fetch, lookAgain) {
				continue
			}
			st.unsure.Store(false)
		}
		st.sub.mu.Lock()
		defer st.sub.mu.Unlock()
		st.looking = false
		st.sub.line.Serve()
	}()
}

// lookAgain is the pause between two looks at a queue that has messages which do not come. They come at once as a rule.
const lookAgain = 20 * time.Millisecond

// drop forgets what is held of a channel that has gone.
func (st *stream) drop(g *generation) {
	st.mu.Lock()
	if st.gen == g {
		st.gen = nil
	}
	st.mu.Unlock()
	st.sub.mu.Lock()
	defer st.sub.mu.Unlock()
	for _, d := range st.held.TakeAll() {
		if d.gen != g {
			st.held.Push(d)
		}
	}
}
