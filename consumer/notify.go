package consumer

import (
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/task"
)

// publish queues an event for sending. It never blocks. An event that is not passed to the bus is
// dropped and counted in Metrics.Dropped. Without Config.Events it does nothing.
func (c *Consumer) publish(e *events.Event) { c.report.Publish(e) }

// notifyReceived sends the event that this consumer has received the task, with its arguments where
// events may show them. Without Config.Events it does nothing.
func (r *run) notifyReceived() {
	c := r.queue.c
	if c.cfg.Events == nil {
		return
	}
	info := c.cfg.Report.Info(r.request.Envelope)
	info.Generation, info.Due = r.request.Generation, time.Time{}
	if most := c.cfg.Report.KeepArguments; most > 0 && info.Generation == 0 && !r.bare && c.cfg.Wire.Sealer == nil && !c.hasSecrets(r.request.Name, false) {
		info.Original, info.OriginalType = wire.KeepOriginal(r.request.Envelope, most)
	}
	c.publish(&events.Event{
		Type: events.TaskReceived, TaskID: r.request.ID, Time: r.request.Received, Name: r.request.Name, Retries: r.request.Retries, Queue: r.queue.name,
		Args:   c.preview(events.Payload{Task: r.request.Name, ContentType: r.request.ContentType, Data: r.request.Args}),
		Fields: info.Fields(nil),
	})
}

// info returns the life, the generation and the number of this attempt, for an event.
func (r *run) info() events.TaskInfo {
	return events.TaskInfo{Life: r.request.Life, Generation: r.request.Generation, Attempt: r.request.Retries + 1}
}

// notifySent sends the event of a task that this consumer has published to queue: a retry or a
// successor. Without Config.Events it does nothing.
func (c *Consumer) notifySent(queue string, e *task.Envelope) {
	if c.cfg.Events == nil {
		return
	}
	exchange, key := broker.Locate(c.cfg.Broker, queue)
	c.publish(&events.Event{
		Type: events.TaskSent, TaskID: e.ID, Name: e.Name, Retries: e.Retries, Queue: queue, Exchange: exchange, RoutingKey: key,
		Args:   c.preview(events.Payload{Task: e.Name, ContentType: e.ContentType, Data: e.Args}),
		Fields: c.cfg.Report.Info(e).Fields(nil),
	})
}

// secrets reports which of a task's types have fields that are tagged as secret.
type secrets struct{ args, result bool }

// preview returns the text of p for an event: that of Report.Preview if it is set, otherwise one
// that shows payloads without secrets if Report.Payloads is set. It is "" without Config.Events.
func (c *Consumer) preview(p events.Payload) string {
	return c.report.Preview(p, c.cfg.Report.Payloads && c.hasSecrets(p.Task, p.Result))
}

// hasSecrets reports whether events must not show the arguments, or the result, of a task: their
// type has secret fields, or the task has no handler here, so that its type is unknown.
func (c *Consumer) hasSecrets(name string, result bool) bool {
	v, _ := c.secrets.Load(name)
	s, _ := v.(secrets)
	_, _, known := c.mux.Lookup(name)
	return !known || s.args && !result || s.result && result
}

// notifyStarted sends the event of a started handler. Without Config.Events it does nothing.
func (r *run) notifyStarted() {
	if c := r.queue.c; c.cfg.Events != nil {
		c.publish(&events.Event{Type: events.TaskStarted, TaskID: r.request.ID, Time: r.request.StartedAt, PID: c.pid, Fields: r.info().Fields(nil)})
	}
}

// notifySucceeded updates the metric of the time in this consumer (Pool) and sends the event of a
// succeeded task, with its times and result. Without Config.Events it sends no event. It does not
// count the success.
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
		Fields: r.info().Fields(nil),
	})
}

// notifyFailed updates the metric of the time in this consumer (Pool). It sends the event of a
// failed attempt, with the error, the number of the attempt and the retries that the task is
// allowed. retry reports whether the task is retried. Without Config.Events it sends no event. It
// does not count the failure.
func (r *run) notifyFailed(v verdict, retry bool) {
	c := r.queue.c
	now := time.Now()
	runtime, pool := r.times(now)
	c.cfg.Metrics.Pool.Update(pool.Microseconds())
	if c.cfg.Events == nil {
		return
	}
	info := r.info()
	info.DeadLetter = !retry && r.deadLetters(v)
	exception, stack := c.shown(v.err)
	if !c.hidesErrors() {
		info.Class = task.Remote(v.err).Type
	}
	limit := v.limit.Or(r.request.Effective.MaxRetries.Or(task.DefaultMaxRetries))
	c.publish(&events.Event{
		Type: events.TaskFailed, TaskID: r.request.ID, Time: now, Runtime: runtime, Pool: pool,
		Exception: exception, Stack: stack, Retry: retry,
		Fields: info.Fields(map[string]any{"attempt": r.request.Retries + 1, "max_retries": limit}),
	})
}

// shown returns the text and the stack of err for an event. If results are sealed and events may
// not show payloads, the text says only that the reason is sealed, and the stack is empty.
func (c *Consumer) shown(err error) (text, stack string) {
	if c.hidesErrors() {
		return "swarmiji: the reason is sealed", ""
	}
	remote := task.Remote(err)
	return remote.Error(), remote.Stack
}

// hidesErrors reports whether events must not show errors: results are sealed, payloads not shown.
func (c *Consumer) hidesErrors() bool { return c.cfg.Wire.Sealer != nil && !c.cfg.Report.Payloads }

// notifyRevoked sends the event of a task that ended because it was revoked or, if expired is true,
// has expired. terminated says that its handler was running. Without Config.Events it does nothing.
func (r *run) notifyRevoked(terminated, expired bool) {
	if c := r.queue.c; c.cfg.Events != nil {
		c.publish(&events.Event{
			Type: events.TaskRevoked, TaskID: r.request.ID,
			Fields: r.info().Fields(map[string]any{"terminated": terminated, "expired": expired}),
		})
	}
}

// notifyAwaiting sends the event of a task that waits for its answer from outside. Without
// Config.Events it does nothing.
func (r *run) notifyAwaiting() {
	if c := r.queue.c; c.cfg.Events != nil {
		c.publish(&events.Event{Type: events.TaskAwaiting, TaskID: r.request.ID, Fields: r.info().Fields(nil)})
	}
}

// notifyUnreadable sends the event of a failed task for a message that could not be decoded. The
// event has the id of the message, and cause as its error. Without Config.Events it does nothing.
func (q *queue) notifyUnreadable(m *broker.Message, cause error) {
	if q.c.cfg.Events == nil {
		return
	}
	q.c.publish(&events.Event{
		Type: events.TaskFailed, TaskID: task.ID(utf.Cut(m.ID, 128)), Exception: utf.Cut(cause.Error(), events.MaxText),
		Fields: events.TaskInfo{DeadLetter: true}.Fields(nil),
	})
}

// times returns how long the handler ran, and how long the consumer has held the task until now.
// Both are 0 if the handler was not started. For a deferred task both are the time of its handler.
func (r *run) times(now time.Time) (runtime, pool time.Duration) {
	switch {
	// the wait for the answer counts neither for the handler nor for the consumer
	case r.answer != nil:
		return r.answer.Runtime, r.answer.Runtime
	case r.request.StartedAt.IsZero():
		return 0, 0
	}
	return r.ended.Sub(r.request.StartedAt), now.Sub(r.request.Received)
}
