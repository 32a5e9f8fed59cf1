package producer

import (
	"context"
	"errors"
	"fmt"
	"sync"

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
	err    error              // instead of a record: the producer was closed
	holds  int                // submissions that share the waiter
	polls  int                // looks into the store so far
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
			return fmt.Errorf("swarmiji: waiting for the result of %s: %w", w.id, context.Cause(ctx))
		}
	}
	if w.err != nil {
		return fmt.Errorf("swarmiji: result of %s: %w", w.id, w.err)
	}
	return outcome(&w.record, w.codec, v)
}

// outcome turns a terminal record into what the submitter gets.
func outcome(r *resultstore.Record, codec *wire.Codec, v any) error {
	if r.State == task.StateSucceeded {
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

// look asks the store for a task's state, and resolves its waiter if it has ended.
func (in *inbox) look(ctx context.Context, id task.ID) (task.State, error) {
	r, err := in.store.Load(ctx, id)
	switch {
	case errors.Is(err, resultstore.ErrNotFound):
		return task.StatePending, nil
	case err != nil:
		return "", fmt.Errorf("swarmiji: state of %s: %w", id, err)
	}
	if r.State.Terminal() {
		in.resolveIfAwaited(r)
		if err := in.producer.codec.OpenRecord(&r); err != nil {
			return "", fmt.Errorf("swarmiji: state of %s: %w", id, err)
		}
	}
	return r.State, nil
}
