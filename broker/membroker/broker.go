package membroker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/floor"
)

var (
	errSevered = errors.New("membroker: the connection was cut")
	errDown    = errors.New("membroker: the server is down")
	errClosed  = fmt.Errorf("membroker: %w", broker.ErrClosed)
)

// Broker is a connection to a [Server]. It implements broker.Broker and every optional interface of
// package broker except Locator. All methods may be called from any goroutine.
type Broker struct {
	s          *Server
	own        bool // no other Broker uses the Server
	isolations int  // number of active calls of Isolate; guarded by the Server's mutex
	gate       atomic.Int32

	mu    sync.Mutex // guards the following fields; a queue's mutex may be taken while it is held
	subs  map[*subscription]struct{}
	lost  chan struct{} // closed when the current connection ends
	up    chan struct{} // closed when the connection is restored, or at Close
	watch watchers
}

// The values of Broker.gate, which every call checks first.
const (
	connected int32 = iota
	disconnected
	closed
)

var (
	_ broker.Broker         = (*Broker)(nil)
	_ broker.Delayer        = (*Broker)(nil)
	_ broker.BatchPublisher = (*Broker)(nil)
	_ broker.Retrier        = (*Broker)(nil)
	_ broker.Declarer       = (*Broker)(nil)
	_ broker.Describer      = (*Broker)(nil)
	_ broker.Inspector      = (*Broker)(nil)
	_ broker.DeadLetterer   = (*Broker)(nil)
	_ broker.Finder         = (*Broker)(nil)
	_ broker.QueueLister    = (*Broker)(nil)
	_ broker.Lister         = (*Broker)(nil)
	_ broker.DeadFinder     = (*Broker)(nil)
	_ broker.Watcher        = (*Broker)(nil)
	_ broker.Witness        = (*Broker)(nil)
	_ broker.KeyLister      = (*Broker)(nil)
	_ broker.Resizer        = (*subscription)(nil)
	_ broker.Bounder        = (*subscription)(nil)
	_ broker.SyncAcker      = (*delivery)(nil)
)

// New returns a connection to a new Server with the zero Config. No other Broker uses the Server,
// and its data ends with the Broker.
func New() *Broker {
	b := NewServer(Config{}).Connect()
	b.own = true
	return b
}

// newBroker returns a connection to s, which it does not register there. If up is false it begins
// disconnected, with errDown as the cause.
func newBroker(s *Server, up bool) *Broker {
	b := &Broker{s: s, subs: make(map[*subscription]struct{}), lost: make(chan struct{}), up: make(chan struct{})}
	b.watch.state = broker.Connected
	if !up {
		b.gate.Store(disconnected)
		b.watch.state, b.watch.err = broker.Disconnected, errDown
	}
	return b
}

// ready blocks until the Broker is connected and returns nil then. Returns broker.ErrUnavailable if
// ctx ends first, broker.ErrClosed after Close, also if Close comes during the wait. While it is
// connected it takes no lock. Otherwise it takes b.mu, but does not hold it while it waits.
func (b *Broker) ready(ctx context.Context) error {
	for {
		switch b.gate.Load() {
		case connected:
			return nil
		case closed:
			return errClosed
		}
		b.mu.Lock()
		up, gate := b.up, b.gate.Load()
		b.mu.Unlock()
		if gate != disconnected {
			continue
		}
		select {
		case <-up:
		case <-ctx.Done():
			return fmt.Errorf("membroker: no connection: %w: %w", broker.ErrUnavailable, context.Cause(ctx))
		}
	}
}

// Publish implements [broker.Broker]. It is PublishAt without a time: the message is ready at once.
// It returns the errors of PublishAt.
func (b *Broker) Publish(ctx context.Context, queue string, m *broker.Message) error {
	return b.PublishAt(ctx, queue, m, time.Time{})
}

