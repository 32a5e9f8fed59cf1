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

// waiting is a task's message that waits in a queue.
type waiting struct {
	queue string
	out   broker.Outgoing
}

// find looks for the messages of ids. What it does not find is left to the consumers.
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
				r.log(ctx, slog.LevelWarn, "a revoked task could not be looked for; consumers will skip it", id, err)
				return found
			}
		}
	}
	return found
}

// remove takes the messages that were found out of their queues.
func (r *Revoker) remove(ctx context.Context, ids []task.ID, found map[task.ID]waiting) ([]Outcome, error) {
	outcomes := make([]Outcome, len(ids))
	var errs []error
	for i, id := range ids {
		outcomes[i] = Noted
		w, ok := found[id]
		if !ok {
			continue
		}
		delete(found, id) // an id may be given twice
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

// aside is for how long a message that is being removed is kept from the consumers.
const aside = time.Minute

// removeOne puts a message aside, records its end, and removes it. So nothing is lost when this process dies in between: a
// consumer takes the message when its time has come, and settles it. The message is put aside first because a task that a
// consumer has taken may be running, and then its end is not to be recorded here.
func (r *Revoker) removeOne(ctx context.Context, w waiting) (bool, error) {
	m := w.out.Message
	e, _, err := r.codec.Decode(m)
	if err != nil || string(e.ID) != m.ID {
		return false, nil //nolint:nilerr // whoever takes the message says what is wrong with it
	}
	store, ok := r.storeOf(e)
	// What is sealed does not show what follows it.
	if !ok || r.codec.Open(w.queue, e) != nil || wire.Followed(e) || e.Group != "" {
		return false, r.makeDue(ctx, w)
	}
	if store != nil {
		if ours, err := r.putAside(ctx, w); !ours || err != nil {
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
		_ = r.cfg.Tasks.Publish(ctx, events.Event{ // a closed bus is its owner's wish
			Type: events.TaskRevoked, TaskID: e.ID, NodeID: r.cfg.NodeID, Time: time.Now(),
			Fields: map[string]any{"terminated": false, "expired": false},
		})
	}
	return true, nil
}

// putAside keeps a message from the consumers for a while, and reports whether no consumer has it.
func (r *Revoker) putAside(ctx context.Context, w waiting) (bool, error) {
	at := time.Now().Add(aside)
	if w.out.At.After(at) {
		return true, nil
	}
	w.out.At, w.out.Queue = at, w.queue
	err := r.finder.Update(ctx, w.queue, w.out)
	if errors.Is(err, broker.ErrNotFound) || errors.Is(err, broker.ErrUnsupported) { // its consumer will see to it
		return false, nil
	}
	return err == nil, err
}

// soon is when a message is due that is to be settled: when the consumers will have heard of the revocation. One that has
// not would send it back until its time.
const soon = time.Second

// makeDue has a delayed message handed out soon, so that a consumer settles it.
func (r *Revoker) makeDue(ctx context.Context, w waiting) error {
	at := time.Now().Add(soon)
	if !w.out.At.After(at) {
		return nil
	}
	m := *w.out.Message
	m.Headers = maps.Clone(m.Headers)
	delete(m.Headers, wire.HeaderHeld) // else it would not be early for a consumer that has not heard
	w.out.At, w.out.Queue, w.out.Message = at, w.queue, &m
	err := r.finder.Update(ctx, w.queue, w.out)
	if errors.Is(err, broker.ErrNotFound) {
		return nil
	}
	return err
}

// storeOf returns where the task's result goes, nil for nowhere; false when that store is not known here.
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

// record writes the end of a task whose message is gone, as the attempt that would have come next.
func (r *Revoker) record(ctx context.Context, store resultstore.ResultStore, e *task.Envelope, m *broker.Message) error {
	rec := resultstore.Record{
		ID: e.ID, Name: e.Name, State: task.StateRevoked, Generation: m.Generation + 1, Deliveries: 1, Retries: e.Retries,
		Error: task.Remote(task.ErrRevoked), FinishedAt: time.Now(), NodeID: r.cfg.NodeID, ReplyTo: e.ReplyTo,
		Correlation: e.Correlation, TTL: e.Meta.ResultTTL.Or(0),
	}
	for {
		err := store.Save(ctx, rec)
		switch {
		case err == nil, errors.Is(err, resultstore.ErrStale), errors.Is(err, resultstore.ErrUnreachable):
			return nil // it has ended otherwise, or nobody waits
		case errors.Is(err, resultstore.ErrMalformed), errors.Is(err, resultstore.ErrClosed):
			return err
		}
		if !wake.Sleep(ctx, 100*time.Millisecond) {
			return fmt.Errorf("its end is not recorded: %w", err)
		}
	}
}

func (r *Revoker) log(ctx context.Context, level slog.Level, msg string, id task.ID, err error) {
	r.cfg.Logger.LogAttrs(ctx, level, msg, slog.String(middleware.LogTaskID, string(id)), slog.Any("error", err))
}
