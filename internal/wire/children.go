package wire

import (
	"strconv"

	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// Children returns the ids of the tasks that follow e after a success, at most
// [resultstore.MaxChildren]. It leaves out the members of a group whose number depends on the
// result. Returns nil for another state than [task.StateSucceeded].
func Children(e *task.Envelope, state task.State) []task.ID {
	if state != task.StateSucceeded {
		return nil
	}
	var ids []task.ID
	for i := range e.Then {
		ids = appendFirst(ids, &e.Then[i], e.ID, "then", i)
	}
	return ids
}

// appendFirst appends the ids of the tasks that are sent first for l, which has number i among the
// links of parent. A link without an id gets the id that Expand derives from label and i.
func appendFirst(ids []task.ID, l *task.Link, parent task.ID, label string, i int) []task.ID {
	id := l.ID
	if id == "" {
		id = task.Derive(parent, label+strconv.Itoa(i))
	}
	switch {
	case len(ids) == resultstore.MaxChildren:
	case len(l.Members) == 0:
		return append(ids, id)
	case !l.Each:
		for j := range l.Members {
			ids = appendFirst(ids, &l.Members[j], id, "member", j)
		}
	}
	return ids
}
