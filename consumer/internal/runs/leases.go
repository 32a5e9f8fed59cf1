package runs

import (
	"context"
	"sync"

	"github.com/swarmiji/swarmiji/task"
)

// Leases makes contexts that end when the broker takes a delivery back. Deliveries with the same
// Lost channel share one context and one goroutine, for example all deliveries of an AMQP channel.
// The zero value is ready for use. Safe for concurrent use.
type Leases struct {
	mu      sync.Mutex
	current map[<-chan struct{}]*lease
}

// lease is the context for one Lost channel, with the number of its uses.
type lease struct {
	ctx  context.Context
	end  context.CancelCauseFunc
	uses int
}

// Acquire returns a context that ends with parent, or when lost is closed, with the cause
// [task.ErrLeaseLost]. If lost is nil, it returns parent. The first call for a channel starts a
// goroutine; later ones return the same context, so always pass the same parent. It may end
// contexts of other channels that have no use any more, see sweepLocked. Call Release for each
// Acquire. It takes l.mu.
func (l *Leases) Acquire(parent context.Context, lost <-chan struct{}) context.Context {
	if lost == nil {
		return parent
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if s, ok := l.current[lost]; ok {
		s.uses++
		return s.ctx
	}
	s := &lease{uses: 1}
	s.ctx, s.end = context.WithCancelCause(parent)
	if l.current == nil {
		l.current = make(map[<-chan struct{}]*lease)
	}
	l.sweepLocked()
	l.current[lost] = s
	go func() {
		select {
		case <-lost:
			s.end(task.ErrLeaseLost)
		case <-s.ctx.Done():
		}
	}()
	return s.ctx
}

// keepIdle is the number of unused contexts that are kept for later deliveries.
const keepIdle = 4

// sweepLocked ends and forgets unused contexts, except for keepIdle of them. Call it with l.mu
// held.
func (l *Leases) sweepLocked() {
	idle := 0
	for lost, s := range l.current {
		if s.uses > 0 {
			continue
		}
		if idle++; idle > keepIdle {
			s.end(nil)
			delete(l.current, lost)
		}
	}
}

// Release ends one use of the context that Acquire returned for the same channel. The context
// itself may be kept for later deliveries with this channel. It does nothing for nil or an unknown
// channel. It takes l.mu.
func (l *Leases) Release(lost <-chan struct{}) {
	if lost == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if s, ok := l.current[lost]; ok {
		s.uses--
	}
}
