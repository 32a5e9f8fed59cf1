package held

import (
	"context"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// Item is the state of a claimed record that a [Set] uses. Embed it in the type of the record. The
// zero value has no running handler. Safe for concurrent use.
type Item struct {
	mu     sync.Mutex
	cancel context.CancelCauseFunc // cancels the handler's context; nil: no handler runs
	// cancels the handler when the lease ends; nil: the lease is not watched
	expiry   *time.Timer
	ended    bool // the lease may have ended
	lost     bool
	settling bool
	idle     bool // guarded by the mutex of the Set
}

// item returns i, so that a Set reaches the state of a record that embeds Item.
func (i *Item) item() *Item { return i }

// Begin returns a context for the handler, derived from parent, and from then on Runs is true. Call
// over when the handler has returned: it ends the context, and Runs is false again.
//
// The context ends with cause [task.ErrLeaseLost] when the record is lost, or when its lease may
// have ended ([Set.Expire]). If that is so already, it has ended when Begin returns. Begin and over
// take i.mu.
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

// Lose records that another process has claimed the record, and ends the handler's context with
// cause [task.ErrLeaseLost]. It returns false if that was recorded before. It takes i.mu.
func (i *Item) Lose() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	first := !i.lost
	i.lost = true
	i.stop()
	return first
}

// Lost reports whether another process has claimed the record.
func (i *Item) Lost() bool { return i.is(func() bool { return i.lost }) }

// Ended reports whether the lease may have ended, by the clock of this process: see [Set.Expire].
// It does not tell whether another process has claimed the record.
func (i *Item) Ended() bool { return i.is(func() bool { return i.ended }) }

// Settle records that the end of the attempt is being stored. From then on a failed renewal does
// not make the record lost. It returns false if Settle was called before and not undone by Resume.
// It takes i.mu.
func (i *Item) Settle() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	first := !i.settling
	i.settling = true
	return first
}

// Resume undoes Settle: nothing was stored, and the attempt continues. It takes i.mu.
func (i *Item) Resume() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.settling = false
}

// Settling reports whether the end of the attempt is being stored or was stored.
func (i *Item) Settling() bool { return i.is(func() bool { return i.settling }) }

// is returns the result of what, which it calls with i.mu held.
func (i *Item) is(what func() bool) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return what()
}

// stop ends the handler's context with task.ErrLeaseLost, if a handler runs. Call it with i.mu
// held.
func (i *Item) stop() {
	if i.cancel != nil {
		i.cancel(task.ErrLeaseLost)
	}
}

// extend moves the end of a watched lease to at. It does nothing if the lease is not watched. It
// takes i.mu.
func (i *Item) extend(at time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.expiry != nil {
		i.expiry.Reset(time.Until(at))
	}
}

// watch starts a timer for the end of the lease, at time at of this process's clock; extend moves
// it. Then Ended is true, and the handler's context ends with cause [task.ErrLeaseLost]. It takes
// i.mu.
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

// forget stops watching the lease. It takes i.mu.
func (i *Item) forget() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.expiry != nil {
		i.expiry.Stop()
		i.expiry = nil
	}
}
