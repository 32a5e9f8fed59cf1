package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/swarmiji/swarmiji/consumer/internal/intake"
	"github.com/swarmiji/swarmiji/internal/utf"
)

// live holds the queues of a consuming consumer and their workers. It is immutable.
type live struct {
	queues  []*queue
	workers []*intake.Workers
}

// consuming returns the consumed queues and workers, or [ErrNotRunning] if c does not consume.
func (c *Consumer) consuming() (*live, error) {
	if l := c.live.Load(); l != nil {
		return l, nil
	}
	return nil, ErrNotRunning
}

// find returns the open queue with this name, or nil if the consumer does not consume it. It never
// returns a side queue of an older version.
func (l *live) find(name string) *queue {
	for _, q := range l.queues {
		if q.name == name && !q.side() {
			return q
		}
	}
	return nil
}

// consumed returns the open queue with this name, or nil if the consumer does not consume it now.
func (c *Consumer) consumed(name string) *queue {
	if l := c.live.Load(); l != nil {
		return l.find(name)
	}
	return nil
}

// endLive sets c.live to nil, so that queues can no longer be changed. It returns the last queues
// and workers. It takes c.changing.
func (c *Consumer) endLive() *live {
	c.changing.Lock()
	defer c.changing.Unlock()
	return c.live.Swap(nil)
}

// AddQueue begins to consume a queue while the consumer runs. Its tasks run as those of a queue in
// Config.Queues. It declares and subscribes to the queue, and waits for an unreachable broker until
// ctx ends. A queue that is paused in Config.Settings stays paused.
//
// Returns [ErrNotRunning], [ErrQueueExists], errors of the configuration and errors of the broker,
// which change nothing. Calls of AddQueue and RemoveQueue run one after the other.
func (c *Consumer) AddQueue(ctx context.Context, name string, cfg QueueConfig) error {
	if err := c.cfg.completeQueue(name, &cfg); err != nil {
		return fmt.Errorf("swarmiji: consumer: %w", err)
	}
	return c.addQueue(ctx, name, &cfg, true)
}

// RemoveQueue ends the consumption of a queue while the consumer runs. It gives fetched tasks that
// have not started back to the broker, and waits until running ones are settled. Messages stay in
// the queue. The last queue can be removed too.
//
// If ctx ends first, RemoveQueue returns its cause: no task of the queue starts any more, and the
// running ones are settled later. Returns [ErrNotRunning], [ErrNoQueue], and [ErrPolled] for a
// queue of a [Poll], which change nothing. After an error of the broker the queue is not consumed
// either.
func (c *Consumer) RemoveQueue(ctx context.Context, name string) error {
	left, err := c.beginRemoval(name, true)
	if err != nil {
		return err
	}
	select {
	case err := <-left:
		return err
	case <-ctx.Done():
		return fmt.Errorf("swarmiji: consumer: queue %q is left, and its last tasks are not settled yet: %w", name, context.Cause(ctx))
	}
}

// addQueue is AddQueue for a configuration with its defaults set. own is true if the program adds
// the queue, and false if its group does. It takes c.changing.
func (c *Consumer) addQueue(ctx context.Context, name string, cfg *QueueConfig, own bool) error {
	c.changing.Lock()
	defer c.changing.Unlock()
	l, err := c.consuming()
	switch {
	case err != nil:
		return err
	case l.find(name) != nil:
		return fmt.Errorf("%w: %q", ErrQueueExists, utf.Cut(name, 128))
	}
	q := newQueue(c, name, name, cfg)
	_ = q.applySettings() // not open: there is no error
	opening, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(q.fetch, cancel)()
	if err := q.in.Open(opening); err != nil {
		q.endFetch()
		return fmt.Errorf("swarmiji: consumer: queue %q: %w", name, err)
	}
	opened := []*queue{q}
	if side := q.oldSideQueue(opening); side != nil {
		opened = append(opened, side)
	}
	workers := workersOf(c, opened)
	if own { // first: a group leaves a queue that is consumed and not wanted
		c.wanted.Set(name, *cfg)
	}
	c.queues.Set(name, *cfg)
	c.live.Store(&live{queues: slices.Concat(l.queues, opened), workers: slices.Concat(l.workers, workers)})
	_ = q.applySettings() // they may have changed while Open waited
	c.steer.Wake()        // applies them again after an error
	for _, t := range workers {
		t.Start()
	}
	c.autoscale(opened)
	c.answers.UpdateQueues()
	return nil
}

