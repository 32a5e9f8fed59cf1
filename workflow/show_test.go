package workflow_test

import (
	"context"
	"errors"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/workflow"
)

// step is the id of a step of the workflow "w".
func step(i int) task.ID { return task.Derive("w", "step"+strconv.Itoa(i)) }

// line describes a node and those below it.
func line(n *workflow.Node) string {
	s := n.Name + " " + string(n.State)
	if g := n.Group; g != nil {
		s = "group " + strconv.Itoa(g.Done) + "/" + strconv.Itoa(g.Total) + "/" + strconv.Itoa(g.Failed)
	}
	for _, c := range n.Children {
		s += " (" + line(c) + ")"
	}
	return s
}

func lines(nodes []*workflow.Node) (all []string) {
	for _, n := range nodes {
		all = append(all, line(n))
	}
	return all
}

func newStore(t *testing.T) *memresults.Store {
	t.Helper()
	s := memresults.New(memresults.Config{})
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

func save(t *testing.T, s resultstore.ResultStore, recs ...resultstore.Record) {
	t.Helper()
	for _, r := range recs {
		if err := s.Save(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
}

func arrive(t *testing.T, s *memresults.Store, group task.ID, index, size int, r resultstore.Record) {
	t.Helper()
	if _, err := s.Arrive(t.Context(), resultstore.Arrival{Group: group, Index: index, Size: size, Record: r, Decides: r.State != task.StateSucceeded}); err != nil {
		t.Fatal(err)
	}
}

func show(t *testing.T, c workflow.Config) *workflow.Tree {
	t.Helper()
	v, err := workflow.New(c)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := v.Show(t.Context(), "w")
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// TestRunning shows a workflow of which a member runs: chain of a step, a group of a Map, and two
// later steps.
func TestRunning(t *testing.T) {
	s := newStore(t)
	group := step(2)
	save(t, s,
		resultstore.Record{ID: step(1), Name: "list", State: task.StateSucceeded, Deliveries: 1},
		resultstore.Record{ID: wire.MemberID(group, 1), Name: "fetch", State: task.StateStarted, Deliveries: 1, Progress: task.ProgressValue{Done: 3, Total: 9}},
	)
	arrive(t, s, group, 0, 3, resultstore.Record{ID: wire.MemberID(group, 0), Name: "fetch", State: task.StateSucceeded})
	tree := show(t, workflow.Config{Results: s})
	if diff := cmp.Diff([]string{"list succeeded", "group 1/3/0 (fetch succeeded) (fetch started)"}, lines(tree.Steps)); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	if tree.State != task.StatePending || tree.Failed != nil || tree.More {
		t.Errorf("tree %+v", tree)
	}
	if p := tree.Steps[1].Children[1].Progress; p.Done != 3 || p.Total != 9 {
		t.Errorf("progress %+v", p)
	}
}

// TestFailed shows a group with two steps of their own, of which one failed, and after a retry the
// group that took its place.
func TestFailed(t *testing.T) {
	s := newStore(t)
	failure := (&task.RemoteError{Type: "x", Message: "refused"})
	a := resultstore.Record{ID: step(2), Name: "a", State: task.StateSucceeded, Deliveries: 1, NodeID: "node-1"}
	b := resultstore.Record{ID: step(3), Name: "b", State: task.StateFailed, Deliveries: 1, Error: failure}
	last := resultstore.Record{ID: "w", Name: "sum", State: task.StateFailed, Deliveries: 1, Error: failure.OfStep("b", step(3))}
	save(t, s, a, b, last)
	arrive(t, s, step(1), 0, 2, a)
	arrive(t, s, step(1), 1, 2, b)
	tree := show(t, workflow.Config{Results: s})
	if diff := cmp.Diff([]string{"group 2/2/1 (a succeeded) (b failed)", "sum failed"}, lines(tree.Steps)); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	if f := tree.Failed; tree.State != task.StateFailed || f == nil || f.ID != step(3) || f.Error.Message != "refused" {
		t.Errorf("state %s, failed step %+v", tree.State, tree.Failed)
	}
	if n := tree.Steps[0].Children[0]; n.NodeID != "node-1" {
		t.Errorf("the member lacks the fields of its record: %+v", n)
	}

	next := wire.NextGroup(step(1))
	arrive(t, s, next, 0, 2, a)
	if got := lines(show(t, workflow.Config{Results: s}).Steps); got[0] != "group 1/2/0 (a succeeded)" {
		t.Errorf("after a retry: %q", got)
	}
}

// TestHistory shows tasks that have no record, below their parents and groups.
func TestHistory(t *testing.T) {
	s := newStore(t)
	save(t, s, resultstore.Record{ID: step(1), Name: "list", State: task.StateSucceeded, Deliveries: 1})
	known := []workflow.Known{
		{ID: step(1), Name: "list", State: task.StateSucceeded},
		{ID: "side", Parent: step(1), Name: "mail", State: task.StateRetrying},
		{ID: "below", Parent: "side", Name: "log", State: task.StatePending},
		{ID: "loop", Parent: "loop", Name: "odd", State: task.StatePending},
		{ID: "w", Parent: step(1), Name: "sum", State: task.StatePending},
	}
	asked := task.ID("")
	tree := show(t, workflow.Config{Results: s, History: func(_ context.Context, root task.ID, _ int) ([]workflow.Known, error) {
		asked = root
		return known, nil
	}})
	want := []string{"list succeeded (mail retrying (log pending))", "odd pending", "sum pending"}
	if diff := cmp.Diff(want, lines(tree.Steps)); diff != "" || asked != "w" {
		t.Errorf("steps (-want +got):\n%s of %s", diff, asked)
	}
}

// TestRunningStep shows that a step is started, and not retrying or requeued, while the history
// knows that its next attempt runs.
func TestRunningStep(t *testing.T) {
	for name, c := range map[string]struct {
		record resultstore.Record
		known  workflow.Known
		want   task.State
	}{
		"second attempt runs": {
			resultstore.Record{State: task.StateRetrying}, workflow.Known{State: task.StateStarted, Attempts: 2}, task.StateStarted,
		},
		"the history knows the first only": {
			resultstore.Record{State: task.StateRetrying}, workflow.Known{State: task.StateStarted, Attempts: 1}, task.StateRetrying,
		},
		"requeued and running": {
			resultstore.Record{State: task.StateRequeued, Life: 1}, workflow.Known{State: task.StateStarted, Life: 1, Attempts: 1}, task.StateStarted,
		},
		"the history knows the earlier life only": {
			resultstore.Record{State: task.StateRequeued, Life: 1}, workflow.Known{State: task.StateStarted, Attempts: 4}, task.StateRequeued,
		},
		"requeued and waiting": {
			resultstore.Record{State: task.StateRequeued, Life: 1}, workflow.Known{State: task.StatePending, Life: 1, Attempts: 0}, task.StateRequeued,
		},
		"ended": {
			resultstore.Record{State: task.StateSucceeded}, workflow.Known{State: task.StateStarted, Attempts: 3}, task.StateSucceeded,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			c.record.ID, c.known.ID, c.record.Deliveries = step(1), step(1), 1
			save(t, s, c.record)
			tree := show(t, workflow.Config{Results: s, History: func(context.Context, task.ID, int) ([]workflow.Known, error) {
				return []workflow.Known{c.known}, nil
			}})
			if got := tree.Steps[0].State; got != c.want {
				t.Errorf("the step is %s, want %s", got, c.want)
			}
		})
	}
}

// TestLimits shows that a large group is cut, and says so.
func TestLimits(t *testing.T) {
	s := newStore(t)
	for i := range workflow.MaxMembers + 10 {
		arrive(t, s, step(1), i, workflow.MaxMembers+10, resultstore.Record{ID: wire.MemberID(step(1), i), Name: "m", State: task.StateSucceeded})
	}
	tree := show(t, workflow.Config{Results: s})
	if n := len(tree.Steps[0].Children); n != workflow.MaxMembers || !tree.More {
		t.Errorf("%d members, more: %v", n, tree.More)
	}
}

func TestShowErrors(t *testing.T) {
	s := newStore(t)
	v, err := workflow.New(workflow.Config{Results: s})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Show(t.Context(), "nothing"); !errors.Is(err, task.ErrNotFound) {
		t.Errorf("an unknown workflow: %v", err)
	}
	if _, err := v.Show(t.Context(), "a b"); !errors.Is(err, task.ErrBadID) {
		t.Errorf("a bad id: %v", err)
	}
	broken := errors.New("broken")
	v, err = workflow.New(workflow.Config{Results: s, History: func(context.Context, task.ID, int) ([]workflow.Known, error) { return nil, broken }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Show(t.Context(), "w"); !errors.Is(err, broken) {
		t.Errorf("a broken history: %v", err)
	}
	if _, err := workflow.New(workflow.Config{}); err == nil {
		t.Error("New accepts a configuration without a store")
	}
}
