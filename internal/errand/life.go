package errand

import (
	"context"
	"sync"

	"github.com/swarmiji/swarmiji/task"
)

// Life is the time in which something is held under a lease, and in which a handler may run for it. The zero value holds it, and nothing
// runs. All methods may be called from any goroutine.
type Life struct {
	mu     sync.Mutex
	cancel context.CancelCauseFunc // of the handler; nil: none runs
	lost   bool
	ended  bool
}

// End notes that the lease may have ended, as far as the holder's own clock tells: the handler's
// context ends with cause [task.ErrLeaseLost]. Whether another has it is not known.
func (l *Life) End() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	if l.cancel != nil {
		l.cancel(task.ErrLeaseLost)
	}
}

// Ended reports whether End was called.
func (l *Life) Ended() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// Lose notes that another has it now: the handler's context ends with cause [task.ErrLeaseLost]. It reports whether this is the
// first that is known of it.
func (l *Life) Lose() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := !l.lost
	l.lost = true
	if l.cancel != nil {
		l.cancel(task.ErrLeaseLost)
	}
	return first
}

// Lost reports whether another has it.
func (l *Life) Lost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// Runs reports whether a handler runs.
func (l *Life) Runs() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cancel != nil
}

// Begin returns the context of the handler, and what is to be called when it has ended.
func (l *Life) Begin(parent context.Context) (ctx context.Context, over func()) {
	ctx, cancel := context.WithCancelCause(parent)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancel = cancel
	if l.lost || l.ended {
		cancel(task.ErrLeaseLost)
	}
	return ctx, func() {
		l.mu.Lock()
		l.cancel = nil
		l.mu.Unlock()
		cancel(nil)
	}
}
