package producer

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/reach"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// resolved is the handle of a task whose outcome is known at once: an ignored result, or a missing
// store.
type resolved struct {
	id  task.ID
	err error
}

// ID returns the id of the task.
func (s *resolved) ID() task.ID { return s.id }

// Done returns a closed channel.
func (s *resolved) Done() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

// Result returns the known error at once, nil for an ignored result. It does not change its second
// argument.
func (s *resolved) Result(context.Context, any) error { return s.err }

// State returns the known error, or [task.StateSucceeded] without one.
func (s *resolved) State(context.Context) (task.State, error) {
	if s.err != nil {
		return "", s.err
	}
	return task.StateSucceeded, nil
}

// observed is the handle of a task that another producer submitted. It starts to wait at the first
// call of Done or Result.
type observed struct {
	id    task.ID
	inbox *inbox
	codec *wire.Codec

	once   sync.Once
	waiter *waiter
	err    error
}

// wait returns the waiter of the task. The first call registers it at the inbox, which starts to
// ask the store for the task. Later calls return the same. Returns [ErrClosed] if the producer was
// closed.
func (o *observed) wait() (*waiter, error) {
	o.once.Do(func() { o.waiter, o.err = o.inbox.watch(o.id, o.codec, elsewhere) })
	return o.waiter, o.err
}

// ID returns the id of the task.
func (o *observed) ID() task.ID { return o.id }

// Done returns a channel that is closed when the task has ended or the producer is closed. If the
// producer was closed before the first call, the channel is closed already.
func (o *observed) Done() <-chan struct{} {
	w, err := o.wait()
	if err != nil {
		return (&resolved{}).Done()
	}
	return w.done
}

// Result asks the store once and then waits for the end of the task, see [waiter.Result]. An error
// of that first read is ignored: the store is asked again. Returns [ErrClosed] if the producer was
// closed before the first call.
func (o *observed) Result(ctx context.Context, v any) error {
	w, err := o.wait()
	if err != nil {
		return err
	}
	// The task may have ended long ago. If the store fails now, it is asked again.
	_, _ = o.inbox.loadState(ctx, o.id)
	return w.Result(ctx, v)
}

// State asks the store for the state of the task, see loadState. It registers no waiter.
func (o *observed) State(ctx context.Context) (task.State, error) {
	return o.inbox.loadState(ctx, o.id)
}

// waiter is the handle of a task that has not ended yet.
type waiter struct {
	id    task.ID
	inbox *inbox
	codec *wire.Codec
	done  chan struct{}

	mu     sync.Mutex
	record resultstore.Record // set once, before done is closed
	err    error              // set instead of record: the producer was closed, or the record was lost
	open   task.State         // state of the last record that was not final; "": none was received
	why    string             // error of that record

	// Guarded by inbox.mu.
	refs      int // number of handles that share the waiter
	polls     int // number of reads of the store so far
	submitted submission
	handle    *uncommitted // kept for a receiver of done
	groups    []awaitedGroup
}

// ID returns the id of the task.
func (w *waiter) ID() task.ID { return w.id }

// Done returns a channel that is closed when the outcome is known: the task has ended, its result
// is lost, or the producer is closed.
func (w *waiter) Done() <-chan struct{} { return w.done }

// resolve sets the outcome, a final record or err, and closes w.done, which wakes Result. Only the
// first call has an effect; it returns true. Later ones return false. It takes w.mu.
func (w *waiter) resolve(r resultstore.Record, err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.done:
		return false
	default:
	}
	w.record, w.err = r, err
	close(w.done)
	return true
}

// Result blocks until the outcome is known or ctx ends. It decodes the result of a success into v
// and returns nil; a nil v is allowed. It returns the error of a failure, see outcome. If ctx ends
// first, it returns the error of unfinished. If the result was lost or the producer closed, the
// error wraps [task.ErrNoResult] or [ErrClosed].
func (w *waiter) Result(ctx context.Context, v any) error {
	select {
	case <-w.done:
	default:
		select {
		case <-w.done:
		case <-ctx.Done():
			return w.unfinished(context.Cause(ctx))
		}
	}
	if w.err != nil {
		return fmt.Errorf("swarmiji: result of %s: %w", w.id, w.err)
	}
	return outcome(&w.record, w.codec, v)
}

