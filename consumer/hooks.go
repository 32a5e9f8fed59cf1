package consumer

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/consumer/internal/steps"
	"github.com/swarmiji/swarmiji/middleware"
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

// withHooks calls do between the hooks before and after, see [steps.Around]. It returns
// [ErrNotRunning] if there are hooks and the consumer does not consume.
func (c *Consumer) withHooks(
	what string, queues []string, before func(context.Context, []string) error, do func() error, after func(context.Context, []string, error),
) error {
	if before == nil && after == nil {
		return do()
	}
	if _, err := c.consuming(); err != nil {
		return err
	}
	guarded := func(hook string, fn func()) { middleware.Guard(c.work, c.cfg.Logger, hook, fn) }
	return steps.Around(c.work, guarded, what, queues, before, do, after)
}
