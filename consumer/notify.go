package consumer

import (
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/task"
)

// publish sends an event; it never blocks and never fails a task.
func (c *Consumer) publish(e *events.Event) { c.report.Publish(e) }

func (r *run) notifyReceived() {
	c := r.queue.c
	if c.cfg.Events == nil {
		return
	}
	c.publish(&events.Event{
		Type: events.TaskReceived, TaskID: r.request.ID, Time: r.request.Received, Name: r.request.Name, Retries: r.request.Retries, Queue: r.queue.name,
		Args: c.preview(events.Payload{Task: r.request.Name, ContentType: r.request.ContentType, Data: r.request.Args}),
	})
}

// notifySent reports a task that this consumer has put on a queue: a retry or a successor.
func (c *Consumer) notifySent(queue string, e *task.Envelope) {
	if c.cfg.Events == nil {
		return
	}
	exchange, key := broker.Locate(c.cfg.Broker, queue)
	c.publish(&events.Event{
		Type: events.TaskSent, TaskID: e.ID, Name: e.Name, Retries: e.Retries, Queue: queue, Exchange: exchange, RoutingKey: key,
		Args: c.preview(events.Payload{Task: e.Name, ContentType: e.ContentType, Data: e.Args}),
	})
}

// secrets says what of a task's types has fields tagged as secret.
type secrets struct{ args, result bool }

// preview returns what of p goes into an event. Of a task without a handler nobody here knows what is secret.
func (c *Consumer) preview(p events.Payload) string {
	secret := false
	if c.cfg.Report.Payloads {
		if _, _, known := c.mux.Lookup(p.Task); !known {
			secret = true
		} else if v, ok := c.secrets.Load(p.Task); ok {
			s := v.(secrets)
			secret = s.args && !p.Result || s.result && p.Result
		}
	}
	return c.report.Preview(p, secret)
}

func (r *run) notifyStarted() {
	if c := r.queue.c; c.cfg.Events != nil {
		c.publish(&events.Event{Type: events.TaskStarted, TaskID: r.request.ID, Time: r.request.StartedAt, PID: c.pid})
	}
}

func (r *run) notifySucceeded(v verdict) {
	c := r.queue.c
	now := time.Now()
	runtime, pool := r.times(now)
	c.cfg.Metrics.Pool.Update(pool.Microseconds())
	if c.cfg.Events == nil {
		return
	}
	c.publish(&events.Event{
		Type: events.TaskSucceeded, TaskID: r.request.ID, Time: now, Runtime: runtime, Pool: pool,
		Result: c.preview(events.Payload{Task: r.request.Name, Result: true, ContentType: v.contentType, Data: v.result}),
	})
}

// notifyFailed reports a failed attempt, with the task's budget of retries.
func (r *run) notifyFailed(v verdict, retry bool) {
	c := r.queue.c
	now := time.Now()
	runtime, pool := r.times(now)
	c.cfg.Metrics.Pool.Update(pool.Microseconds())
	if c.cfg.Events == nil {
		return
	}
	exception, stack := c.shown(v.err)
	limit := v.limit.Or(r.request.Effective.MaxRetries.Or(task.DefaultMaxRetries))
	c.publish(&events.Event{
		Type: events.TaskFailed, TaskID: r.request.ID, Time: now, Runtime: runtime, Pool: pool,
		Exception: exception, Stack: stack, Retry: retry,
		Fields: map[string]any{"attempt": r.request.Retries + 1, "max_retries": limit},
	})
}

// shown returns what of an error goes into an event: where results are sealed, so are the reasons of failures, and events are
// not.
func (c *Consumer) shown(err error) (text, stack string) {
	if c.cfg.Wire.Sealer != nil && !c.cfg.Report.Payloads {
		return "swarmiji: the reason is sealed", ""
	}
	remote := task.Remote(err)
	return remote.Error(), remote.Stack
}

func (r *run) notifyRevoked(terminated, expired bool) {
	if c := r.queue.c; c.cfg.Events != nil {
		c.publish(&events.Event{
			Type: events.TaskRevoked, TaskID: r.request.ID,
			Fields: map[string]any{"terminated": terminated, "expired": expired},
		})
	}
}

// notifyAwaiting reports a run whose answer is to come from outside.
func (r *run) notifyAwaiting() {
	if c := r.queue.c; c.cfg.Events != nil {
		c.publish(&events.Event{Type: events.TaskAwaiting, TaskID: r.request.ID})
	}
}

// notifyUnreadable reports a message that is no task.
func (q *queue) notifyUnreadable(m *broker.Message, cause error) {
	if q.c.cfg.Events == nil {
		return
	}
	q.c.publish(&events.Event{
		Type: events.TaskFailed, TaskID: task.ID(utf.Cut(m.ID, 128)), Exception: utf.Cut(cause.Error(), events.MaxText),
	})
}

// times returns how long the handler ran and how long the task has been in the pool now, both 0 when it was not started.
func (r *run) times(now time.Time) (runtime, pool time.Duration) {
	switch {
	case r.answer != nil: // how long it was awaited is neither the handler's time nor the pool's
		return r.answer.ran, r.answer.ran
	case r.request.StartedAt.IsZero():
		return 0, 0
	}
	return r.ended.Sub(r.request.StartedAt), now.Sub(r.request.Received)
}
