package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/workflow"
)

// treeOutput is the output of workflow show.
type treeOutput struct {
	ID     string       `json:"id"`
	State  task.State   `json:"state"`
	Failed *nodeOutput  `json:"failed,omitempty"`
	More   bool         `json:"more,omitempty"`
	Steps  []nodeOutput `json:"steps"`
}

// nodeOutput is the output for one task or group.
type nodeOutput struct {
	ID         string       `json:"id"`
	Name       string       `json:"name,omitempty"` // "": a group
	State      task.State   `json:"state,omitempty"`
	Retries    int          `json:"retries,omitempty"`
	Life       int          `json:"life,omitempty"`
	StartedAt  time.Time    `json:"started_at,omitzero"`
	FinishedAt time.Time    `json:"finished_at,omitzero"`
	Node       string       `json:"node,omitempty"`
	Error      string       `json:"error,omitempty"`
	Progress   *countOutput `json:"progress,omitempty"`
	Group      *countOutput `json:"group,omitempty"`
	Children   []nodeOutput `json:"children,omitempty"`
}

// countOutput is the output for the progress of a task or group.
type countOutput struct {
	Done   int    `json:"done"`
	Failed int    `json:"failed,omitempty"`
	Total  int    `json:"total"`
	Note   string `json:"note,omitempty"`
}

func (a *app) workflowShowCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "show ID",
		Short: "Show the steps of a workflow",
		Long: "Show prints the steps of a workflow that have a record, the counts of its groups with their members, and last\n" +
			"the step that failed. ID is the id of the workflow, which is that of its last step.\n\n" +
			"Exit status: 3 if nothing is known of the workflow: no step has begun, or the records have expired.",
		Example: "  swarmiji workflow show report-2026-10\n" +
			"  swarmiji workflow show report-2026-10 -o json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := task.ID(args[0]).Check(); err != nil {
				return err
			}
			sealer, err := a.Sealer()
			if err != nil {
				return err
			}
			return a.With(cmd.Context(), open.Options{}, func(ctx context.Context, s *open.Swarm) error {
				v, err := workflow.New(workflow.Config{Results: s.Results, Wire: serializer.Wire{Sealer: sealer}})
				if err != nil {
					return err
				}
				tree, err := v.Show(ctx, task.ID(args[0]))
				if err != nil {
					return err
				}
				return a.showTree(tree)
			})
		},
	}
}

func (a *app) showTree(tree *workflow.Tree) error {
	out := treeOutput{ID: string(tree.Root), State: tree.State, More: tree.More, Steps: make([]nodeOutput, len(tree.Steps))}
	t := &cli.Table{Head: []string{"STEP", "STATE", "ID", "DETAIL"}}
	for i, n := range tree.Steps {
		out.Steps[i] = outputOf(n)
		addNode(t, n, 0)
	}
	if tree.More {
		t.Add("...", "", "", "further tasks are left out")
	}
	t.Add("workflow", string(tree.State), string(tree.Root), "")
	if n := tree.Failed; n != nil {
		failed := outputOf(n)
		failed.Children = nil
		out.Failed = &failed
		t.Add("failed step", string(n.State), string(n.ID), n.Name+failed.because())
	}
	return a.Show(out, t)
}

// because returns the error of a failed step for the table.
func (o *nodeOutput) because() string {
	if o.Error == "" {
		return ""
	}
	return ": " + o.Error
}

func outputOf(n *workflow.Node) nodeOutput {
	out := nodeOutput{
		ID: string(n.ID), Name: n.Name, State: n.State, Retries: n.Retries, Life: n.Life, StartedAt: n.StartedAt, FinishedAt: n.FinishedAt, Node: n.NodeID,
	}
	if n.Error != nil {
		out.Error = n.Error.Error()
	}
	if p := n.Progress; !p.IsZero() {
		out.Progress = &countOutput{Done: p.Done, Total: p.Total, Note: p.Note}
	}
	if g := n.Group; g != nil {
		out.Group = &countOutput{Done: g.Done, Failed: g.Failed, Total: g.Total}
	}
	for _, c := range n.Children {
		out.Children = append(out.Children, outputOf(c))
	}
	return out
}

// addNode adds the rows of a node and of those below it.
func addNode(t *cli.Table, n *workflow.Node, depth int) {
	detail, name := "", n.Name
	switch p := n.Progress; {
	case n.Group != nil:
		name, detail = "group", fmt.Sprintf("%d of %d done, %d failed", n.Group.Done, n.Group.Total, n.Group.Failed)
	case n.Error != nil:
		detail = n.Error.Error()
	case !p.IsZero():
		detail = fmt.Sprintf("%d of %d %s", p.Done, p.Total, p.Note)
	}
	t.Add(indent(depth, name), string(n.State), string(n.ID), detail)
	for _, c := range n.Children {
		addNode(t, c, depth+1)
	}
}
