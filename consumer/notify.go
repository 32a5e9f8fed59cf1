package consumer

import (
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/task"
)

// publish sends an event; it never blocks and never fails a task.
func (c *Consumer) publish(e events.Event) { c.report.Publish(&e) }

func (r *run) notifyReceived() {
	c := r.queue.c
	if c.cfg.Events == nil {
		return
	}
	c.publish(events.Event{
		Type: events.TaskReceived, TaskID: r.request.ID, Time: r.request.Received, Name: r.request.Name, Retries: r.request.Retries, Queue: r.queue.name,
		Args: c.codec.Preview(r.request.ContentType, r.request.Args, c.cfg.EventPayloads),
	})
}

func (r *run) notifyStarted() {
	if c := r.queue.c; c.cfg.Events != nil {
		c.publish(events.Event{Type: events.TaskStarted, TaskID: r.request.ID, Time: r.request.StartedAt, PID: c.pid})
	}
}

func (r *run) notifySucceeded(v verdict) {
	c := r.queue.c
	runtime, pool := r.times()
	c.cfg.Metrics.Pool.Update(pool.Microseconds())
	if c.cfg.Events == nil {
		return
	}
	c.publish(events.Event{
		Type: events.TaskSucceeded, TaskID: r.request.ID, Runtime: runtime, Pool: pool,
		Result: c.codec.Preview(v.contentType, v.result, c.cfg.EventPayloads),
	})
}

// notifyFailed reports a failed attempt, with the task's budget of retries.
func (r *run) notifyFailed(v verdict, retry bool) {
	c := r.queue.c
	runtime, pool := r.times()
	c.cfg.Metrics.Pool.Update(pool.Microseconds())
	if c.cfg.Events == nil {
		return
	}
	remote := task.Remote(v.err)
	limit := v.limit.Or(r.request.Effective.MaxRetries.Or(task.DefaultMaxRetries))
	c.publish(events.Event{
		Type: events.TaskFailed, TaskID: r.request.ID, Runtime: runtime, Pool: pool,
		Exception: remote.Error(), Stack: remote.Stack, Retry: retry,
		Fields: map[string]any{"attempt": r.request.Retries + 1, "max_retries": limit},
	})
}

func (r *run) notifyRevoked(terminated, expired bool) {
	if c := r.queue.c; c.cfg.Events != nil {
		c.publish(events.Event{
			Type: events.TaskRevoked, TaskID: r.request.ID,
			Fields: map[string]any{"terminated": terminated, "expired": expired},
		})
	}
}

// notifyUnreadable reports a message that is no task.
func (q *queue) notifyUnreadable(m *broker.Message, cause error) {
	if q.c.cfg.Events == nil {
		return
	}
	q.c.publish(events.Event{
		Type: events.TaskFailed, TaskID: task.ID(task.Text(m.ID, 128)), Exception: task.Text(cause.Error(), events.MaxText),
	})
}

// times returns how long the handler ran and how long the task was in the pool, both 0 when it was not started.
func (r *run) times() (runtime, pool time.Duration) {
	if r.request.StartedAt.IsZero() {
		return 0, 0
	}
	return r.ended.Sub(r.request.StartedAt), time.Since(r.request.Received)
}
