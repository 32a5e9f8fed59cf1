package consumer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/consumer/internal/workflow"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// workflowConfig returns the configuration of the senders of successors. They call the enqueue
// hooks, and count each confirmed successor and send its event.
func (c *Consumer) workflowConfig() *workflow.Config {
	w := &workflow.Config{
		Counts: new(workflow.Counts),
		Broker: c.cfg.Broker, Codec: c.codec, Gatherer: c.gather, GroupWait: c.cfg.Tuning.GroupWait, Node: c.cfg.Report.NodeID,
		BeforeEnqueue: func(queue string, e *task.Envelope) (func(error), error) {
			return c.enqueued(c.settle, queue, e)
		},
		Sent: func(queue string, e *task.Envelope) {
			c.cfg.Metrics.Sent.Inc(1)
			c.notifySent(queue, e)
		},
	}
	if c.cfg.Events != nil {
		w.Counted = func(e *task.Envelope, g resultstore.Gathered) {
			c.publish(events.GroupCounts(e, g.Done, g.Failed, g.Size))
		}
	}
	return w
}

// publishSuccessors sends the tasks that follow this task, its group or its burst, and blocks until
// they are confirmed or recorded as failed. v is the end of the task. Returns true at once if no
// task follows. Returns false if a step failed for good: runStep has then given the task back or
// settled it.
func (r *run) publishSuccessors(v verdict) bool {
	return r.sendSuccessors(r.queue.c.successors, settlement{r}, v) && r.queue.c.bursts.End(settlement{r}, &r.request)
}

// sendSuccessors is publishSuccessors with the senders c. steps saves the records of its steps.
func (r *run) sendSuccessors(c *workflow.Config, steps workflow.Run, v verdict) bool {
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
	return workflow.Send(c, steps, &t)
}

// settlement adapts a run whose task has ended to [workflow.Run].
type settlement struct{ *run }

// Step runs do, a step of the settlement that what names in the log, and repeats it after errors
// for at most StoreRetry; for a task acknowledged before its start longer, see runStep. Each call
// has its own time limit. It blocks, and returns true after a success. After false the caller must
// do nothing more: the task was given back, failed, or settled by another attempt.
func (s settlement) Step(what string, do func(context.Context) error) bool {
	ctx, cancel := context.WithTimeout(s.queue.c.settle, s.queue.c.cfg.Tuning.StoreRetry)
	defer cancel()
	return s.runStep(ctx, what, do)
}

// NoGatherer logs once that groups need a gatherer.
func (s settlement) NoGatherer() {
	s.queue.c.warnOnce("gatherer", "the tasks that follow a group fail, because no gatherer is configured; set Config.Gatherer or a result store that can gather", s.logAttrs()...)
}

// Log logs msg with the attributes of the ended task.
func (s settlement) Log(level slog.Level, msg string, attrs ...slog.Attr) {
	s.log(level, msg, attrs...)
}

// Save stores the record of a task that does not run now, such as a skipped step. from is its
// envelope or that of its parent, meta its own metadata. It chooses the store in which the
// submitter waits for the task, else the task's own result store. It repeats a failed save for up
// to StoreRetry.
//
// Returns true also without a store, for an invalid id, and if the store refuses the record for
// good. Returns false if the record could not be stored: runStep has then given the ended task back
// or failed it.
func (s settlement) Save(id task.ID, name string, from *task.Envelope, meta *task.Metadata, rec resultstore.Record) bool {
	store, rec, err := s.successorRecord(id, name, from, meta, rec)
	return store == nil || s.Step("record of a successor", func(ctx context.Context) error {
		if err != nil {
			return err
		}
		return workflow.Accepted(store.Save(ctx, rec))
	})
}

// successorRecord returns the complete record for Save, with its store. Returns no store if there
// is nothing to save, and [workflow.ErrUnsendable] if the record cannot be encoded.
func (r *run) successorRecord(
	id task.ID, name string, from *task.Envelope, meta *task.Metadata, rec resultstore.Record,
) (resultstore.ResultStore, resultstore.Record, error) {
	merged := r.queue.meta
	if from.Base != nil {
		merged = task.Merge(*from.Base, merged)
	}
	merged.Overlay(meta)
	store := r.queue.c.stores.Of(&merged, from.ReplyTo)
	// the task never reached the consumer whose metadata decide
	if awaited := r.queue.c.stores.OfSubmitter(from.Base, meta, from.ReplyTo, store); awaited != nil {
		store = awaited
	}
	if store == nil || id.Check() != nil || !rec.State.Terminal() && resultstore.RepliesOnly(store) {
		return nil, rec, nil
	}
	rec.ID, rec.Name, rec.Life = id, utf.Cut(name, 255), from.Life
	rec.NodeID, rec.ReplyTo, rec.Correlation, rec.TTL = r.request.NodeID, from.ReplyTo, from.Correlation, merged.ResultTTL.Or(0)
	err := r.queue.c.codec.ProtectRecord(&rec, merged.Compression)
	if err != nil {
		err = errors.Join(workflow.ErrUnsendable, err)
	}
	return store, rec, err
}
