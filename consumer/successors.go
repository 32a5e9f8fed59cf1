package consumer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/consumer/internal/workflow"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// workflowConfig is what senders of successors need of the consumer.
func (c *Consumer) workflowConfig() *workflow.Config {
	return &workflow.Config{
		Broker: c.cfg.Broker, Codec: c.codec, Gatherer: c.gather, GroupWait: c.cfg.Tuning.GroupWait, Node: c.cfg.Report.NodeID,
		BeforeEnqueue: func(queue string, e *task.Envelope) (func(error), error) {
			return c.beforeEnqueue(c.settle, queue, e)
		},
		Sent: func(queue string, e *task.Envelope) {
			c.cfg.Metrics.Sent.Inc(1)
			c.notifySent(queue, e)
		},
	}
}

// publishSuccessors submits the tasks that follow this one, or its group, and reports whether to go
// on.
func (r *run) publishSuccessors(v verdict) bool {
	if !wire.Followed(r.request.Envelope) {
		return true
	}
	e := *r.request.Envelope
	e.Headers = r.request.SuccessorHeaders()
	t := workflow.Ended{
		Queue: r.queue.name, Envelope: &e, At: r.ended, Value: wire.Value{ContentType: v.contentType, Data: v.result},
		Compression: r.request.Effective.Compression, TTL: r.gatherTTL(),
	}
	if t.At.IsZero() {
		t.At = time.Now()
	}
	if v.kind != succeeded {
		t.Cause, t.State = task.Remote(v.err), v.kind.state()
	}
	return workflow.Send(r.queue.c.successors, settlement{r}, &t)
}

// settlement is a run whose task has ended, as a sender of successors sees it.
type settlement struct{ *run }

// Step is persist with a time of its own. There may be very many successors, and a group's results be
// very many: however long all of it takes, it is not begun anew as long as it comes forward.
func (s settlement) Step(what string, do func(context.Context) error) bool {
	ctx, cancel := context.WithTimeout(s.queue.c.settle, s.queue.c.cfg.Tuning.StoreRetry)
	defer cancel()
	return s.persist(ctx, what, do)
}

// NoGatherer implements [workflow.Run].
func (s settlement) NoGatherer() {
	s.queue.c.warnOnce("gatherer", "what follows a group fails, because nothing is configured that can gather", s.logAttrs()...)
}

// Log implements [workflow.Run].
func (s settlement) Log(level slog.Level, msg string, attrs ...slog.Attr) {
	s.log(level, msg, attrs...)
}

// Save stores the record of a task that does not run now. from is its envelope or its parent's.
func (s settlement) Save(id task.ID, name string, from *task.Envelope, meta *task.Metadata, rec resultstore.Record) bool {
	merged := s.queue.meta
	if from.Base != nil {
		merged = task.Merge(*from.Base, merged)
	}
	merged.Overlay(meta)
	store := s.queue.c.storeOf(&merged, from.ReplyTo)
	if awaited := s.queue.c.awaitedIn(from.Base, meta, from.ReplyTo, store); awaited != nil { // it never came to the consumer whose metadata decide
		store = awaited
	}
	if store == nil || id.Check() != nil || !rec.State.Terminal() && resultstore.RepliesOnly(store) {
		return true
	}
	rec.ID, rec.Name, rec.Life = id, utf.Cut(name, 255), from.Life
	rec.NodeID, rec.ReplyTo, rec.Correlation, rec.TTL = s.request.NodeID, from.ReplyTo, from.Correlation, merged.ResultTTL.Or(0)
	unfit := s.queue.c.codec.ProtectRecord(&rec, merged.Compression)
	return s.Step("record of a successor", func(ctx context.Context) error {
		if unfit != nil {
			return errors.Join(workflow.ErrUnsendable, unfit)
		}
		return saveLate(ctx, store, rec)
	})
}
