package task

import "context"

// Pending is a submitted task without its result type. Safe for concurrent use.
type Pending interface {
	// ID returns the task's id.
	ID() ID
	// Done is closed when the outcome is known in this process. Call Result to get it.
	Done() <-chan struct{}
	// Result waits for the outcome or the end of ctx. It decodes the result into v, a non-nil pointer,
	// or drops it if v is nil. It returns the task's failure as a [*RemoteError]. A repeated call
	// gives the same answer.
	//
	// If ctx ends first, the error wraps its cause and describes the known state of the task.
	Result(ctx context.Context, v any) error
	// State returns the known state without waiting for the end. It returns [StatePending] for a task
	// that this process submitted and that has no record yet. Returns [ErrNotFound] if the store has
	// no record and this process did not submit the task.
	State(ctx context.Context) (State, error)
}

// Future holds the future result of a task. Safe for concurrent use. The zero value is not usable;
// [Task.Submit] and [FutureOf] make futures.
type Future[R any] struct{ pending Pending }

// FutureOf returns a future with a result type for a pending task.
func FutureOf[R any](p Pending) *Future[R] { return &Future[R]{p} }

// ID returns the task's id.
func (f *Future[R]) ID() ID { return f.pending.ID() }

// Pending returns the future without its result type.
func (f *Future[R]) Pending() Pending { return f.pending }

// Done is closed when the outcome is known in this process.
func (f *Future[R]) Done() <-chan struct{} { return f.pending.Done() }

// Get waits for the result or the end of ctx. Returns a [*RemoteError] for a failed task. If ctx
// ends first, it returns the cause, and the future stays usable. For a task with an ignored result
// it returns the zero value at once.
func (f *Future[R]) Get(ctx context.Context) (R, error) {
	var r R
	err := f.pending.Result(ctx, &r)
	return r, err
}

// State returns the known state without waiting for the end. See [Pending].
func (f *Future[R]) State(ctx context.Context) (State, error) { return f.pending.State(ctx) }
