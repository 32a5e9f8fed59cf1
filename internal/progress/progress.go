// Package progress sends the progress of a running task: the last value, at most one a second.
package progress

import (
	"context"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/task"
)

// Every is the shortest time between two values that are sent.
const Every = time.Second

// Reporter sends the progress of one attempt. Make it with [New]. Safe for concurrent use.
type Reporter struct {
	send func(ctx context.Context, p task.ProgressValue)

	mu     sync.Mutex
	last   task.ProgressValue
	fresh  bool // last was not sent
	closed bool
	cancel context.CancelFunc // ends the goroutine; nil: no goroutine runs
	ended  chan struct{}      // closed at the end of that goroutine
}

// New returns a Reporter that calls send from its own goroutine. The context of send ends at Close.
func New(send func(ctx context.Context, p task.ProgressValue)) *Reporter {
	return &Reporter{send: send}
}

// Report stores p as the last progress. A goroutine sends it now, or when [Every] has passed since
// the last send; of several values it sends the last one. Report starts the goroutine if none runs.
// It does nothing after Close. It does not block.
func (r *Reporter) Report(p task.ProgressValue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.last, r.fresh = p, true
	if r.cancel == nil {
		var ctx context.Context
		ctx, r.cancel = context.WithCancel(context.Background())
		r.ended = make(chan struct{})
		go r.run(ctx, r.ended)
	}
}

// run is the body of the goroutine: it sends values until none came within Every, or ctx ends, and
// then closes ended.
func (r *Reporter) run(ctx context.Context, ended chan<- struct{}) {
	defer close(ended)
	for {
		p, ok := r.next()
		if !ok {
			return
		}
		r.send(ctx, p)
		if !wake.Sleep(ctx, Every) {
			return
		}
	}
}

// next returns the value to send and true. Without a new value, or after Close, it returns false
// and records that no goroutine runs: the next Report starts one. It takes r.mu.
func (r *Reporter) next() (task.ProgressValue, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.fresh || r.closed {
		if !r.closed {
			r.cancel()
			r.cancel = nil
		}
		return task.ProgressValue{}, false
	}
	r.fresh = false
	return r.last, true
}

// Close ends the reports and returns the last progress. It ends the context of a running send and
// waits for its return. A second call returns the same.
func (r *Reporter) Close() task.ProgressValue {
	r.mu.Lock()
	r.closed = true
	cancel, ended := r.cancel, r.ended
	r.mu.Unlock()
	if cancel != nil {
		cancel()
		<-ended
	}
	return r.last
}
