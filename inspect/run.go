package inspect

import (
	"context"
	"errors"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/inspect/internal/original"
	"github.com/swarmiji/swarmiji/task"
)

// Why a task has no copy if its message is gone.
const (
	noOriginal = "its message is gone or with a consumer: waiting tasks and dead letters have their arguments, and the history has those of ended tasks if consumers set Report.KeepArguments"
	notEnded   = "it has not ended, and its message is with a consumer or was not found"
)

// RunTask implements [Tasks].
func (l *Local) RunTask(ctx context.Context, r TaskRun) (Change, error) {
	c := Change{Do: DoRunTask, Target: string(r.ID)}
	if l.cfg.Broker == nil {
		return c, missing("messages", needBroker)
	}
	if r.Now {
		return l.runNow(ctx, c, r)
	}
	return l.once(ctx, c, r.Key, string(r.Args), func(ctx context.Context, id task.ID) (Change, error) {
		return l.runTask(ctx, c, r, id)
	})
}

// runTask submits a copy of a task under an id.
func (l *Local) runTask(ctx context.Context, c Change, r TaskRun, id task.ID) (Change, error) {
	s, err := l.look(ctx, TaskKey{ID: r.ID, Queues: r.Queues})
	if err != nil {
		return c, err
	}
	if len(s.found) == 0 {
		return c, errorf(CodeNotFound, "no part knows task %s", r.ID)
	}
	o := s.original
	if why := s.notAgain(); why != "" {
		return c, errorf(CodeConflict, "task %s cannot run again: %s", r.ID, why)
	}
	edited, err := o.Edit(l.codec, r.Args)
	if err != nil {
		code := CodeInvalid
		if errors.Is(err, original.ErrNoForm) {
			code = CodeConflict
		}
		return c, errorf(code, "%v", err)
	}
	return l.change(ctx, c, map[string]any{"queue": s.queue, "edited": edited}, func(c *Change) error {
		e, m, err := o.Copy(l.codec, s.queue, id, l.cfg.NodeID)
		if err != nil {
			return errorf(CodeInvalid, "the copy cannot be encoded: %v", err)
		}
		c.Copy = string(e.ID)
		if err := l.cfg.Broker.Publish(ctx, s.queue, m); err != nil {
			return err
		}
		c.Done = 1
		l.sent(ctx, s.queue, e)
		return nil
	})
}

// runNow makes a task due that waits for its time. The header that tells consumers of that time
// stays, so that they do not delay the task again.
func (l *Local) runNow(ctx context.Context, c Change, r TaskRun) (Change, error) {
	if len(r.Args) > 0 || r.Key != "" {
		return c, errorf(CodeInvalid, "Now runs the task itself, with its own arguments; leave Args and Key empty")
	}
	finder, ok := capability.As[broker.Finder](l.cfg.Broker)
	if !ok {
		return c, errorf(CodeUnsupported, "this broker cannot find and change a waiting message; run a copy")
	}
	s, err := l.look(ctx, TaskKey{ID: r.ID, Queues: r.Queues})
	switch {
	case err != nil:
		return c, err
	case len(s.found) == 0:
		return c, errorf(CodeNotFound, "no part knows task %s", r.ID)
	case s.message == nil || !s.message.At.After(time.Now()):
		return c, errorf(CodeConflict, "task %s does not wait for its time", r.ID)
	}
	return l.change(ctx, c, map[string]any{"queue": s.queue, "now": true}, func(c *Change) error {
		m := *s.message
		m.Queue, m.At = s.queue, time.Now()
		err := finder.Update(ctx, s.queue, m)
		if errors.Is(err, broker.ErrNotFound) {
			return errorf(CodeConflict, "a consumer has task %s", r.ID)
		}
		if err == nil {
			c.Done = 1
		}
		return err
	})
}

// sent publishes the event about a copy. A lost event is not an error, because the task is sent.
func (l *Local) sent(ctx context.Context, queue string, e *task.Envelope) {
	if l.cfg.Events == nil {
		return
	}
	_ = l.cfg.Events.Publish(context.WithoutCancel(ctx), events.Event{
		Type: events.TaskSent, TaskID: e.ID, NodeID: l.cfg.NodeID, Time: time.Now(), Name: e.Name, Queue: queue,
		Args: l.codec.Preview(e.ContentType, e.Args, false),
	})
}

// notAgain says why no copy of the task can be made. "": it can.
func (s *sighting) notAgain() string {
	switch {
	case s.original != nil:
		return s.original.Refused
	case s.history != nil && len(s.history.Original) > 0:
		return notEnded
	}
	return noOriginal
}
