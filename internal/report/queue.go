package report

import (
	"context"
	"fmt"
	"sync"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/ring"
	"github.com/swarmiji/swarmiji/internal/wake"
)

// capacity is the maximum number of events that wait for a bus that may block. Beyond it the oldest
// events are dropped.
const capacity = 8192

// queue separates tasks from a bus that may block or panic, though it should not. Its goroutine
// starts with the first event and ends with close. If the bus never returns, the goroutine stays
// blocked.
type queue struct {
	bus  events.EventBus
	lost func(n int64)
	warn func(error)

	wake  wake.Signal
	ended chan struct{}

	mu      sync.Mutex
	waiting ring.Ring[events.Event]
	running bool
	closed  bool
}

// newQueue returns a queue for bus. It starts no goroutine. lost gets the number of lost events,
// and warn the problems of the bus.
func newQueue(bus events.EventBus, lost func(int64), warn func(error)) *queue {
	return &queue{
		bus: bus, lost: lost, warn: warn,
		wake: wake.New(), ended: make(chan struct{}), waiting: ring.New[events.Event](capacity),
	}
}

// add appends e and returns at once. The queue owns e afterwards. The first call starts the
// goroutine. If the queue is full, the oldest event is dropped and counted. After close e is
// counted as lost. It takes q.mu.
func (q *queue) add(e *events.Event) {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		q.lost(1)
		return
	}
	dropped := q.waiting.Push(e)
	if !q.running {
		q.running = true
		go q.run()
	}
	q.mu.Unlock()
	if dropped {
		q.lost(1)
	}
	q.wake.Notify()
}

// run is the body of the goroutine: it publishes the waiting events until close was called and none
// is left, and then closes q.ended. It takes q.mu, but not while it publishes.
func (q *queue) run() {
	defer close(q.ended)
	for {
		var e events.Event
		q.mu.Lock()
		ok := q.waiting.Pop(&e)
		closed := q.closed
		q.mu.Unlock()
		switch {
		case ok:
			q.publish(e)
		case closed:
			return
		default:
			<-q.wake
		}
	}
}

// publish passes e to the bus. An error or a panic counts as one lost event; it also reports a
// panic to warn.
func (q *queue) publish(e events.Event) {
	defer func() {
		if p := recover(); p != nil {
			q.lost(1)
			q.warn(fmt.Errorf("the event bus panicked: %v", p))
		}
	}()
	if err := q.bus.Publish(context.Background(), e); err != nil {
		q.lost(1)
	}
}

// close refuses further events and waits until the bus has taken the waiting ones or ctx ends. Then
// it drops and counts the rest and reports that to warn. It takes q.mu, but not while it waits.
func (q *queue) close(ctx context.Context) {
	q.mu.Lock()
	q.closed = true
	running := q.running
	q.mu.Unlock()
	if !running {
		return
	}
	q.wake.Notify()
	select {
	case <-q.ended:
		return
	default:
	}
	select {
	case <-q.ended:
	case <-ctx.Done():
		q.mu.Lock()
		n := q.waiting.Len()
		q.waiting.Clear()
		q.mu.Unlock()
		q.lost(int64(n))
		q.warn(fmt.Errorf("the event bus does not take events: %w", context.Cause(ctx)))
	}
}
