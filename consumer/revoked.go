package consumer

import (
	"context"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/task"
)

// Whether a task is revoked is looked at when it is received, which covers what was fetched ahead, delayed or retried, and
// immediately before its start. A revocation that comes after that look finds the task among the running ones, since it is
// counted in before the look; it ends the task's context if it asks for that. What a handler returns is settled as ever, but
// for a failure after its context was ended, and for another attempt, which would only be skipped.

// awaitRevocations waits until what was revoked before is known, and begins to watch for what is revoked from now on.
func (c *Consumer) awaitRevocations(ctx context.Context) (unwatch func(), err error) {
	list := c.cfg.Revocations
	if list == nil {
		c.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "this consumer runs revoked tasks, since Config.Revocations is not set; revoke.NewLocal says that none are expected",
			slog.String(middleware.LogNode, c.cfg.Report.NodeID))
		return func() {}, nil
	}
	unwatch = list.Watch(func(v revoke.Revocation) {
		c.terminate(v)
		c.answers.note(v)
	})
	return unwatch, list.Ready(ctx)
}

// revokedAgain is after how long a task comes back of which could not be told whether it is revoked.
const revokedAgain = 5 * time.Second

// revoked deals with a task that is revoked, or of which that cannot be told now, and reports whether it did. Such a task
// is put back: it can start later, and one that was revoked and ran cannot be undone.
func (r *run) revoked() bool {
	q := r.queue
	list := q.c.cfg.Revocations
	if list == nil {
		return false
	}
	is, err := list.Check(q.fetch, q.name, r.request.Envelope)
	switch {
	case is:
		q.settleAside(r, verdict{kind: revoked, err: task.ErrRevoked})
	case err == nil:
		return false
	case q.fetch.Err() != nil:
		r.unstarted()
	default:
		r.log(slog.LevelWarn, "task put back", slog.Any("error", err))
		q.c.settling.Go(func() {
			r.replace(q.source, r.copy(), time.Now().Add(revokedAgain), "copy of a task that may be revoked")
		})
	}
	return true
}

// revokedLate is revoked for a task that was acknowledged before its start and cannot be put back.
func (r *run) revokedLate() bool {
	q := r.queue
	if list := q.c.cfg.Revocations; list == nil || !list.Knows(q.name, r.request.Envelope) {
		return false
	}
	q.settleAside(r, verdict{kind: revoked, err: task.ErrRevoked})
	return true
}

// cut ends a run's context. One without end stands for a run that was terminated before it had a context.
type cut struct{ end context.CancelCauseFunc }

// cuttable returns the context of a run that a revocation may end.
func (r *run) cuttable(ctx context.Context) context.Context {
	if r.queue.c.cfg.Revocations == nil {
		return ctx
	}
	ctx, end := context.WithCancelCause(ctx)
	if !r.cut.CompareAndSwap(nil, &cut{end}) {
		end(task.ErrRevoked)
	}
	return ctx
}

// uncut releases the context of a run that is over.
func (r *run) uncut() {
	if c := r.cut.Load(); c != nil && c.end != nil {
		c.end(nil)
	}
}

// terminate ends the contexts of the runs that v revokes.
func (c *Consumer) terminate(v revoke.Revocation) {
	if !v.Terminate {
		return
	}
	for _, r := range c.running.All() {
		if !v.Match(r.queue.name, r.request.Envelope) {
			continue
		}
		r.terminated.Store(true)
		if r.cut.CompareAndSwap(nil, &cut{}) {
			continue
		}
		if end := r.cut.Load().end; end != nil {
			end(task.ErrRevoked)
		}
	}
}

// unlessRevoked is what becomes of a run that was revoked while it went on.
func (r *run) unlessRevoked(v verdict, err error) verdict {
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
