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

// show is one call of Show.
type show struct {
	v     *Viewer
	tree  *Tree
	order []*Node // all nodes, in the order of the tree
	nodes map[task.ID]*Node
	known []Known
}

// add adds a node. It returns false if the tree is full.
func (s *show) add(n *Node) bool {
	if len(s.order) >= MaxTasks {
		s.tree.More = true
		return false
	}
	s.order, s.nodes[n.ID] = append(s.order, n), n
	return true
}

// steps adds the steps and groups whose ids derive from the root, and then the last step.
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

// load returns the node of a task by its record, or nil if no store has one.
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

func nodeOf(rec *resultstore.Record) *Node {
	return &Node{
		ID: rec.ID, Name: rec.Name, State: rec.State, Retries: rec.Retries, Life: rec.Life, StartedAt: rec.StartedAt, FinishedAt: rec.FinishedAt,
		NodeID: rec.NodeID, Error: rec.Error, Progress: rec.Progress,
	}
}

// group returns the node of a group with its known members, or nil if the gatherer does not know
// the group.
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

// history adds the tasks that only a history knows.
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
		if s.nodes[k.ID] != nil || members[k.ID] {
			continue
		}
		n, err := s.v.load(ctx, k.ID)
		if err != nil {
			return err
		}
		if n == nil {
			n = &Node{ID: k.ID, Name: k.Name, State: k.State}
		}
		if !s.add(n) {
			break
		}
		s.known = append(s.known, *k)
	}
	return nil
}

// nest moves the members of groups below their groups, and the tasks of the history below their
// groups or parents. The others are the steps of the tree.
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

// contains reports whether n is below the task of the tree.
func (s *show) contains(tree, n *Node) bool {
	for _, c := range tree.Children {
		if c == n || s.contains(c, n) {
			return true
		}
	}
	return false
}
