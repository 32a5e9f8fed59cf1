package task

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/swarmiji/swarmiji/tx"
)

// Errors of tasks that settle themselves in a transaction.
var (
	// ErrNoSettler is returned by SettleTx outside of a handler of a consumer, and after the
	// handler has returned.
	ErrNoSettler = errors.New("swarmiji: SettleTx needs the context of a handler that a consumer runs")
	// ErrNotCommitted is the error of an attempt whose handler returned nil after SettleTx, and
	// whose transaction was rolled back.
	ErrNotCommitted = errors.New("swarmiji: the handler succeeded, but its transaction that settles the task was not committed")
)

// Settler settles the task that runs. Consumers give one to each Request, see [Request.SettleBy].
type Settler interface {
	// SettleTx implements the function [SettleTx] for the task of the Request.
	SettleTx(ctx context.Context, t tx.Tx, result any) error
}

// SettleBy sets the Settler of the task. Consumers call it before the middleware.
func (r *Request) SettleBy(s Settler) { r.settler = s }

// SettleTx settles the task that runs with ctx as succeeded in t, a transaction of its handler: it
// stores the result, sends the tasks that follow, and removes the message from the queue. All that
// happens if and only if the handler commits t, together with the handler's own changes. So they
// happen exactly once, however often the task is delivered.
//
// Call it once, shortly before the commit. End t before the handler returns. Then the consumer
// looks whether the message is gone:
//
//   - It is gone: the task has succeeded, whatever the handler returned.
//   - It is still there: t was rolled back. The error of the handler counts, or [ErrNotCommitted]
//     if it returned nil. The retry policy decides about another attempt.
//
// SettleTx returns these errors before it writes anything:
//
//   - [ErrNoSettler] outside of a handler, and after the handler has returned.
//   - broker.ErrUnsupported if the broker, the result store or t is not in the same SQL database,
//     for tasks that run at most once, and after [Expect].
//   - [ErrBadResult] if the result cannot be encoded, is too large, or is not of the type that the
//     handler returns.
//   - broker.ErrSettled during another call of SettleTx for the task.
//
// It also returns errors of the database, and these:
//
//   - broker.ErrSettled if the transaction of an earlier call is open or committed.
//   - broker.ErrLeaseLost if the broker took the task back.
//   - resultstore.ErrStale if another attempt has ended the task.
//
// Roll back after each error. After a rollback SettleTx may be called again with another
// transaction, for example after a serialization failure.
//
// Middleware does not see the result. The serializer, compression and sealing do.
func SettleTx[R any](ctx context.Context, t tx.Tx, result R) error {
	r, ok := FromContext(ctx)
	if !ok || r.settler == nil {
		return ErrNoSettler
	}
	if got := reflect.TypeOf(result); got != nil && r.result != nil && !got.AssignableTo(r.result) {
		return fmt.Errorf("%w: SettleTx got a %s, and the handler of task %q returns a %s", ErrBadResult, got, r.Name, r.result)
	}
	return r.settler.SettleTx(ctx, t, result)
}
