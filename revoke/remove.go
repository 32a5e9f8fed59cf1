package revoke

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// waiting is the message of a task, found in a queue.
type waiting struct {
	queue string
	out   broker.Outgoing
}

// find returns the messages of ids that are in the configured queues. The consumers handle the
// others. Without a [broker.Finder] or queues it returns nil. If the broker fails, find logs the
// error and returns the messages found before.
func (r *Revoker) find(ctx context.Context, ids []task.ID) map[task.ID]waiting {
	if r.finder == nil || len(r.cfg.Queues) == 0 {
		return nil
	}
	found := make(map[task.ID]waiting)
	for _, id := range ids {
		for _, queue := range r.cfg.Queues {
			out, err := r.finder.Find(ctx, queue, string(id))
			if err == nil {
				found[id] = waiting{queue, out}
				break
			}
			if !errors.Is(err, broker.ErrNotFound) && !errors.Is(err, broker.ErrNoQueue) {
				r.log(ctx, slog.LevelWarn, "searching for the message of a revoked task failed; consumers will skip the task", id, err)
				return found
			}
		}
	}
	return found
}

// remove removes the found messages from their queues, see removeOne, and from the map found. It
// returns an outcome for each id, in order: Removed if its message was removed, else Noted. An id
// that occurs twice is Noted the second time. The error joins the failed removals; the outcomes are
// valid then, too.
func (r *Revoker) remove(ctx context.Context, ids []task.ID, found map[task.ID]waiting) ([]Outcome, error) {
	outcomes := make([]Outcome, len(ids))
	var errs []error
	for i, id := range ids {
		outcomes[i] = Noted
		w, ok := found[id]
		if !ok {
			continue
		}
		delete(found, id) // an id may occur twice
		removed, err := r.removeOne(ctx, w)
		if removed {
			outcomes[i] = Removed
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("revoke: remove %s: %w", id, err))
		}
	}
	return outcomes, errors.Join(errs...)
}

// postponeFor is the delay of a message during its removal.
const postponeFor = time.Minute

// removeOne removes a message and records the end of its task. It reports whether it removed the
// message. It then sends the event to RevokerConfig.Tasks.
//
// It first postpones the message, because the task of a message that a consumer has may be running.
// Then it records the end and deletes the message. If this process dies in between, a consumer
// receives the message after its delay and settles it.
//
// It returns false and nil if a consumer has the message or the message cannot be read. Only a
// consumer can settle a task with successors, a group, sealed data, or a store that is unknown
// here. For such a task it makes the message due and returns false.
func (r *Revoker) removeOne(ctx context.Context, w waiting) (bool, error) {
	m := w.out.Message
	e, _, err := r.codec.Decode(m)
	if err != nil || string(e.ID) != m.ID {
		return false, nil //nolint:nilerr // whoever takes the message says what is wrong with it
	}
	store, ok := r.storeOf(e)
	// The successors of a sealed task are unknown.
	if !ok || r.codec.Open(w.queue, e) != nil || wire.Followed(e) || e.Group != "" {
		return false, r.makeDue(ctx, w)
	}
	if store != nil {
		if ours, err := r.postpone(ctx, w); !ours || err != nil {
			return false, err
		}
		if err := r.record(ctx, store, e, m); err != nil {
			return false, err
		}
	}
	if err := r.finder.Delete(ctx, w.queue, m.ID); err != nil && (store == nil || !errors.Is(err, broker.ErrNotFound)) {
		if errors.Is(err, broker.ErrNotFound) { // a consumer has it
			err = nil
		}
		return false, err
	}
	if r.cfg.Tasks != nil {
		_ = r.cfg.Tasks.Publish(ctx, events.Event{ // fails only if the owner has closed the bus
			Type: events.TaskRevoked, TaskID: e.ID, NodeID: r.cfg.NodeID, Time: time.Now(),
			Fields: events.TaskInfo{Life: e.Life, Attempt: e.Retries + 1}.Fields(map[string]any{"terminated": false, "expired": false}),
		})
	}
	return true, nil
}

