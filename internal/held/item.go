package held

import (
	"context"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// Item is the part of a claimed record that a [Set] knows. Embed it. A handler may run for it. In
// the zero value none does. Safe for concurrent use.
type Item struct {
	mu       sync.Mutex
	cancel   context.CancelCauseFunc // of the handler; nil: none runs
	expiry   *time.Timer             // calls end; nil: the lease is not watched
	ended    bool                    // the lease may have
	lost     bool
	settling bool
	idle     bool // under the mutex of the Set
}

func (i *Item) item() *Item { return i }

// Begin returns the context of the handler. Call over when the handler has ended.
//
// The context ends with cause [task.ErrLeaseLost] when the record is lost, or when its lease may
// have ended ([Set.Expire]).
func (i *Item) Begin(parent context.Context) (ctx context.Context, over func()) {
	ctx, cancel := context.WithCancelCause(parent)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.cancel = cancel
	if i.lost || i.ended {
		cancel(task.ErrLeaseLost)
	}
	return ctx, func() {
		i.mu.Lock()
		i.cancel = nil
		i.mu.Unlock()
		cancel(nil)
	}
}

// Runs reports whether a handler runs.
func (i *Item) Runs() bool { return i.is(func() bool { return i.cancel != nil }) }

// Lose notes that another process has the record now, and ends the handler's context. It reports
// whether that is news.
func (i *Item) Lose() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	first := !i.lost
	i.lost = true
	i.stop()
	return first
}

// Lost reports whether another process has the record.
func (i *Item) Lost() bool { return i.is(func() bool { return i.lost }) }

// Ended reports whether the lease may have ended, by the clock of this process: see [Set.Expire].
// Whether another process has the record is not known.
func (i *Item) Ended() bool { return i.is(func() bool { return i.ended }) }

// Settle notes that the end of the attempt is being stored: from now on no renewal says that the
// record is lost. It reports whether that is news.
func (i *Item) Settle() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	first := !i.settling
	i.settling = true
	return first
}

// Resume takes Settle back: nothing was stored, and the attempt goes on.
func (i *Item) Resume() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.settling = false
}

// Settling reports whether the end of the attempt is being stored, or is.
func (i *Item) Settling() bool { return i.is(func() bool { return i.settling }) }

func (i *Item) is(what func() bool) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return what()
}

// stop ends the handler's context. The caller holds the mutex.
func (i *Item) stop() {
	if i.cancel != nil {
		i.cancel(task.ErrLeaseLost)
	}
}

// extend has a lease that is watched end later.
func (i *Item) extend(at time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.expiry != nil {
		i.expiry.Reset(time.Until(at))
	}
}

// watch has the lease end at a time of this process's clock, until it is extended.
func (i *Item) watch(at time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.expiry = time.AfterFunc(time.Until(at), func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.ended = true
		i.stop()
	})
}

// forget ends the watch over the lease.
func (i *Item) forget() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.expiry != nil {
		i.expiry.Stop()
		i.expiry = nil
	}
}