// PublishAt implements [broker.Delayer]. It stores the message and gives ready messages to waiting
// receivers. It waits only for a connection and for room in a limited queue. It takes the queue's
// mutex, but does not hold it while it waits. A waiting message with the same ID and an earlier
// Generation is replaced.
//
//   - The message or the queue name is invalid: ErrMalformed or ErrTooLarge.
//   - The queue does not exist: ErrNoQueue.
//   - ctx ends while the queue is full: ErrBlocked.
//   - ctx ends without a connection: ErrUnavailable. After Close: ErrClosed.
//   - The queue has the same (ID, Generation) or a later Generation: the message is dropped, and
//     PublishAt returns nil.
func (b *Broker) PublishAt(ctx context.Context, queue string, m *broker.Message, at time.Time) error {
	if err := b.s.check(m); err != nil {
		return err
	}
	if err := b.ready(ctx); err != nil {
		return err
	}
	q, err := b.s.queue(queue)
	if err != nil {
		return err
	}
	q.mu.Lock()
	if q.full() {
		if err := q.waitForRoom(ctx); err != nil {
			return err
		}
	}
	q.put(m, at, time.Now())
	q.dispatch()
	q.admit() // m may have replaced another message or been dropped, and so freed room
	q.unlock()
	return nil
}

// waitForRoom blocks until the queue is not full. Waiting publishers continue in order. Call it
// with q.mu held; it frees q.mu while it waits. It returns nil with q.mu held. If ctx ends first it
// returns broker.ErrBlocked with q.mu free.
func (q *queue) waitForRoom(ctx context.Context) error {
	for q.full() {
		if ctx.Err() != nil {
			q.unlock()
			return fmt.Errorf("membroker: queue %q is full: %w: %w", q.name, broker.ErrBlocked, context.Cause(ctx))
		}
		w := q.s.newWaiter()
		q.room.push(w)
		q.unlock()
		select {
		case <-w.ch:
			q.mu.Lock()
		case <-ctx.Done():
			q.mu.Lock()
			if w.admitted {
				q.unlock()
				<-w.ch
				q.mu.Lock() // the room may still exist, and no other publisher is woken for it
			} else {
				q.room.remove(w)
			}
		}
		q.s.freeWaiter(w)
	}
	return nil
}

// check returns an error if the broker cannot store m; it changes nothing. Returns ErrMalformed for
// a nil message, a negative Generation or a header of another type. Returns ErrTooLarge if the body
// is larger than broker.BodyLimit allows for MaxBody and the Generation. It also does so if headers
// and properties together are larger than MaxBody. A maxBody of 0 or less limits nothing.
func (s *Server) check(m *broker.Message) error {
	if m == nil {
		return fmt.Errorf("membroker: nil message: %w", broker.ErrMalformed)
	}
	if m.Generation < 0 {
		return fmt.Errorf("membroker: %q: generation %d: %w", m.ID, m.Generation, broker.ErrMalformed)
	}
	if s.maxBody > 0 && len(m.Body) > broker.BodyLimit(s.maxBody, m.Generation) {
		return fmt.Errorf("membroker: %q: body of %d bytes, at most %d: %w", m.ID, len(m.Body), s.maxBody, broker.ErrTooLarge)
	}
	if m.Key != "" || m.Weight != 0 {
		if err := broker.CheckFairness(m); err != nil {
			return fmt.Errorf("membroker: %q: %w", m.ID, err)
		}
	}
	if m.Headers == nil && m.Properties == nil {
		return nil
	}
	size := 0
	for k, v := range m.Headers {
		size += len(k)
		switch v := v.(type) {
		case string:
			size += len(v)
		case []byte:
			size += len(v)
		case bool, int64, float64:
			size += 8
		default:
			return fmt.Errorf("membroker: %q: header %q has the type %T, which cannot be stored: %w", m.ID, k, v, broker.ErrMalformed)
		}
	}
	for k, v := range m.Properties {
		size += len(k) + len(v)
	}
	if s.maxBody > 0 && size > s.maxBody {
		return fmt.Errorf("membroker: %q: headers of %d bytes, at most %d: %w", m.ID, size, s.maxBody, broker.ErrTooLarge)
	}
	return nil
}

