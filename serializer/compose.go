package serializer

import "github.com/swarmiji/swarmiji/task"

// Composer is an optional interface of a [Serializer] whose encoded arguments are more than a list
// of values, such as positional arguments beside named ones. A successor with task.FeedPrepend gets
// the result of its parent by it. Without a Composer the arguments must be a plain list.
type Composer interface {
	// Prepend returns args with value before the first argument. It changes neither args nor value.
	// Unmarshal of the result into a struct puts value into the first field, and the arguments of args
	// into the next ones.
	//
	//   - Empty args are those of a task without arguments.
	//   - value is nil, a bool, string, []byte, integer, float, json.Number, []any or map[string]any.
	//     Integers keep all their digits.
	//   - Returns [ErrMalformed] if args are not of this serializer, and [ErrValue] if value cannot be
	//     encoded.
	Prepend(args []byte, value any) ([]byte, error)
	// PrependFailure returns args with the failure of a task before the first argument, in the form
	// that the error tasks of this encoding expect. Its errors are those of Prepend.
	PrependFailure(args []byte, f task.Failure) ([]byte, error)
}
