package consumer

import (
	"context"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/task"
)

// A task is checked for a revocation when it is received, and again immediately before its start.
// It is added to the running tasks before that second check. A later revocation therefore finds it
// among the running tasks and ends its context, if the revocation asks for that.
//
// The result of the handler is settled as usual, with two exceptions: a failure after the context
// was ended, and an outcome that asks for another attempt, count as revoked.

// awaitRevocations watches Config.Revocations and blocks until the list is loaded. From now on each
// revocation ends the contexts of the running tasks that it selects, if it asks for that, and wakes
// the deferred ones.
//
// unwatch ends the watch; call it after an error as well. err is nil when the list is loaded, the
// error of ctx if that ended first, or the error of the list. Without a list awaitRevocations only
// logs a warning and returns.
func (c *Consumer) awaitRevocations(ctx context.Context) (unwatch func(), err error) {
	list := c.cfg.Revocations
	if list == nil {
		c.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "this consumer runs revoked tasks, because Config.Revocations is not set; set it, to revoke.NewLocal if no revocations are expected",
			slog.String(middleware.LogNode, c.cfg.Report.NodeID))
		return func() {}, nil
	}
	unwatch = list.Watch(func(v revoke.Revocation) {
		c.terminate(v)
		c.answers.AddRevocation(v)
	})
	return unwatch, list.Ready(ctx)
}

// revokeCheckDelay is the time after which a task is delivered again if the list of revocations
// cannot be read.
const revokeCheckDelay = 5 * time.Second

// settleIfRevoked reports whether the task must not start because it is or may be revoked. It
// returns false if the task is not revoked, and without Config.Revocations. If it returns true,
// another goroutine continues with the task:
//
//   - The task is revoked: settle settles it as revoked.
//   - The list of revocations cannot be read now: replace publishes a copy of the message for the
//     time after revokeCheckDelay. A start could not be undone. That is logged.
//   - The list cannot be read because fetching has stopped: giveBackUnstarted gives the task back.
//
// It may block while the list asks its bus, see [revoke.List.Check], until fetching stops.
func (r *run) settleIfRevoked() bool {
	q := r.queue
	list := q.c.cfg.Revocations
	if list == nil {
		return false
	}
	is, err := list.Check(q.fetch, q.name, r.request.Envelope)
	switch {
	case is:
		q.settleAsync(r, verdict{kind: revoked, err: task.ErrRevoked})
	case err == nil:
		return false
	case q.fetch.Err() != nil:
		r.giveBackUnstarted()
	default:
		r.log(slog.LevelWarn, "the revocations cannot be read; the task is put back", slog.Any("error", err))
		q.settling.Go(func() {
			r.replace(q.source, r.next(), time.Now().Add(revokeCheckDelay), "copy of a task that may be revoked")
		})
	}
	return true
}

// settleIfKnownRevoked reports whether a task that is about to start is revoked. If so, another
// goroutine settles the task. It uses only the revocations that this process knows, since a task
// that was acknowledged cannot be put back. It does not block.
func (r *run) settleIfKnownRevoked() bool {
	q := r.queue
	if list := q.c.cfg.Revocations; list == nil || !list.Knows(q.name, r.request.Envelope) {
		return false
	}
	q.settleAsync(r, verdict{kind: revoked, err: task.ErrRevoked})
	return true
}

// cancellation ends the context of a run. With a nil cancel function it marks a run that was
// terminated before it had a context.
type cancellation struct{ cancel context.CancelCauseFunc }

// revocableContext returns a context that ends with ctx, or with the cause [task.ErrRevoked] when a
// revocation terminates the run. It has ended already if that was before the call. Without a list
// of revocations it returns ctx. Call releaseContext after the handler.
func (r *run) revocableContext(ctx context.Context) context.Context {
	if r.queue.c.cfg.Revocations == nil {
		return ctx
	}
	ctx, end := context.WithCancelCause(ctx)
	if !r.cancellation.CompareAndSwap(nil, &cancellation{end}) {
		end(task.ErrRevoked)
	}
	return ctx
}

// releaseContext releases the context of revocableContext after the end of the handler. Without
// such a context it does nothing.
func (r *run) releaseContext() {
	if c := r.cancellation.Load(); c != nil && c.cancel != nil {
		c.cancel(nil)
	}
}

// terminate marks the running tasks that v selects as terminated, and ends their contexts with the
// cause [task.ErrRevoked]. A run without a context yet gets one that has ended. It does not wait
// for the handlers. It does nothing unless v asks to terminate running tasks.
func (c *Consumer) terminate(v revoke.Revocation) {
	if !v.Terminate {
		return
	}
	for _, r := range c.running.All() {
		if !v.Match(r.queue.name, r.request.Envelope) {
			continue
		}
		r.terminated.Store(true)
		if r.cancellation.CompareAndSwap(nil, &cancellation{}) {
			continue
		}
		if end := r.cancellation.Load().cancel; end != nil {
			end(task.ErrRevoked)
		}
	}
}

// applyRevocation returns v, or the verdict "revoked" for a task that was revoked while it ran. err
// is the error of the handler. A task counts as revoked if err is not nil and one of these holds:
//
//   - The revocation has ended the context of the handler.
//   - v asks for another attempt or defers the task, and the revocation is known to this process.
func (r *run) applyRevocation(v verdict, err error) verdict {
	list := r.queue.c.cfg.Revocations
	if list == nil || err == nil {
		return v
	}
	if r.terminated.Load() {
		return verdict{kind: revoked, err: task.ErrRevoked, terminated: true}
	}
	if (v.kind == retry || v.kind == snooze || v.kind == deferred) && list.Knows(r.queue.name, r.request.Envelope) {
		return verdict{kind: revoked, err: task.ErrRevoked}
	}
	return v
}
