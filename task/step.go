package task

import (
	"context"
	"iter"
	"slices"
)

// Step is a piece of a workflow that takes an A and gives an R: one task, or several that follow each other. It is an
// immutable value, like a [Task]; composing steps makes new ones. Nothing is sent before Submit.
type Step[A, R any] struct{ node *Node }

// Part is what workflows are composed of: a [Task], a [Step] or a [Fan].
type Part[A, R any] interface {
	// Part returns it as a step.
	Part() Step[A, R]
}

// None is what a workflow takes whose first steps have their arguments already.
type None struct{}

// Part implements [Part].
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

// Fixed makes a step of a task with its arguments: whatever the step before it gives is dropped. In is what that gives:
//
//	task.Chain(parse, task.Fixed[int](notify, "parsed"))
func Fixed[In, A, R any](t Task[A, R], args A, opts ...Option) Step[In, R] {
	return Step[In, R]{&Node{Call: t.call(args, opts...), Feed: FeedNone}}
}

// Into makes a step of a task of which all arguments but one are fixed: what the step before it gives goes into the field of
// that name, as the arguments' serializer names it (the msgpack or json tag, else the Go name).
func Into[In, A, R any](t Task[A, R], field string, args A, opts ...Option) Step[In, R] {
	return Step[In, R]{&Node{Call: t.call(args, opts...), Feed: FeedInto, Field: field}}
}

// Prepend makes a step of a task whose arguments are a list, as those of other languages often are: what the step before it
// gives comes first, then rest.
func Prepend[In, R any](t Task[[]any, R], rest []any, opts ...Option) Step[In, R] {
	if rest == nil {
		rest = []any{}
	}
	return Step[In, R]{&Node{Call: t.call(rest, opts...), Feed: FeedPrepend}}
}

// Chain runs then after first has succeeded, with its result. When first fails for good then never runs, and its future
// fails with first's error, as do those of all that follow.
func Chain[A, R, S any](first Part[A, R], then Part[R, S]) Step[A, S] {
	return Step[A, S]{first.Part().node.then(then.Part().node)}
}

// Chain3 is a chain of three.
func Chain3[A, R, S, T any](first Part[A, R], then Part[R, S], last Part[S, T]) Step[A, T] {
	return Chain(Chain(first, then), last)
}

// OnSuccess has also run after s has succeeded, with its result, beside what follows s in a chain. Its own outcome is nobody
// else's concern.
func OnSuccess[A, R, S any](s Part[A, R], also Part[R, S]) Step[A, R] {
	side := also.Part().node.closed()
	return Step[A, R]{s.Part().node.closed().atEnd(func(n *Node) { n.Then = append(slices.Clip(n.Then), side) })}
}

// OnError has handler run when a step of s has failed for good, with the failure. Of a group it hears what the group's policy
// makes a failure. The workflow fails all the same. What is to be retried instead is said with the step's metadata.
func OnError[A, R, S any](s Part[A, R], handler Part[Failure, S]) Step[A, R] {
	side := handler.Part().node.closed()
	return Step[A, R]{s.Part().node.closed().everywhere(func(n *Node) { n.Else = append(slices.Clip(n.Else), side) })}
}

// With returns the step with opts laid over the metadata of each task in it that is not inside of a group.
func (s Step[A, R]) With(opts ...Option) Step[A, R] {
	return Step[A, R]{s.node.everywhere(func(n *Node) {
		if n.Call.Name != GatherName {
			n.Call = apply(n.Call, opts)
		}
	})}
}

// Fan is a group: several members that run at a time, and whose results are one list, in the order of the members. It is a
// [Part], so that it can stand anywhere in a workflow; what follows it is a chord's callback. A failure of a member is the
// group's, unless one of the methods says otherwise.
//
// Groups need a store that can gather (a resultstore.Gatherer); where there is none, submitting one is an error.
type Fan[A, R any] struct{ node *Node }

// Group makes a group of members that all are given the same A. Submitting one without members is [ErrBadMetadata].
func Group[A, R any](members ...Part[A, R]) Fan[A, R] {
	n := &Node{Members: make([]*Node, len(members))}
	for i, m := range members {
		n.Members[i] = m.Part().node
	}
	return Fan[A, R]{n}
}