// beginRemoval removes a queue, and its side queue of an older version, from the consumed ones. A
// goroutine of the settlement then calls leave for them and sends the errors to left. own is true
// if the program removes the queue, and false if its group does. Returns the errors of RemoveQueue
// that change nothing. It takes c.changing.
func (c *Consumer) beginRemoval(name string, own bool) (left chan error, err error) {
	c.changing.Lock()
	defer c.changing.Unlock()
	l, err := c.consuming()
	if err != nil {
		return nil, err
	}
	q := l.find(name)
	switch {
	case q == nil:
		return nil, fmt.Errorf("%w: %q", ErrNoQueue, utf.Cut(name, 128))
	case q.polled:
		return nil, fmt.Errorf("%w: %q", ErrPolled, name)
	}
	rest := &live{}
	var gone []*queue
	for _, q := range l.queues {
		if q.name == name {
			gone = append(gone, q)
		} else {
			rest.queues = append(rest.queues, q)
		}
	}
	for _, t := range l.workers {
		if !slices.ContainsFunc(gone, func(q *queue) bool { return q.workers == t }) {
			rest.workers = append(rest.workers, t)
		}
	}
	c.live.Store(rest)
	if own { // first: a group serves a queue that is wanted and not consumed
		c.wanted.Remove(name)
	}
	c.queues.Remove(name)
	c.answers.UpdateQueues()
	left = make(chan error, 1)
	c.settling.Go(func() { // so that a stop waits for it
		var errs []error
		for _, q := range gone {
			errs = append(errs, q.leave())
		}
		left <- errors.Join(errs...)
	})
	return left, nil
}

// leave ends the consumption of a queue with its own workers. It gives back the tasks that have not
// started, closes the subscription, and blocks until the others are settled. Returns the error of
// closing.
func (q *queue) leave() error {
	q.endFetch()
	q.workers.Stop()
	q.c.rates.GiveBack(&q.rateQueue)
	err := q.close()
	q.workers.Wait()
	q.settling.Wait()
	return err
}

// workersOf returns the workers of open queues, one set for each Poll and for each other queue, and
// sets q.workers and q.polled. No worker runs before Start, but the sets of Polls fetch now; their
// fatal errors go to c.failed. A set fetches nothing while too many handlers of its queues are
// stuck. Queues of Polls that are not in queues are left out.
func workersOf(c *Consumer, queues []*queue) []*intake.Workers {
	byName := make(map[string]*queue, len(queues))
	for _, q := range queues {
		byName[q.source] = q
	}
	var all []*intake.Workers
	add := func(fetch context.Context, cfg intake.WorkersConfig, queues ...*queue) {
		cfg.Overloaded = c.tooManyStuck(queues)
		in := make([]*intake.Queue, len(queues))
		for i, q := range queues {
			in[i] = q.in
		}
		t := intake.NewWorkers(cfg, in...)
		for _, q := range queues {
			q.workers, q.polled = t, cfg.Order != nil
		}
		t.Prepare(fetch, c.failed)
		all = append(all, t)
	}
	for _, p := range c.cfg.Polls {
		var polled []*queue
		for _, name := range p.Queues {
			if q := byName[name]; q != nil { // nil: the broker allowed no consumer for it
				polled = append(polled, q)
			}
		}
		if len(polled) > 0 {
			add(c.fetch, intake.WorkersConfig{Workers: p.Workers, Order: &intake.Order{Interval: p.Interval, Share: p.Share}}, polled...)
		}
	}
	for _, q := range queues {
		if q.workers == nil {
			add(q.fetch, intake.WorkersConfig{Workers: q.cfg.Workers}, q)
		}
	}
	return all
}
