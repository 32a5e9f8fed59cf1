package consumer

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/consumer/internal/steps"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/task"
)

// Hooks are functions that a consumer calls when something happens to it or to a task. Each may be
// nil. If a hook panics, the panic is its error; the panic of a hook without an error result is
// logged.
type Hooks struct {
	// Tasks are the hooks of tasks: before and after dequeue, around perform, on success, retry and
	// failure, and before and after the enqueue of successors and retries of this consumer. They are
	// called outside of Config.Middleware.
	Tasks middleware.HookSet
	// BeforeStart runs at the begin of Run, before Run uses the broker. Run returns its error and does
	// not start. ctx ends when the consumer is asked to stop.
	BeforeStart func(ctx context.Context) error
	// BeforeShutdown runs when a consumer whose BeforeStart has succeeded stops. Fetching has ended,
	// and running tasks continue. ctx ends after ShutdownTimeout or with Kill. The tasks then have a
	// ShutdownTimeout of their own.
	BeforeShutdown func(ctx context.Context)
	// BeforePause runs before [Consumer.Pause] changes anything. queues are the arguments of Pause,
	// none for all queues. Pause returns its error and pauses nothing. ctx ends when a stop cancels
	// running tasks.
	BeforePause func(ctx context.Context, queues []string) error
	// AfterPause runs after Pause with its error.
	AfterPause func(ctx context.Context, queues []string, err error)
	// BeforeResume and AfterResume do the same for [Consumer.Resume].
	BeforeResume func(ctx context.Context, queues []string) error
	AfterResume  func(ctx context.Context, queues []string, err error)
}

// beforeStart calls Hooks.BeforeStart, if it is set, and waits for it. It returns the error or the
// panic of the hook.
func (c *Consumer) beforeStart(ctx context.Context) error {
	if c.cfg.Hooks.BeforeStart == nil {
		return nil
	}
	return steps.Veto("start", func() error { return c.cfg.Hooks.BeforeStart(ctx) })
}

// beforeShutdown calls Hooks.BeforeShutdown, if it is set, and waits for it. Its context ends after
// ShutdownTimeout or with Kill. A panic of the hook is logged.
func (c *Consumer) beforeShutdown() {
	hook := c.cfg.Hooks.BeforeShutdown
	if hook == nil {
		return
	}
	ctx, release := steps.Until(c.settle, max(c.cfg.ShutdownTimeout, time.Nanosecond), c.killed)
	defer release()
	middleware.Guard(ctx, c.cfg.Logger, "before shutdown", func() { hook(ctx) })
}

// withHooks calls before, do and after in order; before and after may be nil. Without hooks it only
// calls do. what names the action in errors.
//
// Returns [ErrNotRunning] if there are hooks and the consumer does not consume. Returns the error
// or panic of before, which prevents do and after. Otherwise returns the error of do, which after
// receives. A panic of after is logged.
func (c *Consumer) withHooks(
	what string, queues []string, before func(context.Context, []string) error, do func() error, after func(context.Context, []string, error),
) error {
	if before == nil && after == nil {
		return do()
	}
	if _, err := c.consuming(); err != nil {
		return err
	}
	if before != nil {
		if err := steps.Veto(what, func() error { return before(c.work, queues) }); err != nil {
			return err
		}
	}
	err := do()
	if after != nil {
		middleware.Guard(c.work, c.cfg.Logger, "after "+what, func() { after(c.work, queues, err) })
	}
	return err
}

// callDequeueHooks calls the hooks of dequeueing for a received task and stores their error in
// r.veto. That error is nil if the task may start. Without hooks it does nothing.
func (r *run) callDequeueHooks() {
	if ask := r.queue.c.dequeued; ask != nil {
		r.veto = ask(task.WithRequest(r.queue.c.work, &r.request), &r.request)
	}
}

// beforeEnqueue calls the enqueue hooks for a task that this consumer is about to send to queue. A
// veto that is not nil is an error of the hooks: do not send the task. Otherwise send it and call
// after with the outcome of the publish. Without hooks the function after does nothing.
func (c *Consumer) beforeEnqueue(ctx context.Context, queue string, e *task.Envelope) (after func(error), veto error) {
	if c.enqueued == nil {
		return func(error) {}, nil
	}
	return c.enqueued(ctx, queue, e)
}
