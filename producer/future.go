package producer

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// settled is the handle of a task whose outcome needs no waiting: an ignored result, or no store to ask.
type settled struct {
	id  task.ID
	err error
}

func (s *settled) ID() task.ID { return s.id }

func (s *settled) Done() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

func (s *settled) Result(context.Context, any) error { return s.err }

func (s *settled) State(context.Context) (task.State, error) {
	if s.err != nil {
		return "", s.err
	}
	return task.StateSucceeded, nil
}

// observed is the handle of a task that was submitted elsewhere. It waits only once somebody asks it to.
type observed struct {
	id    task.ID
	inbox *inbox
	codec *wire.Codec

	once   sync.Once
	waiter *waiter
	err    error
}

func (o *observed) wait() (*waiter, error) {
	o.once.Do(func() { o.waiter, o.err = o.inbox.watch(o.id, o.codec) })
	return o.waiter, o.err
}

func (o *observed) ID() task.ID { return o.id }

func (o *observed) Done() <-chan struct{} {
	w, err := o.wait()
	if err != nil {
		return (&settled{}).Done()
	}
	return w.done
}

func (o *observed) Result(ctx context.Context, v any) error {
	w, err := o.wait()
	if err != nil {
		return err
	}
	_, _ = o.inbox.look(ctx, o.id) // it may have ended long ago; if the store does not answer now, it is asked again
	return w.Result(ctx, v)
}

func (o *observed) State(ctx context.Context) (task.State, error) {
	return o.inbox.look(ctx, o.id)
}

// waiter is the handle of a task whose outcome is still to come.
type waiter struct {
	id    task.ID
	inbox *inbox
	codec *wire.Codec
	done  chan struct{}

	mu     sync.Mutex
	record resultstore.Record // set once, before done is closed
	err    error              // instead of a record: the producer was closed, or the record was lost
	open   task.State         // what the last record said that was not the end; "" for none
	why    string             // its error

	// Guarded by inbox.mu.
	holds     int  // handles that share the waiter
	polls     int  // looks into the store so far
	submitted bool // by this producer
	groups    []awaitedGroup
}

func (w *waiter) ID() task.ID { return w.id }

func (w *waiter) Done() <-chan struct{} { return w.done }

// resolve sets the outcome; the first one counts. It reports whether this was it.
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

// outcome turns a terminal record into what the submitter gets.
func outcome(r *resultstore.Record, codec *wire.Codec, v any) error {
	if r.State == task.StateSucceeded && r.Error == nil { // with one, its result is not here
		if v == nil || len(r.Result) == 0 {
			return nil
		}
		if err := codec.Unmarshal(r.ContentType, r.Result, v); err != nil {
			return fmt.Errorf("swarmiji: result of %s: %w", r.ID, err)
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

func (w *waiter) State(ctx context.Context) (task.State, error) {
	select {
	case <-w.done:
		return w.record.State, w.err
	default:
	}
	return w.inbox.look(ctx, w.id)
}

// errReplies is what is said of tasks that others have submitted.
var errReplies = fmt.Errorf("%w: results go to reply queues, which keep no records and tell only the submitter", broker.ErrUnsupported)

// errNoRecord is what is said of a task of which a store has nothing.
var errNoRecord = fmt.Errorf("%w: %w", task.ErrNotFound, resultstore.ErrNotFound)

// unfinished is why a wait ended without a result. It says what is known of the task.
func (w *waiter) unfinished(cause error) error {
	w.mu.Lock()
	open, why := w.open, w.why
	w.mu.Unlock()
	switch {
	case open != "":
		return fmt.Errorf("swarmiji: waiting for the result of %s: still %s%s: %w", w.id, open, why, cause)
	case w.inbox.submitted(w.id):
		return fmt.Errorf("swarmiji: waiting for the result of %s: no consumer has recorded anything of it in this result store; its consumers' logs say if they lack the store: %w", w.id, cause)
	case resultstore.RepliesOnly(w.inbox.store):
		return fmt.Errorf("swarmiji: waiting for the result of %s: %w: %w", w.id, errReplies, cause)
	}
	return fmt.Errorf("swarmiji: waiting for the result of %s: %w: %w", w.id, errNoRecord, cause)
}

// note keeps what an open record says, for whoever waits in vain.
func (w *waiter) note(r resultstore.Record) {
	why := ""
	if r.Error != nil && w.inbox.producer.codec.OpenRecord(&r) == nil && r.Error != nil {
		why = ": " + r.Error.Error()
	}
	w.mu.Lock()
	w.open, w.why = r.State, why
	w.mu.Unlock()
}

// look asks the store for a task's state, and resolves its waiter if it has ended. Where the store has no record, only a task
// that this producer has submitted, and whose end it waits for, is known to be pending.
func (in *inbox) look(ctx context.Context, id task.ID) (task.State, error) {
	if in.replies && !in.submitted(id) {
		return "", fmt.Errorf("swarmiji: state of %s: %w", id, errReplies)
	}
	r, err := in.store.Load(ctx, id)
	switch {
	case errors.Is(err, resultstore.ErrNotFound):
		return in.withoutRecord(id)
	case err != nil:
		return "", fmt.Errorf("swarmiji: state of %s: %w", id, err)
	}
	if !r.State.Terminal() {
		in.note(r)
		return r.State, nil
	}
	in.resolveIfAwaited(r)
	if err := in.producer.codec.OpenRecord(&r); err != nil {
		return "", fmt.Errorf("swarmiji: state of %s: %w", id, err)
	}
	return r.State, nil
}

// withoutRecord is the state of a task of which the store has no record: what a reply queue told of it, or pending.
func (in *inbox) withoutRecord(id task.ID) (task.State, error) {
	in.mu.Lock()
	w := in.waiters[id]
	submitted := w != nil && w.submitted
	in.mu.Unlock()
	if !submitted {
		return "", fmt.Errorf("swarmiji: state of %s: %w", id, errNoRecord)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if in.replies && w.open != "" {
		return w.open, nil
	}
	return task.StatePending, nil
}

// submitted reports whether this producer waits for the end of a task that it has submitted itself.
func (in *inbox) submitted(id task.ID) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	w, ok := in.waiters[id]
	return ok && w.submitted
}

// note tells the waiter of an open record's task.
func (in *inbox) note(r resultstore.Record) {
	in.mu.Lock()
	w := in.waiters[r.ID]
	in.mu.Unlock()
	if w != nil {
		w.note(r)
	}
}
