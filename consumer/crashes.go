package consumer

import (
	"context"
	"crypto/rand"
	"log/slog"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/consumer/internal/crashes"
	"github.com/swarmiji/swarmiji/internal/utf"
)

// newCrashWatch returns the watch that notes the starts of tasks with the broker, to find tasks
// that end their process. It gives this run of the consumer a new node name for the notes. The
// watch notes nothing if Tuning.MaxCrashes is negative or the broker does not implement
// [broker.Witness]. It counts each crash that it finds. That the broker cannot store a note is
// logged once. fetch ends when the consumer stops fetching. Call newCrashWatch after c.work is set.
func (c *Consumer) newCrashWatch(fetch context.Context) *crashes.Watch {
	cfg := crashes.Config{
		Node: utf.Cut(c.cfg.Report.NodeID, 96) + "-" + rand.Text()[:12], MaxCrashes: c.cfg.Tuning.MaxCrashes, AbsentAfter: c.cfg.Tuning.AbsentAfter,
		Running: c.running.Len, Died: func() { c.cfg.Metrics.Crashes.Inc(1) }, Go: c.settling.Go,
		Unsupported: func(err error) {
			c.warnOnce("witness", "starts cannot be noted; tasks that end their process are not detected", slog.Any("error", err))
		},
	}
	if cfg.MaxCrashes > 0 {
		cfg.Witness, _ = capability.As[broker.Witness](c.cfg.Broker)
	}
	return crashes.New(c.work, fetch, &cfg)
}

// announceLeave tells the broker that this process ends in order, so that its noted starts count no
// crash. It does nothing if no start was noted. It waits for at most KillGrace. Errors are logged.
func (c *Consumer) announceLeave() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.work), c.cfg.Tuning.KillGrace)
	defer cancel()
	if err := c.crashes.Leave(ctx); err != nil {
		c.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "the broker was not told that this consumer stops; a task that it started may count a crash",
			slog.Any("error", err))
	}
}

// crashRun adapts a run to [crashes.Run].
type crashRun struct{ *run }

// State returns the part of the run that belongs to the watch.
func (r crashRun) State() *crashes.State { return &r.crash }

// Message returns the message and the name of the subscribed queue.
func (r crashRun) Message() (queue string, m *broker.Message) { return r.queue.source, r.message }

// WaitContext returns a context that ends when the task must not start any more, see
// [queue.waitContext]: the consumer stops, the queue is paused, or the broker has taken the task
// back.
func (r crashRun) WaitContext() (context.Context, context.CancelFunc) {
	return r.queue.waitContext(r.run)
}

// SetRunning adds the task to the running tasks of the consumer (true), or removes it without
// counting the end of a handler (false).
func (r crashRun) SetRunning(running bool) {
	if running {
		r.queue.c.running.Add(r.run, int(r.worker))
	} else {
		r.queue.c.running.Remove(r.run, int(r.worker))
	}
}

// Reserve adds the task to the reserved tasks (true) or removes it (false), see
// [Consumer.Reserved]. It is part of [crashes.Run] and of [rates.Run].
func (r *run) Reserve(waits bool) {
	if waits {
		r.queue.c.reserved.Add(r)
	} else {
		r.queue.c.reserved.Remove(r)
	}
}

// Start starts the task on the calling goroutine and returns after its handler. It waits for a free
// slot first, see [queue.start].
func (r crashRun) Start() { r.queue.start(r.run) }

// GiveBack returns a task that has not started to its queue, on another goroutine, and frees its
// early slot. It is part of [crashes.Run] and of [rates.Run].
func (r *run) GiveBack() { r.giveBackUnstarted() }

// DeadLetter fails the task with err and dead-letters its message, on another goroutine.
func (r crashRun) DeadLetter(err error) {
	r.queue.settleAsync(r.run, verdict{kind: failed, err: err, deadLetter: true})
}

// Log logs msg with the attributes of the task.
func (r crashRun) Log(level slog.Level, msg string, attrs ...slog.Attr) { r.log(level, msg, attrs...) }
