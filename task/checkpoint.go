package task

import (
	"context"
	"errors"
	"time"
)

// Errors of checkpoints.
var (
	// ErrNoCheckpoints is returned outside of a handler of a consumer, and after the handler has
	// returned.
	ErrNoCheckpoints = errors.New("swarmiji: checkpoints need the context of a handler that a consumer runs")
	// ErrBadCheckpoint reports a name that is invalid or used twice in an attempt, or a value that
	// cannot be encoded or decoded. It also reports a handler that ignored an error of Sleep or Await.
	ErrBadCheckpoint = errors.New("swarmiji: bad checkpoint")
)

// Checkpointer keeps the checkpoints of the task that runs. Consumers give one to each Request, see
// [Request.CheckpointBy]. Safe for concurrent use.
type Checkpointer interface {
	// UseCheckpoint is called before each store of a value. once says that this attempt must not use
	// the name otherwise. Its errors are those of [Checkpoint] before fn.
	UseCheckpoint(ctx context.Context, name string, once bool) error
	// LoadCheckpoint decodes the stored value into the pointer into. Returns false without a stored
	// value.
	LoadCheckpoint(ctx context.Context, name string, into any) (found bool, err error)
	// SaveCheckpoint stores a value in place of any other one with this name.
	SaveCheckpoint(ctx context.Context, name string, v any) error
	// Sleep implements the function [Sleep].
	Sleep(ctx context.Context, name string, d time.Duration) error
	// Await implements the function [Await]. It decodes the answer into the pointer into, or returns
	// wait. The name is wait.Checkpoint.
	Await(ctx context.Context, wait *DeferVerdict, into any) error
}

// CheckpointBy sets the Checkpointer of the task. Consumers call it before the middleware.
func (r *Request) CheckpointBy(c Checkpointer) { r.checkpoints = c }

// Checkpoint returns the result that an earlier attempt of the running task has stored under name.
// Without such a result it calls fn and stores its result before it returns. So fn does not run
// again after a retry, a crash of the process or a requeue of the dead letter:
//
//	order, err := task.Checkpoint(ctx, "charge", func(ctx context.Context) (Receipt, error) {
//		return bank.Charge(ctx, account)
//	})
//
// Code outside of checkpoints runs again in each attempt. There is no replay: checkpoints may be in
// any order, in branches and loops, and in several goroutines. fn runs again after a crash before
// its result is stored, so fn must bear that, and after the checkpoint is renamed. An error of fn
// is returned, and nothing is stored.
//
// ctx is that of the handler, or derived from it. Values are encoded by the serializer of the task,
// and compressed and sealed as results are. They are kept beside the result, through retries,
// snoozes, deferrals and redeliveries. After a failure they are kept for 30 days, or for the task's
// ResultTTL if that is longer. They are deleted when the task succeeds or is revoked. A task has at
// most 64 names of 1 to 255 bytes, and 256 KiB.
//
// Returns these errors before fn runs:
//
//   - [ErrNoCheckpoints] outside of a handler of a consumer, and after the handler has returned.
//   - resultstore.ErrUnsupported if the task has no result store that keeps checkpoints.
//   - [ErrBadCheckpoint] if the name is invalid, if this attempt has used it already, or if the
//     stored value is not of type R.
//   - resultstore.ErrStale if a newer attempt of the task runs or the task has ended.
//   - resultstore.ErrTooLarge if the task has 64 other checkpoints.
//
// Returns these errors after fn has run, whose result is then lost:
//
//   - resultstore.ErrTooLarge if the task would have more than 256 KiB.
//   - [ErrBadCheckpoint] if the result cannot be encoded.
//   - resultstore.ErrStale if meanwhile a newer attempt began.
//
// Both times it returns errors of the store, within the time consumer.Tuning.StoreRetry. Safe for
// concurrent use.
func Checkpoint[R any](ctx context.Context, name string, fn func(ctx context.Context) (R, error)) (R, error) {
	var none R
	c, err := checkpointer(ctx)
	if err == nil {
		err = c.UseCheckpoint(ctx, name, true)
	}
	if err != nil {
		return none, err
	}
	v, found, err := load[R](ctx, c, name)
	if found || err != nil {
		return v, err
	}
	if v, err = fn(ctx); err != nil {
		return v, err
	}
	if err := c.SaveCheckpoint(ctx, name, v); err != nil {
		return none, err
	}
	return v, nil
}

// Load returns the value that this or an earlier attempt of the running task has stored under name
// with [Save] or [Checkpoint]. found is false without such a value. The first attempt of a task
// reads nothing. Its errors are those of Checkpoint before fn.
func Load[T any](ctx context.Context, name string) (value T, found bool, err error) {
	c, err := checkpointer(ctx)
	if err != nil {
		return value, false, err
	}
	return load[T](ctx, c, name)
}

// Save stores a value under name, such as a cursor in a long list, in place of an earlier one. When
// it has returned nil, the next attempt finds the value with [Load]. It may be called often: each
// call is one write. A name of [Checkpoint] is refused. Its errors are those of Checkpoint.
func Save[T any](ctx context.Context, name string, value T) error {
	c, err := checkpointer(ctx)
	if err == nil {
		err = c.UseCheckpoint(ctx, name, false)
	}
	if err != nil {
		return err
	}
	return c.SaveCheckpoint(ctx, name, value)
}

// checkpointer returns the Checkpointer of the task that runs with ctx.
func checkpointer(ctx context.Context) (Checkpointer, error) {
	r, ok := FromContext(ctx)
	if !ok || r.checkpoints == nil {
		return nil, ErrNoCheckpoints
	}
	return r.checkpoints, nil
}

// load returns the stored value of name. After an error the value is zero.
func load[T any](ctx context.Context, c Checkpointer, name string) (T, bool, error) {
	var v, none T
	found, err := c.LoadCheckpoint(ctx, name, &v)
	if err != nil || !found {
		return none, false, err
	}
	return v, true, nil
}
