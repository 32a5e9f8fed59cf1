package task

import (
	"context"
	"fmt"
	"maps"
	"reflect"

	"github.com/swarmiji/swarmiji/tx"
)

// Task is the definition of a task: a name, metadata, and the types of its arguments and result. It
// is immutable, may be a package variable, and is safe for concurrent use. Producer and consumer
// share the definition; only the consumer has the function.
type Task[A, R any] struct {
	name       string
	definition *definition // nil: no options
}

// definition holds the values that the options of New and With set. It never changes.
type definition struct {
	meta        Metadata
	headers     map[string]string
	correlation string
	conditions  *Conditions
	unique      *Unique
	burst       *Burst
	orderKey    string
}

// New returns the definition of a task. The name is checked at submission and registration.
func New[A, R any](name string, opts ...Option) Task[A, R] {
	return Task[A, R]{name: name}.With(opts...)
}

// Name returns the task's name.
func (t Task[A, R]) Name() string { return t.name }

// Metadata returns the metadata of the definition.
func (t Task[A, R]) Metadata() Metadata {
	if t.definition == nil {
		return Metadata{}
	}
	return t.definition.meta
}

// With returns a definition with the same name, on which opts override the values of t.
func (t Task[A, R]) With(opts ...Option) Task[A, R] {
	if len(opts) == 0 {
		return t
	}
	var c Call
	if t.definition != nil {
		c = Call{Meta: t.definition.meta, Headers: maps.Clone(t.definition.headers), Correlation: t.definition.correlation, Conditions: t.definition.conditions, Unique: t.definition.unique, Burst: t.definition.burst, OrderKey: t.definition.orderKey}
	}
	for _, o := range opts {
		o(&c)
	}
	t.definition = &definition{meta: c.Meta, headers: c.Headers, correlation: c.Correlation, conditions: c.Conditions, unique: c.Unique, burst: c.Burst, orderKey: c.OrderKey}
	return t
}

// Call returns a call with args. opts override the definition.
func (t Task[A, R]) Call(args A, opts ...Option) Call {
	c := Call{Name: t.name, Args: args}
	if d := t.definition; d != nil {
		c.Definition, c.Headers, c.Correlation, c.Conditions, c.Unique, c.Burst, c.OrderKey = &d.meta, d.headers, d.correlation, d.conditions, d.unique, d.burst, d.orderKey
	}
	if len(opts) > 0 {
		return apply(c, opts)
	}
	return c
}

// apply returns c with opts applied. It is separate from Call so that a call without options stays
// on the stack.
func apply(c Call, opts []Option) Call {
	for _, o := range opts {
		o(&c)
	}
	return c
}

// Submit submits one task and returns when the broker has confirmed it. For its errors see the
// Submitter.
func (t Task[A, R]) Submit(ctx context.Context, s Submitter, args A, opts ...Option) (*Future[R], error) {
	p, err := s.Submit(ctx, t.Call(args, opts...))
	if err != nil {
		return nil, err
	}
	return FutureOf[R](p), nil
}

// SubmitTx submits one task in a transaction of the caller, which packages tx/sqltx and tx/pgxtx
// convert. The task exists if and only if the caller commits. SubmitTx returns when it is stored in
// the transaction, and does not commit. For its errors and the future see the Producer.
func (t Task[A, R]) SubmitTx(ctx context.Context, s TxSubmitter, in tx.Tx, args A, opts ...Option) (*Future[R], error) {
	p, err := s.SubmitTx(ctx, in, t.Call(args, opts...))
	if err != nil {
		return nil, err
	}
	return FutureOf[R](p), nil
}

// SubmitAll submits one task for each element of args, pipelined. The futures are in the order of
// args, nil for a refused task. The error holds the error of each refused task.
func (t Task[A, R]) SubmitAll(ctx context.Context, s BatchSubmitter, args []A, opts ...Option) ([]*Future[R], error) {
	calls := make([]Call, len(args))
	for i, a := range args {
		calls[i] = t.Call(a, opts...)
	}
	pending, err := s.SubmitAll(ctx, calls)
	futures := make([]*Future[R], len(pending))
	for i, p := range pending {
		if p != nil {
			futures[i] = FutureOf[R](p)
		}
	}
	return futures, err
}

// Handle registers fn as the task's function. wrap is middleware of this task, the first element
// outermost; it runs inside of the consumer's middleware. Returns an error if fn is nil, or the
// error of r.Register.
func (t Task[A, R]) Handle(r Registrar, fn func(ctx context.Context, args A) (R, error), wrap ...func(Handler) Handler) error {
	if fn == nil {
		return fmt.Errorf("swarmiji: the handler of task %q is nil", t.name)
	}
	h := HandlerFunc(func(ctx context.Context, r *Request) (any, error) {
		var args A
		if err := r.Bind(&args); err != nil {
			return nil, err
		}
		if own, ok := FromContext(ctx); ok {
			own.result = reflect.TypeFor[R]()
		}
		return fn(ctx, args)
	})
	return t.register(r, h, wrap)
}

// register registers h in the middleware of wrap, and marks secrets of the task's types.
func (t Task[A, R]) register(r Registrar, h Handler, wrap []func(Handler) Handler) error {
	for i := len(wrap) - 1; i >= 0; i-- {
		h = wrap[i](h)
	}
	if args, result := HasSecrets(reflect.TypeFor[A]()), HasSecrets(reflect.TypeFor[R]()); args || result {
		h = &discreet{Handler: h, args: args, result: result}
	}
	return r.Register(t.name, h, t.Metadata())
}