// Map makes a group that has a member for each element of the list it is given.
func Map[A, R any](each Part[A, R]) Fan[[]A, R] {
	return Fan[[]A, R]{&Node{Members: []*Node{each.Part().node}, Each: true}}
}

// Part implements [Part].
func (f Fan[A, R]) Part() Step[A, []R] { return Step[A, []R](f) }

// Collect makes it a group that cannot fail: what follows gets each member's result or failure, in order.
func (f Fan[A, R]) Collect() Step[A, []Settled[R]] { return Step[A, []Settled[R]]{f.policy(Collect)} }

// IgnoreFailures makes it a group that cannot fail: what follows gets the results of the members that succeeded, in order.
func (f Fan[A, R]) IgnoreFailures() Step[A, []R] { return Step[A, []R]{f.policy(Ignore)} }

// Refer makes it a group that cannot fail and may be large: what follows gets a reference, and reads results and failures
// in pages. A list would have to fit into one message.
func (f Fan[A, R]) Refer() Step[A, Members[R]] { return Step[A, Members[R]]{f.policy(Refer)} }

func (f Fan[A, R]) policy(p Policy) *Node {
	n := f.node.clone()
	n.Policy = p
	return n
}

// Chord runs callback with the results of a group: it is Chain, by the name that others know it by.
func Chord[A, R, S any](group Part[A, R], callback Part[R, S]) Step[A, S] {
	return Chain(group, callback)
}

// Run is a workflow that was submitted. It is the future of the whole.
type Run[R any] struct {
	*Future[R]
	steps []Pending
}

// Steps returns the futures of the steps, in the order in which they were composed, a group's members before what follows it,
// and the whole's last. Members of a Map, whose number is not known at submission, and what OnSuccess and OnError add are not
// among them.
func (r *Run[R]) Steps() []Pending { return slices.Clone(r.steps) }

// Submit submits the workflow with what its first step is to be given. It returns when the first messages are confirmed.
// From then on nothing depends on this process: what follows travels in the messages, so that all of it has to fit into
// them (serializer.MaxLinks steps, and the size limit of a message), which is checked here, before anything is sent. Of opts, id (of the last
// step), headers and correlation count; metadata are the steps' own.
func (s Step[A, R]) Submit(ctx context.Context, to WorkSubmitter, args A, opts ...Option) (*Run[R], error) {
	return submitWork[R](ctx, to, Work{Node: s.node.closed(), Args: args, Call: apply(Call{}, opts)})
}

// Submit is that of [Step].
func (f Fan[A, R]) Submit(ctx context.Context, to WorkSubmitter, args A, opts ...Option) (*Run[[]R], error) {
	return f.Part().Submit(ctx, to, args, opts...)
}

func submitWork[R any](ctx context.Context, to WorkSubmitter, w Work) (*Run[R], error) {
	steps, err := to.SubmitWork(ctx, w)
	if err != nil {
		return nil, err
	}
	return &Run[R]{FutureOf[R](steps[len(steps)-1]), steps}, nil
}

// Stream submits a group that has a member for each of inputs, and then for what follows it. Neither side ever holds all of
// it: inputs are read as members are sent, in batches, and their number is told with the last one. Members' results are
// gathered and not announced; a task that sets IgnoreResult saves the store another copy of each.
//
// After an error some members may have been sent. What follows them does not run, unless the error is a
// broker.ErrIndeterminate of the last ones, which may be queued all the same.
func Stream[A, R, S any](ctx context.Context, to WorkSubmitter, inputs iter.Seq[A], each Part[A, R], then Part[Members[R], S], opts ...Option) (*Run[S], error) {
	s := Chain(Map(each).Refer(), then)
	return submitWork[S](ctx, to, Work{Node: s.node.closed(), Call: apply(Call{}, opts), Stream: func(yield func(any) bool) {
		for a := range inputs {
			if !yield(a) {
				return
			}
		}
	}})
}