// outcome returns the result of a terminal record to the submitter: it decodes a success into v and
// returns nil. With a nil v or an empty result it decodes nothing. If v does not fit the result, it
// returns the error of the decoding.
//
// For a failure it returns the recorded [*task.RemoteError], or one made from the state. A success
// whose record has an error, because the result is in another store, returns that error.
func outcome(r *resultstore.Record, codec *wire.Codec, v any) error {
	// with an error, the result is in another store
	if r.State == task.StateSucceeded && r.Error == nil {
		if v == nil || len(r.Result) == 0 {
			return nil
		}
		if err := codec.Unmarshal(r.ContentType, r.Result, v); err != nil {
			return fmt.Errorf("swarmiji: result of %s: %w; ask for the type that its handler returns", r.ID, err)
		}
		return nil
	}
	if r.Error != nil {
		return r.Error
	}
	switch r.State {
	case task.StateRevoked:
		return task.Remote(task.ErrRevoked)
	case task.StateExpired:
		return task.Remote(task.ErrExpired)
	}
	return &task.RemoteError{Type: string(r.State), Message: "swarmiji: task " + string(r.State)}
}

// State returns the final state at once if the outcome is known, or the error of a lost result or
// closed producer. Otherwise it asks the store, see loadState.
func (w *waiter) State(ctx context.Context) (task.State, error) {
	select {
	case <-w.done:
		return w.record.State, w.err
	default:
	}
	return w.inbox.loadState(ctx, w.id)
}

// errReplies is the error for a task of another submitter in a store of reply queues.
var errReplies = fmt.Errorf("%w: results go to reply queues, which keep no records and reach only the submitter", broker.ErrUnsupported)

// errNoRecord returns the error for a task without a record in the store. It wraps
// [task.ErrNotFound] and [resultstore.ErrNotFound].
func errNoRecord() error {
	return reach.Also(fmt.Errorf("%w; check id and namespace", task.ErrNotFound), resultstore.ErrNotFound)
}

// unfinished returns the error of a wait that ended without a result. It wraps cause and describes
// the task:
//
//   - the last state and error that the store or a reply has shown
//   - for a task of SubmitTx, that its transaction may have been rolled back ([task.ErrNotFound])
//   - for another task of this producer, that no consumer has recorded it
//   - for other tasks, that reply queues keep no records ([broker.ErrUnsupported])
//   - else [task.ErrNotFound]
//
// It takes w.mu and the lock of the inbox.
func (w *waiter) unfinished(cause error) error {
	w.mu.Lock()
	open, why := w.open, w.why
	w.mu.Unlock()
	submitted := w.inbox.submitted(w.id)
	switch {
	case open != "":
		return fmt.Errorf("swarmiji: waiting for the result of %s: still %s%s: %w", w.id, open, why, cause)
	case submitted == transactional:
		return fmt.Errorf("swarmiji: waiting for the result of %s: %w: %w", w.id, errUncommitted(), cause)
	case submitted == sent && w.inbox.producer.cfg.Jobs != nil:
		return fmt.Errorf("swarmiji: waiting for the result of %s: no consumer has recorded the task in this result store; if it has conditions, its job may wait (swarmiji job ls --task, swarmiji job why); else check that a consumer serves its queue and has this store: %w", w.id, cause)
	case submitted == sent:
		return fmt.Errorf("swarmiji: waiting for the result of %s: no consumer has recorded the task in this result store; check that a consumer serves its queue and has this store: %w", w.id, cause)
	case resultstore.RepliesOnly(w.inbox.store):
		return fmt.Errorf("swarmiji: waiting for the result of %s: %w: %w", w.id, errReplies, cause)
	}
	return fmt.Errorf("swarmiji: waiting for the result of %s: %w: %w", w.id, errNoRecord(), cause)
}

// setOpen stores the state and the error text of a record that is not final, for the error of a
// wait that ends early. An error that cannot be opened (decrypted) is left out. It takes w.mu.
func (w *waiter) setOpen(r resultstore.Record) {
	why := ""
	if r.Error != nil && w.inbox.producer.codec.OpenRecord(&r) == nil && r.Error != nil {
		why = ": " + r.Error.Error()
	}
	w.mu.Lock()
	w.open, w.why = r.State, why
	w.mu.Unlock()
}

