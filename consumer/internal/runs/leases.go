package runs

import (
	"context"
	"sync"

	"github.com/swarmiji/swarmiji/task"
)

// Leases makes contexts that end when the broker takes a delivery back. Deliveries that share a
// Lost channel share one context and one goroutine. All deliveries of one AMQP channel do.
type Leases struct {
	mu      sync.Mutex
	current map[<-chan struct{}]*lease
}

type lease struct {
	ctx  context.Context
	end  context.CancelCauseFunc
	uses int
}

// Acquire returns the context of a delivery; Release must follow.
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

// keepIdle is how many contexts without a delivery are kept for later deliveries.
const keepIdle = 4

// sweepLocked ends idle contexts when there are too many of them.
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

// Release releases the context of a delivery.
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
