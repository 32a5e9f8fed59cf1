package inspect

import (
	"context"
	"slices"
	"strings"

	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/workflow"
)

// WorkflowStates returns the states of a [WorkflowSummary].
func WorkflowStates() []State {
	states := history.WorkflowStates()
	all := make([]State, len(states))
	for i, s := range states {
		all[i] = stateOf(s)
	}
	return all
}

// ListWorkflows implements [Workflows].
func (l *Local) ListWorkflows(ctx context.Context, q WorkflowQuery) (WorkflowPage, error) {
	page := WorkflowPage{Workflows: []WorkflowSummary{}}
	if l.cfg.History == nil {
		return page, missing("the list of workflows", needHistory)
	}
	ask := history.WorkflowQuery{Limit: q.Limit, After: q.Cursor}
	if q.State != "" {
		i := slices.Index(WorkflowStates(), q.State)
		if i < 0 {
			return page, errorf(CodeInvalid, "%q is no state of a workflow, want one of %v", q.State, WorkflowStates())
		}
		ask.State = history.WorkflowStates()[i]
	}
	found, err := history.Workflows(ctx, l.cfg.History, ask)
	page.Next = found.Next
	for _, w := range found.Workflows {
		page.Workflows = append(page.Workflows, WorkflowSummary{
			Root: w.Root, Name: w.Name, State: stateOf(w.State), Tasks: w.Tasks, Succeeded: w.Succeeded, Failed: w.Failed, Skipped: w.Skipped,
			Running: w.Running, Waiting: w.Waiting, More: w.More, Began: utc(w.Began), Changed: utc(w.Changed),
		})
	}
	return page, wrapped(err)
}

// GetWorkflow implements [Workflows].
func (l *Local) GetWorkflow(ctx context.Context, root task.ID) (Workflow, error) {
	if l.cfg.Results == nil || resultstore.RepliesOnly(l.cfg.Results) {
		return Workflow{}, missing("workflows", "set inspect.Config.Results to a store that keeps records; the URL of the broker names one with results=")
	}
	v, err := workflow.New(workflow.Config{Results: l.cfg.Results, Stores: l.cfg.Stores, Wire: l.cfg.Wire, History: l.knownSteps()})
	if err != nil {
		return Workflow{}, wrapped(err)
	}
	tree, err := v.Show(ctx, root)
	if err != nil {
		return Workflow{}, wrapped(err)
	}
	w := Workflow{Root: tree.Root, State: tree.State, Steps: []WorkflowStep{}, More: tree.More}
	if tree.Failed != nil {
		failed := stepOf(tree.Failed, 0)
		w.Failed = &failed
	}
	w.add(tree.Steps, 0)
	return w, nil
}

// add appends steps and the steps below them.
func (w *Workflow) add(nodes []*workflow.Node, depth int) {
	for _, n := range nodes {
		if n == nil {
			continue
		}
		w.Steps = append(w.Steps, stepOf(n, depth))
		w.add(n.Children, depth+1)
	}
}

// stepOf describes a task or a group.
func stepOf(n *workflow.Node, depth int) WorkflowStep {
	s := WorkflowStep{
		ID: n.ID, Depth: depth, Name: n.Name, State: n.State, Attempt: n.Retries + 1, Life: n.Life, Started: utc(n.StartedAt), Ended: utc(n.FinishedAt), Node: n.NodeID,
	}
	if n.Error != nil {
		s.Error = n.Error.Error()
	}
	if p := n.Progress; !p.IsZero() {
		s.Progress = &Progress{Done: int64(p.Done), Total: int64(p.Total), Note: p.Note, At: utc(p.At)}
	}
	if g := n.Group; g != nil {
		s.Attempt, s.Members = 0, &Members{Done: g.Done, Failed: g.Failed, Total: g.Total}
	}
	return s
}

// CancelWorkflow implements [Workflows].
func (l *Local) CancelWorkflow(ctx context.Context, w WorkflowCancel) (Change, error) {
	c := Change{Do: DoCancelWorkflow, Target: string(w.Root)}
	if err := w.Root.Check(); err != nil {
		return c, wrapped(err)
	}
	r, err := l.revoker(nil)
	if err != nil {
		return c, err
	}
	return l.change(ctx, c, w, func(c *Change) error {
		nodes, err := r.Cancel(ctx, revoke.Options{Until: w.Until}, w.Root)
		for _, node := range nodes {
			c.Nodes = append(c.Nodes, NodeAnswer{Node: node})
		}
		if err == nil || CodeOf(err) == CodeNoConsumer {
			c.Done, c.Outcome = 1, string(revoke.Noted)
		}
		return err
	})
}

// RetryWorkflow implements [Workflows].
func (l *Local) RetryWorkflow(ctx context.Context, r WorkflowRetry) (Change, error) {
	c := Change{Do: DoRetryWorkflow, Target: string(r.Root)}
	if _, err := l.deadLetters(); err != nil {
		return c, err
	}
	if err := r.Root.Check(); err != nil {
		return c, wrapped(err)
	}
	if len(r.Queues) == 0 {
		asked, err := l.consumers(ctx)
		if err != nil {
			return c, err
		}
		if r.Queues, err = l.existing(ctx, asked); err != nil {
			return c, wrapped(err)
		}
	}
	return l.change(ctx, c, map[string]string{"queues": strings.Join(r.Queues, ",")}, func(c *Change) error {
		letters, end, err := l.requeuer(ctx)
		if err != nil {
			return err
		}
		defer end()
		report, err := letters.Retry(ctx, r.Root, r.Queues...)
		c.requeued(&report)
		return err
	})
}
