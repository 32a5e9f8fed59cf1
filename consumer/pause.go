package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Pause has the consumer take no more tasks from the queues, all of them when none is named: what it fetched and did not start
// goes back at once, for others; what runs ends as ever. The side queue that an older version left pauses too. It returns when all
// that is done.
// Pausing what is paused does nothing. A paused consumer can be scaled and stopped.
//
// Where the broker cannot change a subscription's prefetch (see [broker.Resizer]), what the subscription holds stays held.
//
// Besides [ErrNotRunning] and [ErrNoQueue], which leave everything as it is, Pause may return what the broker said; then no task
// is started all the same.
func (c *Consumer) Pause(queues ...string) error {
	h := &c.cfg.Hooks
	return c.hooked("pause", queues, h.BeforePause, func() error { return c.eachNamed(queues, (*queue).pause) }, h.AfterPause)
}

// Resume takes back what Pause did, for the queues that are named or for all. Resuming what is not paused does nothing.
//
// Besides [ErrNotRunning] and [ErrNoQueue] it may return what the broker said; then the queue is still paused.
func (c *Consumer) Resume(queues ...string) error {
	h := &c.cfg.Hooks
	return c.hooked("resume", queues, h.BeforeResume, func() error { return c.eachNamed(queues, (*queue).resume) }, h.AfterResume)
}

// eachNamed does something to the queues of these names, or to all, and to their side queues.
func (c *Consumer) eachNamed(names []string, do func(*queue, context.Context) error) error {
	l, err := c.consuming()
	if err != nil {
		return err
	}
	for _, name := range names {
		if l.find(name) == nil {
			return fmt.Errorf("%w: %q", ErrNoQueue, name)
		}
	}
	queues := l.queues
	if len(names) > 0 {
		queues = nil
		for _, q := range l.queues {
			if slices.Contains(names, q.name) {
				queues = append(queues, q)
			}
		}
	}
	return each(queues, do)
}

// each does something to queues, all at once, with their control held. A stop ends it.
func each(queues []*queue, do func(*queue, context.Context) error) error {
	errs := make([]error, len(queues))
	var wg sync.WaitGroup
	for i, q := range queues {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(q.fetch, openTimeout)
			defer cancel()
			q.control.Lock()
			defer q.control.Unlock()
			err := ErrNotRunning
			if q.fetch.Err() == nil {
				err = do(q, ctx)
			}
			if err != nil {
				errs[i] = fmt.Errorf("swarmiji: consumer: queue %q: %w", q.source, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// pause is called with control held.
func (q *queue) pause(ctx context.Context) error {
	if q.gate.shut.Load() {
		return nil
	}
	q.gate.close()
	q.c.answers.choose()
	return q.returnAll(ctx)
}

// returnAll stops the fetching and gives back all that was not started. It is called with control held.
func (q *queue) returnAll(ctx context.Context) error {
	q.c.rates.GiveBack(&q.rated)
	ok, err := q.returnHeld(ctx, everything)
	if !ok {
		q.c.warnOnce("return "+q.source, "a queue that fetches nothing keeps what it has fetched: this broker's prefetch cannot change")
	}
	return err
}

// resume is called with control held.
func (q *queue) resume(ctx context.Context) error {
	if !q.gate.shut.Load() {
		return nil
	}
	if err := q.tellPrefetch(ctx); err != nil {
		return err
	}
	q.gate.reopen()
	q.c.answers.choose()
	return nil
}

// gate is shut while a queue is paused. The zero value is open.
type gate struct {
	shut  atomic.Bool
	since atomic.Int64 // nanoseconds since 1970: when it was last opened; 0: it was never shut

	mu     sync.Mutex
	opened chan struct{}   // closed when a shut gate opens
	open   context.Context // ends when an open gate is shut; nil until somebody asks
	end    context.CancelFunc
}

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

func (g *gate) reopen() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.since.Store(time.Now().UnixNano()) // before it is seen to be open
	g.shut.Store(false)
	close(g.opened)
}

// context returns a context that ends when the gate is shut, and with parent, which is always the same.
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

// await waits until the gate is open and reports whether it is; false: ctx has ended.
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