// postpone delays a message by postponeFor, unless it is delayed for longer. It reports whether no
// consumer has the message. It returns false also if the broker cannot change messages. Other
// errors of the broker are returned.
func (r *Revoker) postpone(ctx context.Context, w waiting) (bool, error) {
	at := time.Now().Add(postponeFor)
	if w.out.At.After(at) {
		return true, nil
	}
	w.out.At, w.out.Queue = at, w.queue
	err := r.finder.Update(ctx, w.queue, w.out)
	// the consumer that has it handles it
	if errors.Is(err, broker.ErrNotFound) || errors.Is(err, broker.ErrUnsupported) {
		return false, nil
	}
	return err == nil, err
}

// makeDueIn is the delay of a message that a consumer must settle. By then the consumers know the
// revocation; others would send the message back until its original time.
const makeDueIn = time.Second

// makeDue reduces the delay of a message to makeDueIn, so that a consumer settles it soon. A
// message that is due earlier does not change, nor does one that a consumer has; both return nil.
// Other errors of the broker are returned.
func (r *Revoker) makeDue(ctx context.Context, w waiting) error {
	at := time.Now().Add(makeDueIn)
	if !w.out.At.After(at) {
		return nil
	}
	m := *w.out.Message
	m.Headers = maps.Clone(m.Headers)
	// otherwise a consumer that does not know the revocation would not delay it again
	delete(m.Headers, wire.HeaderHeld)
	w.out.At, w.out.Queue, w.out.Message = at, w.queue, &m
	err := r.finder.Update(ctx, w.queue, w.out)
	if errors.Is(err, broker.ErrNotFound) {
		return nil
	}
	return err
}

// storeOf returns the result store of a task by its metadata, and true; the store is nil if the
// task stores no result. It returns false if that store is not configured here.
func (r *Revoker) storeOf(e *task.Envelope) (resultstore.ResultStore, bool) {
	meta := e.Meta
	if e.Base != nil {
		meta = task.Merge(*e.Base, e.Meta)
	}
	if meta.IgnoreResult.Or(false) {
		return nil, true
	}
	if name := meta.ResultStore.Or(""); name != "" {
		s, ok := r.cfg.Stores[name]
		return s, ok
	}
	return r.cfg.Results, r.cfg.Results != nil
}

// record stores the state revoked for a task, with the generation after that of its message. It
// blocks and retries until the store answers or ctx ends. It returns nil also if the task has ended
// in another way or no receiver waits. It returns the error of a store that is closed or refuses
// the record, and the last error when ctx ends.
func (r *Revoker) record(ctx context.Context, store resultstore.ResultStore, e *task.Envelope, m *broker.Message) error {
	rec := resultstore.Record{
		ID: e.ID, Name: e.Name, State: task.StateRevoked, Generation: m.Generation + 1, Deliveries: 1, Retries: e.Retries,
		Error: task.Remote(task.ErrRevoked), FinishedAt: time.Now(), NodeID: r.cfg.NodeID, ReplyTo: e.ReplyTo,
		Correlation: e.Correlation, TTL: e.Meta.ResultTTL.Or(0),
		DropCheckpoints: true, // the message may wait for its next attempt
	}
	for {
		err := store.Save(ctx, rec)
		switch {
		case err == nil, errors.Is(err, resultstore.ErrStale), errors.Is(err, resultstore.ErrUnreachable):
			return nil // the task ended in another way, or no receiver waits
		case errors.Is(err, resultstore.ErrMalformed), errors.Is(err, resultstore.ErrClosed):
			return err
		}
		if !wake.Sleep(ctx, 100*time.Millisecond) {
			return fmt.Errorf("recording its end: %w", err)
		}
	}
}

// log logs msg with the id of the task and err.
func (r *Revoker) log(ctx context.Context, level slog.Level, msg string, id task.ID, err error) {
	r.cfg.Logger.LogAttrs(ctx, level, msg, slog.String(middleware.LogTaskID, string(id)), slog.Any("error", err))
}
