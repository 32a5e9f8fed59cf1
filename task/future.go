package task

import "context"

// Pending is a submitted task without its type. It is safe for concurrent use.
type Pending interface {
	// ID returns the task's id.
	ID() ID
	// Done is closed when the outcome is known in this process. It is a signal only: the outcome comes from Result.
	Done() <-chan struct{}
	// Result waits for the outcome or for ctx. It decodes the result into v, a non-nil pointer or nil to drop it, or returns
	// the task's failure as a [*RemoteError]. It may be called again, and gives the same answer. When ctx ends first the error
	// wraps its cause and says what is known of the task.
	Result(ctx context.Context, v any) error
	// State returns what is known now, without waiting for the end. [StatePending] is said of a task that was submitted and has
	// no record yet. [ErrNotFound] says that there is no record, and that nobody here has submitted the task.
	State(ctx context.Context) (State, error)
}

// Future is the result of a task that is still to come. It is safe for concurrent use. The zero value is not usable;
// [Task.Submit] and [FutureOf] make futures.
type Future[R any] struct{ pending Pending }

// FutureOf gives a pending task its type.
func FutureOf[R any](p Pending) *Future[R] { return &Future[R]{p} }

// ID returns the task's id.
func (f *Future[R]) ID() ID { return f.pending.ID() }

// Pending returns the future without its type.
func (f *Future[R]) Pending() Pending { return f.pending }

// Done is closed when the outcome is known in this process.
func (f *Future[R]) Done() <-chan struct{} { return f.pending.Done() }

// Get waits for the result or for ctx. A failed task gives a [*RemoteError]; when ctx ends first, its cause, and the
// future stays usable. A task with an ignored result gives the zero value at once.
func (f *Future[R]) Get(ctx context.Context) (R, error) {
	var r R
	err := f.pending.Result(ctx, &r)
	return r, err
}

// State returns what is known now, without waiting for the end.
func (f *Future[R]) State(ctx context.Context) (State, error) { return f.pending.State(ctx) }
