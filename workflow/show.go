package workflow

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// show is the state of one call of Show, which collects the tree of a workflow. One goroutine uses
// it.
type show struct {
	v     *Viewer
	tree  *Tree
	order []*Node           // all nodes, in the order of the tree
	nodes map[task.ID]*Node // the same by id, without members that only their group lists
	known []Known           // tasks that history has added
}

// add adds a node to s.order and s.nodes, and returns true. If these have MaxTasks nodes, it sets
// Tree.More and returns false instead.
func (s *show) add(n *Node) bool {
	if len(s.order) >= MaxTasks {
		s.tree.More = true
		return false
	}
	s.order, s.nodes[n.ID] = append(s.order, n), n
	return true
}

// steps reads the steps of the workflow and adds them in order: first the tasks and groups whose
// ids derive from the root and a number, then the last step, whose id is the root. It skips ids
// without a record, and ends the first part after unknownInARow of them in a row, or if the tree is
// full.
//
// It sets State of the tree from the last step. If that step has failed, expired or was revoked, it
// also sets Failed: the step that its error names, else the last step itself. Returns errors of the
// stores.
func (s *show) steps(ctx context.Context) error {
	unknown := 0
	for i := 1; i <= serializer.MaxLinks && unknown < unknownInARow; i++ {
		id := task.Derive(s.tree.Root, "step"+strconv.Itoa(i))
		n, err := s.v.load(ctx, id)
		if err == nil && n == nil {
			n, err = s.group(ctx, id)
		}
		if err != nil {
			return err
		}
		if unknown++; n != nil {
			unknown = 0
			if !s.add(n) {
				break
			}
		}
	}
	last, err := s.v.load(ctx, s.tree.Root)
	if err != nil || last == nil {
		return err
	}
	s.order, s.nodes[last.ID] = append(s.order, last), last
	s.tree.State = last.State
	if last.State == task.StateFailed || last.State == task.StateExpired || last.State == task.StateRevoked {
		s.tree.Failed = last
		if e := last.Error; e != nil && e.StepID != "" {
			if s.tree.Failed = s.nodes[e.StepID]; s.tree.Failed == nil {
				if s.tree.Failed, err = s.v.load(ctx, e.StepID); err != nil {
					return err
				}
			}
			if s.tree.Failed == nil { // its record has expired, or its result is ignored
				s.tree.Failed = &Node{ID: e.StepID, Name: e.Step, State: last.State, Error: e}
			}
		}
	}
	return nil
}

// load reads the record of a task and returns a node without children. It returns nil, without an
// error, if no store has the record. It skips a record which says that the result is in another
// store. A sealed error that cannot be opened is replaced by one of type "sealed". Returns errors
// of the stores.
func (v *Viewer) load(ctx context.Context, id task.ID) (*Node, error) {
	for _, store := range v.stores {
		rec, err := store.Load(ctx, id)
		switch {
		case errors.Is(err, resultstore.ErrNotFound), err == nil && rec.State == task.StateSucceeded && rec.Error != nil:
			continue // the result is in another store
		case err != nil:
			return nil, err
		}
		if v.codec.OpenRecord(&rec) != nil && rec.Error != nil {
			rec.Error = &task.RemoteError{Type: "sealed", Message: "the error is sealed, and no key is configured"}
		}
		return nodeOf(&rec), nil
	}
	return nil, nil
}

// nodeOf returns a node of a task, without children, with the fields of its record.
func nodeOf(rec *resultstore.Record) *Node {
	return &Node{
		ID: rec.ID, Name: rec.Name, State: rec.State, Retries: rec.Retries, Life: rec.Life, StartedAt: rec.StartedAt, FinishedAt: rec.FinishedAt,
		NodeID: rec.NodeID, Error: rec.Error, Progress: rec.Progress,
	}
}

