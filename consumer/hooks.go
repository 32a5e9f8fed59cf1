package consumer

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/internal/guard"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/task"
)

// Hooks are functions that a consumer calls when something happens to it or to a task. Each may be nil. A panic in one is its
// error where it returns one, and is logged where it does not.
type Hooks struct {
	// Tasks are the hooks of tasks: before and after dequeue, before, around and after perform,
	// success, retry, failure, and before and after enqueue for the successors and retries that
	// this consumer sends. They lie around Config.Middleware.
	Tasks middleware.HookSet
	// BeforeStart runs in Run, before anything is asked of the broker. An error is a veto: Run returns it. ctx ends when
	// the consumer is asked to stop.
	BeforeStart func(ctx context.Context) error
	// BeforeShutdown runs when the consumer stops, after BeforeStart has passed: nothing is fetched any more, and what runs
	// goes on beside it. ctx ends after ShutdownTimeout, which begins anew for the tasks, and with Kill.
	BeforeShutdown func(ctx context.Context)
	// BeforePause runs before [Consumer.Pause] does anything, with the queues as Pause was given them, none for all. An error
	// is a veto: Pause returns it, and nothing is paused. ctx ends when running tasks are cut short by a stop.
	BeforePause func(ctx context.Context, queues []string) error
	// AfterPause runs when Pause has come to its end, with its error.
	AfterPause func(ctx context.Context, queues []string, err error)
	// BeforeResume and AfterResume are the same for [Consumer.Resume].
	BeforeResume func(ctx context.Context, queues []string) error
	AfterResume  func(ctx context.Context, queues []string, err error)
}

// ask calls a hook that may veto.
func ask(what string, hook func() error) error {
	if err := guard.Call(hook); err != nil {
		return fmt.Errorf("swarmiji: consumer: hook before %s: %w", what, err)
	}
	return nil
}

// beforeStart calls the hook and reports its veto.
func (c *Consumer) beforeStart(ctx context.Context) error {
	if c.cfg.Hooks.BeforeStart == nil {
		return nil
	}
	return ask("start", func() error { return c.cfg.Hooks.BeforeStart(ctx) })
}

// beforeShutdown calls the hook, within ShutdownTimeout.
func (c *Consumer) beforeShutdown() {
	hook := c.cfg.Hooks.BeforeShutdown
	if hook == nil {
		return
	}
	ctx, cancel := context.WithTimeout(c.settle, max(c.cfg.ShutdownTimeout, time.Nanosecond))
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-c.killed:
			cancel()
		case <-ctx.Done():
		}
	}()
	middleware.Guard(ctx, c.cfg.Logger, "before shutdown", func() { hook(ctx) })
	cancel()
	<-done
}

// hooked does something to queues between its hooks.
func (c *Consumer) hooked(
	what string, queues []string, before func(context.Context, []string) error, do func() error, after func(context.Context, []string, error),
) error {
	if before == nil && after == nil {
		return do()
	}
	if _, err := c.consuming(); err != nil {
		return err
	}
	if before != nil {
		if err := ask(what, func() error { return before(c.work, queues) }); err != nil {
			return err
		}
	}
	err := do()
	if after != nil {
		middleware.Guard(c.work, c.cfg.Logger, "after "+what, func() { after(c.work, queues, err) })
	}
	return err
}

// askDequeue tells the hooks that a task was taken from the broker, and notes their veto.
func (r *run) askDequeue() {
	if ask := r.queue.c.dequeued; ask != nil {
		r.veto = ask(task.WithRequest(r.queue.c.work, &r.request), &r.request)
	}
}

// beforeEnqueue asks the hooks about a task that this consumer is about to send. Call after with
// what came of it.
func (c *Consumer) beforeEnqueue(ctx context.Context, queue string, e *task.Envelope) (after func(error), veto error) {
	if c.enqueued == nil {
		return func(error) {}, nil
	}
	return c.enqueued(ctx, queue, e)
}