// loadState reads a task's record from the store once and returns its state. If the task has ended,
// it resolves the waiter of the task. If not, it tells the waiter the state.
//
// Without a record the result is that of stateWithoutRecord. Returns [broker.ErrUnsupported] for a
// task of another submitter in a store of reply queues. Also returns errors of the store, and the
// error of a final record that cannot be opened.
func (in *inbox) loadState(ctx context.Context, id task.ID) (task.State, error) {
	if in.replies && in.submitted(id) == elsewhere {
		return "", fmt.Errorf("swarmiji: state of %s: %w", id, errReplies)
	}
	r, err := in.store.Load(ctx, id)
	switch {
	case errors.Is(err, resultstore.ErrNotFound):
		return in.stateWithoutRecord(id)
	case err != nil:
		return "", fmt.Errorf("swarmiji: state of %s: %w", id, err)
	}
	if !r.State.Terminal() {
		in.noteOpen(r)
		return r.State, nil
	}
	in.resolveIfAwaited(r)
	if err := in.producer.codec.OpenRecord(&r); err != nil {
		return "", fmt.Errorf("swarmiji: state of %s: %w", id, err)
	}
	return r.State, nil
}

// loadProgress reads the progress of a task from its record. It is zero for a task that this
// producer has submitted and that has no record yet, or whose results go to reply queues. Otherwise
// it has the errors of loadState.
func (in *inbox) loadProgress(ctx context.Context, id task.ID) (task.ProgressValue, error) {
	if in.replies {
		if in.submitted(id) == elsewhere {
			return task.ProgressValue{}, fmt.Errorf("swarmiji: progress of %s: %w", id, errReplies)
		}
		return task.ProgressValue{}, nil
	}
	r, err := in.store.Load(ctx, id)
	switch {
	case errors.Is(err, resultstore.ErrNotFound):
		_, err = in.stateWithoutRecord(id)
		return task.ProgressValue{}, err
	case err != nil:
		return task.ProgressValue{}, fmt.Errorf("swarmiji: progress of %s: %w", id, err)
	}
	return r.Progress, nil
}

// Progress returns the progress in the stored record, see loadProgress. It implements
// [task.ProgressPending]. It registers no waiter.
func (o *observed) Progress(ctx context.Context) (task.ProgressValue, error) {
	return o.inbox.loadProgress(ctx, o.id)
}

// Progress returns the last progress of an ended task at once, and else that of loadProgress. It
// implements [task.ProgressPending].
func (w *waiter) Progress(ctx context.Context) (task.ProgressValue, error) {
	select {
	case <-w.done:
		return w.record.Progress, w.err
	default:
	}
	return w.inbox.loadProgress(ctx, w.id)
}

// stateWithoutRecord returns the state of a task without a record in the store. For a task that
// this producer has submitted and waits for, that is the last state that a reply queue has sent, or
// [task.StatePending]. For others, and those of SubmitTx, it returns [task.ErrNotFound]. It takes
// in.mu and the lock of the waiter.
func (in *inbox) stateWithoutRecord(id task.ID) (task.State, error) {
	in.mu.Lock()
	w, submitted := in.waiters[id], elsewhere
	if w != nil {
		submitted = w.submitted
	}
	in.mu.Unlock()
	if submitted == elsewhere {
		return "", fmt.Errorf("swarmiji: state of %s: %w", id, errNoRecord())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case in.replies && w.open != "":
		return w.open, nil
	case submitted == transactional:
		return "", fmt.Errorf("swarmiji: state of %s: %w", id, errUncommitted())
	}
	return task.StatePending, nil
}

// submitted returns how this producer has submitted the task whose end it waits for. It takes
// in.mu.
func (in *inbox) submitted(id task.ID) submission {
	in.mu.Lock()
	defer in.mu.Unlock()
	if w, ok := in.waiters[id]; ok {
		return w.submitted
	}
	return elsewhere
}

// noteOpen passes a record that is not final to the waiter of its task, if there is a waiter. It
// takes in.mu.
func (in *inbox) noteOpen(r resultstore.Record) {
	in.mu.Lock()
	w := in.waiters[r.ID]
	in.mu.Unlock()
	if w != nil {
		w.setOpen(r)
	}
}
