package task

import (
	"context"
	"iter"
)

// Node is a workflow without its types, as a submitter sees it: a step, or a group of nodes, with what follows. Nodes are
// never changed once they are made, and may be parts of many workflows.
type Node struct {
	Call    Call    // the step; Args are its own arguments. Name "": a group
	Feed    Feed    // what it gets of the result before it
	Field   string  // for FeedInto
	Members []*Node // of a group
	Each    bool    // a group with a member like Members[0] for each element of the list it is given
	Policy  Policy  // of a group
	Next    *Node   // the next step; of a group, what gets its results
	Then    []*Node // besides Next when the step succeeded
	Else    []*Node // when it failed for good
}

// Work is a workflow that is submitted.
type Work struct {
	Node *Node
	Args any // what the first step is given, as if it were the result of one before it
	// Stream, when it is not nil, gives the members' arguments one by one instead of Args. Node is then a group with Each.
	Stream iter.Seq[any]
	Call   Call // Headers and Correlation of all steps, Parent and Root; ID is that of the last step. "": one is chosen
}

// WorkSubmitter takes workflows. A producer is one.
type WorkSubmitter interface {
	// SubmitWork submits w. Nil error means that its first messages are confirmed; all the rest travels in them. The pending
	// tasks are those of the steps whose number is known, in the order in which they were composed, a group's members before
	// what follows it; the last one is the whole's. Those of a stream's members are left out.
	SubmitWork(ctx context.Context, w Work) ([]Pending, error)
}

// isGroup reports whether n is a group.
func (n *Node) isGroup() bool { return len(n.Members) > 0 }

// clone copies one node.
func (n *Node) clone() *Node {
	c := *n
	return &c
}

// then returns n with next at its end.
func (n *Node) then(next *Node) *Node {
	c := n.clone()
	switch {
	case n.Next != nil:
		c.Next = n.Next.then(next)
	case n.isGroup() && next.isGroup(): // the list has to be somebody's result
		c.Next = gatherNode()
		c.Next.Next = next
	default:
		c.Next = next
	}
	return c
}

// closed returns n with a step at its end where it ends with a group.
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

// atEnd returns n with its last step changed.
func (n *Node) atEnd(change func(*Node)) *Node {
	c := n.clone()
	if n.Next != nil {
		c.Next = n.Next.atEnd(change)
	} else {
		change(c)
	}
	return c
}

// everywhere returns n with every step changed that is not inside of a group.
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
