package task

import (
	"context"
	"iter"
	"slices"

	"github.com/swarmiji/swarmiji/tx"
)

// Step is a part of a workflow with an argument A and a result R: one task, or several in sequence.
// It is an immutable value, like a [Task]; composing steps makes new ones. Nothing is sent before
// Submit.
type Step[A, R any] struct{ node *Node }

// Part is a part of a workflow: a [Task], a [Step] or a [Fan].
type Part[A, R any] interface {
	// Part returns it as a step.
	Part() Step[A, R]
}

// None is the argument of a workflow whose first steps have their arguments already.
type None struct{}

// Part returns s.
func (s Step[A, R]) Part() Step[A, R] { return s }

// Node returns the step without its types, for submitters.
func (s Step[A, R]) Node() *Node { return s.node }

// Part returns the task as a step whose arguments are the result of the step before it.
func (t Task[A, R]) Part() Step[A, R] {
	return Step[A, R]{&Node{Call: t.call(nil)}}
}

// Bound returns the task as a first step with its arguments.
func (t Task[A, R]) Bound(args A, opts ...Option) Step[None, R] { return Fixed[None](t, args, opts...) }

// call is Call with arguments of any type.
func (t Task[A, R]) call(args any, opts ...Option) Call {
	var none A
	c := t.Call(none, opts...)
	c.Args = args
	return c
}

// Fixed returns a step that runs t with these arguments. The result of the step before it, of type
// In, is dropped:
//
//	task.Chain(parse, task.Fixed[int](notify, "parsed"))
func Fixed[In, A, R any](t Task[A, R], args A, opts ...Option) Step[In, R] {
	return Step[In, R]{&Node{Call: t.call(args, opts...), Feed: FeedNone}}
}

// Into returns a step that runs t with args, in which one field is replaced by the result of the
// step before it. field is the name in the serialized form: the msgpack or json tag, else the Go
// name.
func Into[In, A, R any](t Task[A, R], field string, args A, opts ...Option) Step[In, R] {
	return Step[In, R]{&Node{Call: t.call(args, opts...), Feed: FeedInto, Field: field}}
}

// Prepend returns a step for a task whose arguments are a list, as in some other languages: the
// result of the step before it, then rest.
func Prepend[In, R any](t Task[[]any, R], rest []any, opts ...Option) Step[In, R] {
	if rest == nil {
		rest = []any{}
	}
	return PrependTo[In](t, rest, opts...)
}

// PrependTo returns a step for a task whose first argument is the result of the step before it, and
// whose further arguments are rest. These must be a list, unless their serializer can prepend to
// other values, as that of celery.Args does (serializer.Composer).
func PrependTo[In, A, R any](t Task[A, R], rest A, opts ...Option) Step[In, R] {
	return Step[In, R]{&Node{Call: t.call(rest, opts...), Feed: FeedPrepend}}
}

// Chain returns a step that runs first and then, after its success, then with its result. If first
// fails for good, then never runs. Its future fails with the error of first, and so do those of all
// steps that follow.
func Chain[A, R, S any](first Part[A, R], then Part[R, S]) Step[A, S] {
	return Step[A, S]{first.Part().node.then(then.Part().node)}
}

// Chain3 chains three parts.
func Chain3[A, R, S, T any](first Part[A, R], then Part[R, S], last Part[S, T]) Step[A, T] {
	return Chain(Chain(first, then), last)
}

// OnSuccess returns s with an additional task: after the success of s, also runs with its result,
// besides the steps that follow s. The outcome of also affects no other task.
func OnSuccess[A, R, S any](s Part[A, R], also Part[R, S]) Step[A, R] {
	side := also.Part().node.closed()
	return Step[A, R]{s.Part().node.closed().atEnd(func(n *Node) { n.Then = append(slices.Clip(n.Then), side) })}
}

// OnError returns s with an error task: handler runs with the failure when a step of s fails for
// good. For a group its policy decides which failures count. The workflow fails nevertheless. To
// retry a step instead, set its metadata.
func OnError[A, R, S any](s Part[A, R], handler Part[Failure, S]) Step[A, R] {
	side := handler.Part().node.closed()
	return Step[A, R]{s.Part().node.closed().everywhere(func(n *Node) { n.Else = append(slices.Clip(n.Else), side) })}
}

// With returns the step with opts applied to each task outside of groups.
func (s Step[A, R]) With(opts ...Option) Step[A, R] {
	return Step[A, R]{s.node.everywhere(func(n *Node) {
		if n.Call.Name != GatherName {
			n.Call = apply(n.Call, opts)
		}
	})}
}

// Fan is a group: its members run in parallel, and its result is the list of their results in the
// order of the members. It is a [Part] and can stand anywhere in a workflow; the task that follows
// it is the callback of a chord. If a member fails, the group fails, unless one of the methods
// changes that.
//
// A group needs a store that gathers (resultstore.Gatherer); without one its submission fails.
type Fan[A, R any] struct{ node *Node }

// Group returns a group whose members all get the same argument. Submitting a group without members
// returns [ErrBadMetadata].
func Group[A, R any](members ...Part[A, R]) Fan[A, R] {
	n := &Node{Members: make([]*Node, len(members))}
	for i, m := range members {
		n.Members[i] = m.Part().node
	}
	return Fan[A, R]{n}
}

