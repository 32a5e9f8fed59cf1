package intake

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// ErrNotRunning is returned for a queue whose fetching has ended.
var ErrNotRunning = errors.New("swarmiji: consumer: not running")

// Reason says why a queue is paused. A queue is paused while it has any reason.
type Reason uint8

// Reasons of a pause.
const (
	ByHand  Reason = 1 << iota // a call of the program, or a command
	Stored                     // a stored pause
	Tripped                    // a breaker
)

// Pause adds a reason for the pause of the queues. A queue that was not paused stops fetching and
// gives back its tasks that have not started. Pause returns when the tasks are given back. It takes
// the control lock of each queue, so calls for the same queue run one after the other. Before Open
// it makes Open only declare the queue.
//
// Returns the errors of all queues, joined; [ErrNotRunning] for a queue whose fetching has ended.
// After any other error the queue is paused as well: no task of it starts.
func Pause(why Reason, queues ...*Queue) error {
	return each(queues, func(q *Queue, ctx context.Context) error { return q.pause(ctx, why) })
}

// Resume removes a reason for the pause of the queues. A queue without a further reason fetches
// again, and Resume waits for the broker. It takes the control lock of each queue, so calls for the
// same queue run one after the other.
//
// Returns the errors of all queues, joined; [ErrNotRunning] for a queue whose fetching has ended.
// After an error the queue stays paused, for the same reason.
func Resume(why Reason, queues ...*Queue) error {
	return each(queues, func(q *Queue, ctx context.Context) error { return q.resume(ctx, why) })
}

// SetPause adds the reasons of set and removes those of unset, as Pause and Resume do. It returns
// the errors of both, joined.
func (q *Queue) SetPause(set, unset Reason) error {
	return errors.Join(Pause(set, q), Resume(unset, q))
}

// each calls do for all queues at once, with q.control held, and waits for all calls. The context
// of a call ends after openTimeout and when fetching stops. For a queue whose fetching has ended it
// does not call do; the error is [ErrNotRunning]. Returns the errors, each with the name of its
// queue, joined.
func each(queues []*Queue, do func(*Queue, context.Context) error) error {
	errs := make([]error, len(queues))
	var wg sync.WaitGroup
	for i, q := range queues {
		wg.Go(func() {
			q.control.Lock()
			defer q.control.Unlock()
			ctx, cancel := context.WithTimeout(q.fetch, openTimeout)
			defer cancel()
			err := ErrNotRunning
			if q.fetch.Err() == nil {
				err = do(q, ctx)
			}
			if err != nil {
				errs[i] = q.wrap(err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// pause adds why to the reasons of the pause. If the queue was paused already, it does nothing
// else. Otherwise it closes the gate of the queue, so that its workers fetch nothing, and calls
// Tasks.AcceptsChanged. It then gives back the tasks of the queue that have not started, and
// returns the error of that; the queue is paused in any case. Call it with q.control held.
func (q *Queue) pause(ctx context.Context, why Reason) error {
	before := q.reasons
	q.reasons |= why
	if before != 0 || q.reasons == 0 {
		return nil
	}
	q.gate.close()
	q.cfg.Tasks.AcceptsChanged()
	if q.subscription() == nil { // not open yet
		return nil
	}
	return q.returnAll(ctx)
}

// resume removes why from the reasons of the pause. If another reason is left, or the queue was not
// paused, it does nothing else. Otherwise it sets the prefetch of the subscription, opens the gate
// of the queue and calls Tasks.AcceptsChanged. If the queue was opened while it was paused, it
// subscribes first. After an error of the broker, which it returns, the queue stays paused for why.
// Call it with q.control held.
func (q *Queue) resume(ctx context.Context, why Reason) error {
	rest := q.reasons &^ why
	if q.reasons == 0 || rest != 0 {
		q.reasons = rest
		return nil
	}
	var err error
	switch {
	case q.subscription() != nil:
		q.setLimit(q.prefetchOf(q.workers.Count())) // it may have followed long tasks
		err = q.setPrefetch(ctx)
	case q.opened:
		err = q.subscribe(ctx)
	}
	if err != nil {
		return err
	}
	q.reasons = 0
	q.gate.reopen()
	q.cfg.Tasks.AcceptsChanged()
	return nil
}

// gate is shut while a queue is paused. The zero value is open.
type gate struct {
	shut  atomic.Bool
	since atomic.Int64 // nanoseconds since 1970 of the last reopen; 0: never shut

	mu     sync.Mutex
	opened chan struct{}   // closed when a shut gate opens
	open   context.Context // ends when the gate is shut; nil until it is needed
	end    context.CancelFunc
}

// close shuts the gate and ends the contexts that context has returned. Call it only while the gate
// is open. It takes g.mu.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.opened = make(chan struct{})
	g.shut.Store(true)
	if g.end != nil {
		g.end()
		g.open, g.end = nil, nil
	}
}

// reopen opens the gate, stores the time in g.since, and wakes the goroutines in await. Call it
// only while the gate is shut. It takes g.mu.
func (g *gate) reopen() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.since.Store(time.Now().UnixNano()) // before other goroutines see it open
	g.shut.Store(false)
	close(g.opened)
}

// context returns a context that ends when the gate is shut or parent ends. If the gate is shut, it
// has ended already. Always pass the same parent: open contexts are shared. It takes g.mu.
func (g *gate) context(parent context.Context) context.Context {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut.Load() {
		ended, end := context.WithCancel(parent)
		end()
		return ended
	}
	if g.open == nil {
		g.open, g.end = context.WithCancel(parent)
	}
	return g.open
}

// await blocks until the gate is open and returns true, or returns false when ctx has ended. If the
// gate is open, it returns true even after the end of ctx. It takes g.mu, but not while it waits.
func (g *gate) await(ctx context.Context) bool {
	for {
		g.mu.Lock()
		opened := g.opened
		g.mu.Unlock()
		if !g.shut.Load() {
			return true
		}
		select {
		case <-opened:
		case <-ctx.Done():
			return false
		}
	}
}