// group returns the node of a group with its counts and its known members, in the order of their
// index. Returns nil, without an error, if no gatherer is configured or it does not know the group.
//
// A member that has not ended has a node only if a store has its record. Errors of sealed members
// that cannot be opened are left out. Members beyond MaxMembers are left out, and Tree.More is set.
// Returns errors of the gatherer and the stores.
func (s *show) group(ctx context.Context, id task.ID) (*Node, error) {
	g := s.v.gather
	if g == nil {
		return nil, nil
	}
	latest := id
	counts, err := wire.LatestGroup(ctx, g, &latest)
	if errors.Is(err, resultstore.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	n := &Node{ID: id, Group: &task.GroupProgress{Group: id, Done: counts.Done, Failed: counts.Failed, Total: counts.Size}}
	ended, err := g.Members(ctx, latest, 0, MaxMembers)
	if err != nil {
		return nil, err
	}
	size := max(counts.Size, counts.Done)
	if size > MaxMembers {
		size, s.tree.More = MaxMembers, true
	}
	for i := range size {
		var member *Node
		if i < len(ended) {
			if s.v.codec.OpenMember(&ended[i], latest, i) != nil {
				ended[i].Error = nil // sealed
			}
			member = nodeOf(&ended[i])
		} else if member, err = s.v.load(ctx, wire.MemberID(id, i)); err != nil {
			return nil, err
		}
		if member != nil {
			n.Children = append(n.Children, member)
		}
	}
	return n, nil
}

// history asks Config.History for the tasks of the workflow and adds those that the tree lacks, to
// s.known too. A task without a record gets a node with its id, name and state only. It stops when
// the tree is full, and does nothing without Config.History. Returns the errors of History and of
// the stores.
func (s *show) history(ctx context.Context) error {
	if s.v.cfg.History == nil {
		return nil
	}
	members := make(map[task.ID]bool)
	for _, n := range s.order {
		for _, c := range n.Children {
			members[c.ID] = true
		}
	}
	known, err := s.v.cfg.History(ctx, s.tree.Root, MaxTasks)
	if err != nil {
		return err
	}
	for i := range known {
		k := &known[i]
		if n := s.nodes[k.ID]; n != nil {
			n.follow(k)
			continue
		}
		if members[k.ID] {
			continue
		}
		n, err := s.v.load(ctx, k.ID)
		if err != nil {
			return err
		}
		if n == nil {
			n = &Node{ID: k.ID, Name: k.Name, State: k.State}
		}
		n.follow(k)
		if !s.add(n) {
			break
		}
		s.known = append(s.known, *k)
	}
	return nil
}

// follow changes the state of a node to started if its record is about an earlier attempt than the
// one that runs by k: most stores keep no record of a start.
func (n *Node) follow(k *Known) {
	ended := 0 // attempts of the life of the record
	switch n.State {
	case task.StateRetrying:
		ended = n.Retries + 1
	case task.StateRequeued:
	default:
		return
	}
	if k.State == task.StateStarted && (k.Life > n.Life || k.Life == n.Life && k.Attempts > ended) {
		n.State = task.StateStarted
	}
}

// nest sets Tree.Steps to the nodes of s.order that are below no other node. A member of a group is
// replaced by its own node in s.order, if it has one, which leaves the steps. A task of the history
// moves below its group, else below its parent, if the tree contains that node. No node is put
// below itself.
func (s *show) nest() {
	below := make(map[task.ID]bool)
	for _, n := range s.order {
		if n.Group == nil {
			continue
		}
		for i, c := range n.Children {
			if full := s.nodes[c.ID]; full != nil && full.ID != s.tree.Root && full.Group == nil {
				n.Children[i], below[c.ID] = full, true // its record says more than the group
			}
		}
	}
	for i := range s.known {
		k := &s.known[i]
		n := s.nodes[k.ID]
		for _, id := range []task.ID{k.Group, k.Parent} {
			if above := s.nodes[id]; above != nil && above != n && k.ID != s.tree.Root && !below[k.ID] && !s.contains(n, above) {
				above.Children = append(above.Children, n)
				below[k.ID] = true
			}
		}
	}
	s.tree.Steps = slices.DeleteFunc(s.order, func(n *Node) bool { return below[n.ID] })
}

// contains reports whether n is below tree, at any depth. A node is not below itself.
func (s *show) contains(tree, n *Node) bool {
	for _, c := range tree.Children {
		if c == n || s.contains(c, n) {
			return true
		}
	}
	return false
}