// Declare implements [broker.Declarer]. It creates the queues that do not exist. A queue may have
// up to 255 levels. A queue that Subscribe or PutDead created gets its settings from the first
// Declare. Later declarations change nothing; other settings are logged once per queue. It waits
// only for a connection. It takes the Server's mutex and the queues' mutexes.
//
// Declare stops at the first error; the queues before it exist then. Returns ErrMalformed for an
// invalid name, or for levels that descend or are too many. Returns ErrUnavailable if ctx ends
// before a connection exists, ErrClosed after Close.
func (b *Broker) Declare(ctx context.Context, qs ...broker.Queue) error {
	if err := b.ready(ctx); err != nil {
		return err
	}
	for _, q := range qs {
		if err := b.s.declare(q); err != nil {
			return err
		}
	}
	return nil
}

// Subscribe implements [broker.Broker]. It creates the queue if it does not exist, and waits only
// for a connection. A Prefetch of 0 or less means no limit. Lease is ignored, because a connection
// in memory always works until it is cut. It takes b.mu, and before that the Server's mutex to
// create the queue.
//
// Returns ErrMalformed for a name that is not valid, ErrUnavailable if ctx ends before a connection
// exists, ErrClosed after Close.
func (b *Broker) Subscribe(ctx context.Context, queue string, o broker.SubscribeOptions) (broker.Subscription, error) {
	if err := checkName(queue); err != nil {
		return nil, err
	}
	if err := broker.CheckOptions(o); err != nil {
		return nil, fmt.Errorf("membroker: subscribe to %q: %w", queue, err)
	}
	if err := b.ready(ctx); err != nil {
		return nil, err
	}
	q, err := b.s.ensure(queue)
	if err != nil {
		return nil, err
	}
	if err := q.countLoad(o.Bounds); err != nil {
		return nil, err
	}
	s := &subscription{q: q, b: b, limit: o.Prefetch, floor: floor.New(o.Floor)}
	if s.limit <= 0 {
		s.limit = -1
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch b.gate.Load() {
	case closed:
		return nil, errClosed
	case connected:
		s.live = true
	}
	s.lost = b.lost
	s.setBounds(o.Bounds)
	b.subs[s] = struct{}{}
	return s, nil
}

// forget removes a subscription that is closed and holds no message. It takes b.mu.
func (b *Broker) forget(s *subscription) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.subs, s)
}

// Close implements [broker.Broker]. Unsettled messages go back to their queues, also those that
// Receive has returned, and their Lost channels are closed. Waiting calls return ErrClosed. With a
// Broker of [New] the delayed messages are lost. Close waits for no message and no settlement. A
// second call returns nil. It takes the Server's mutex, b.mu and the queues' mutexes.
func (b *Broker) Close(context.Context) error {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	b.mu.Lock()
	if b.gate.Swap(closed) == closed {
		b.mu.Unlock()
		return nil
	}
	for s := range b.subs {
		s.endUnlocked(errClosed)
	}
	for s := range b.subs {
		s.cut()
	}
	clear(b.subs)
	close(b.lost)
	close(b.up)
	b.mu.Unlock()
	delete(b.s.conns, b)
	if b.own {
		b.s.clock.stop()
	}
	return nil
}

// disconnect ends the connection and reports Disconnected, with cause, to the watchers. All
// unsettled deliveries are lost: their Lost channels are closed, and their messages go back to the
// queues. Closed subscriptions are removed. It does nothing if the Broker is not connected. Call it
// with the Server's mutex held; it takes b.mu and the queues' mutexes.
func (b *Broker) disconnect(cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.gate.CompareAndSwap(connected, disconnected) {
		return
	}
	for s := range b.subs {
		s.pause()
	}
	for s := range b.subs {
		if s.cut(); s.isClosed() {
			delete(b.subs, s)
		}
	}
	close(b.lost)
	b.lost = make(chan struct{})
	b.watch.set(broker.Disconnected, cause)
}

// reconnect restores the connection: it wakes the calls that wait for it, lets the subscriptions
// continue, and reports Connected to the watchers. It does nothing if the Broker is not
// disconnected. Call it with the Server's mutex held; it takes b.mu and the queues' mutexes.
func (b *Broker) reconnect() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.gate.CompareAndSwap(disconnected, connected) {
		return
	}
	for s := range b.subs {
		s.resume(b.lost)
	}
	close(b.up)
	b.up = make(chan struct{})
	b.watch.set(broker.Connected, nil)
}