// Map returns a group with one member for each element of its argument, a list.
func Map[A, R any](each Part[A, R]) Fan[[]A, R] {
	return Fan[[]A, R]{&Node{Members: []*Node{each.Part().node}, Each: true}}
}

// Part returns the group as a step.
func (f Fan[A, R]) Part() Step[A, []R] { return Step[A, []R](f) }

// Collect returns the group as a step that cannot fail: the next step gets each member's result or
// failure, in order.
func (f Fan[A, R]) Collect() Step[A, []Settled[R]] { return Step[A, []Settled[R]]{f.policy(Collect)} }

// IgnoreFailures returns the group as a step that cannot fail: the next step gets the results of
// the succeeded members, in order.
func (f Fan[A, R]) IgnoreFailures() Step[A, []R] { return Step[A, []R]{f.policy(Ignore)} }

// Refer returns the group as a step that cannot fail and may be large: the next step gets a
// reference and reads results and failures in pages. A list would have to fit into one message.
func (f Fan[A, R]) Refer() Step[A, Members[R]] { return Step[A, Members[R]]{f.policy(Refer)} }

func (f Fan[A, R]) policy(p Policy) *Node {
	n := f.node.clone()
	n.Policy = p
	return n
}

// Chord returns a step that runs callback with the results of a group. It is the same as Chain.
func Chord[A, R, S any](group Part[A, R], callback Part[R, S]) Step[A, S] {
	return Chain(group, callback)
}

// Run is a submitted workflow and the future of its last step.
type Run[R any] struct {
	*Future[R]
	steps []Pending
}

// Steps returns the futures of the steps in the order of their composition, the members of a group
// before its follower. The last one is the future of the whole workflow. It leaves out the members
// of a Map, whose number is unknown at submission, and the tasks of OnSuccess and OnError.
func (r *Run[R]) Steps() []Pending { return slices.Clone(r.steps) }

// Submit submits the workflow with the argument of its first step and returns when the broker has
// confirmed the first messages. From then on it does not depend on this process: the messages carry
// all later steps.
//
// All steps must fit into the first messages: at most serializer.MaxLinks steps, and the size limit
// of a message. Submit checks this before it sends. Of opts, only the id (of the last step),
// headers, correlation and [WithExpires] apply; the steps have their own metadata. A step's own
// headers and correlation override those of opts, and only that step has them.
//
// WithExpires is the time limit of the whole workflow: a step that is received after that time does
// not start, and the workflow ends with [ErrExpired]. A running step continues. It does not apply
// to error tasks, and not to the steps that follow a retried one.
func (s Step[A, R]) Submit(ctx context.Context, to WorkSubmitter, args A, opts ...Option) (*Run[R], error) {
	return runOf[R](to.SubmitWork(ctx, Work{Node: s.node.closed(), Args: args, Call: apply(Call{}, opts)}))
}

// Submit submits the group as a workflow. See [Step.Submit].
func (f Fan[A, R]) Submit(ctx context.Context, to WorkSubmitter, args A, opts ...Option) (*Run[[]R], error) {
	return f.Part().Submit(ctx, to, args, opts...)
}

// SubmitTx submits the workflow in a transaction of the caller, as [Step.Submit] submits it
// otherwise. The workflow exists if and only if the caller commits. See [Task.SubmitTx].
func (s Step[A, R]) SubmitTx(ctx context.Context, to TxWorkSubmitter, in tx.Tx, args A, opts ...Option) (*Run[R], error) {
	return runOf[R](to.SubmitWorkTx(ctx, in, Work{Node: s.node.closed(), Args: args, Call: apply(Call{}, opts)}))
}

// SubmitTx submits the group as a workflow. See [Step.SubmitTx].
func (f Fan[A, R]) SubmitTx(ctx context.Context, to TxWorkSubmitter, in tx.Tx, args A, opts ...Option) (*Run[[]R], error) {
	return f.Part().SubmitTx(ctx, to, in, args, opts...)
}

// runOf returns the workflow of these steps, the results of a submission.
func runOf[R any](steps []Pending, err error) (*Run[R], error) {
	if err != nil {
		return nil, err
	}
	return &Run[R]{FutureOf[R](steps[len(steps)-1]), steps}, nil
}

// Stream submits a group with one member for each of inputs, and the step then that follows it. It
// reads and sends the inputs in batches, so neither side holds all of them. The last member carries
// the number of members. The results of members are gathered but not announced; a task that sets
// IgnoreResult saves the store a second copy of each.
//
// After an error some members may have been sent. The step then does not run, except perhaps after
// broker.ErrIndeterminate for the last members, which may be queued.
func Stream[A, R, S any](ctx context.Context, to WorkSubmitter, inputs iter.Seq[A], each Part[A, R], then Part[Members[R], S], opts ...Option) (*Run[S], error) {
	s := Chain(Map(each).Refer(), then)
	return runOf[S](to.SubmitWork(ctx, Work{Node: s.node.closed(), Call: apply(Call{}, opts), Stream: func(yield func(any) bool) {
		for a := range inputs {
			if !yield(a) {
				return
			}
		}
	}}))
}
