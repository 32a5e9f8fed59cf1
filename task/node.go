package task

import (
	"context"
	"iter"

	"github.com/swarmiji/swarmiji/tx"
)

// Node is a workflow without its types: a step or a group of nodes, with the nodes that follow.
// Nodes are immutable and may be parts of many workflows.
type Node struct {
	Call    Call    // the step, with its own arguments in Args; with Name "" a group
	Feed    Feed    // how it gets the result of the step before it
	Field   string  // for FeedInto
	Members []*Node // members of a group
	// a group with one member like Members[0] for each element of the list that it gets
	Each   bool
	Policy Policy  // of a group
	Next   *Node   // the next step; of a group, the node that gets its results
	Then   []*Node // besides Next, after a success
	Else   []*Node // after a failure
}

// Work is a workflow to submit.
type Work struct {
	Node *Node
	Args any // argument of the first step, as if it were the result of a step before it
	// Stream, if not nil, yields the arguments of the members one by one instead of Args. Node is then
	// a group with Each.
	Stream iter.Seq[any]
	// Headers and Correlation of all steps, which a step's own override, Parent, Root, and Expires of
	// Meta, the time limit of all steps. ID is that of the last step; "": the producer chooses one.
	Call Call
}

// WorkSubmitter submits workflows. A producer implements it.
type WorkSubmitter interface {
	// SubmitWork submits w. A nil error means that the broker has confirmed the first messages, which
	// carry the rest of the workflow.
	//
	// It returns the pending tasks of the steps in the order of their composition, the members of a
	// group before its follower. The last one is the task of the whole workflow. Members of a Map or a
	// stream are left out.
	SubmitWork(ctx context.Context, w Work) ([]Pending, error)
}

// TxWorkSubmitter submits workflows in a transaction of the caller. A producer implements it.
type TxWorkSubmitter interface {
	// SubmitWorkTx is SubmitWork of [WorkSubmitter]. A nil error means that the first messages are
	// stored in the transaction. The workflow exists if and only if the caller commits.
	SubmitWorkTx(ctx context.Context, t tx.Tx, w Work) ([]Pending, error)
}

// isGroup reports whether n is a group.
func (n *Node) isGroup() bool { return len(n.Members) > 0 }

// clone returns a shallow copy of n.
func (n *Node) clone() *Node {
	c := *n
	return &c
}

// then returns a copy of n with next at its end.
func (n *Node) then(next *Node) *Node {
	c := n.clone()
	switch {
	case n.Next != nil:
		c.Next = n.Next.then(next)
	case n.isGroup() && next.isGroup(): // the list must be the result of a step
		c.Next = gatherNode()
		c.Next.Next = next
	default:
		c.Next = next
	}
	return c
}

// closed returns a copy of n that does not end with a group: a gather step follows it.
func (n *Node) closed() *Node {
	c := n.clone()
	switch {
	case n.Next != nil:
		c.Next = n.Next.closed()
	case n.isGroup():
		c.Next = gatherNode()
	}
	return c
}

func gatherNode() *Node { return &Node{Call: Call{Name: GatherName}} }

// atEnd returns a copy of n with its last step changed.
func (n *Node) atEnd(change func(*Node)) *Node {
	c := n.clone()
	if n.Next != nil {
		c.Next = n.Next.atEnd(change)
	} else {
		change(c)
	}
	return c
}

// everywhere returns a copy of n with every step outside of groups changed.
func (n *Node) everywhere(change func(*Node)) *Node {
	c := n.clone()
	if !n.isGroup() {
		change(c)
	}
	if n.Next != nil {
		c.Next = n.Next.everywhere(change)
	}
	return c
}
