package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/task"
)

func (a *app) workflowShowCmd() *cobra.Command {
	var history string
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show the steps of a workflow",
		Long: "Show prints the steps of a workflow that have a record, the counts of its groups with their members, and last\n" +
			"the step that failed. ID is the id of the workflow, which is that of its last step. With a history it also\n" +
			"shows tasks whose records have expired.\n\n" +
			"Exit status: 3 if nothing is known of the workflow: no step has begun, or the records have expired.",
		Example: "  swarmiji workflow show report-2026-10\n" +
			"  swarmiji workflow show report-2026-10 -o json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := task.ID(args[0]).Check(); err != nil {
				return err
			}
			url, err := a.KnownHistory(history)
			if err != nil {
				return err
			}
			return a.Inspect(cmd.Context(), cli.Inspection{History: url}, func(ctx context.Context, api inspect.API) error {
				w, err := api.GetWorkflow(ctx, task.ID(args[0]))
				if err != nil {
					return err
				}
				return a.Show(&w, workflowTable(&w))
			})
		},
	}
	cli.HistoryFlag(cmd, &history)
	return cmd
}

// workflowTable returns the rows of the steps of w, of w itself and of the step that failed.
func workflowTable(w *inspect.Workflow) *cli.Table {
	t := &cli.Table{Head: []string{"STEP", "STATE", "ID", "DETAIL"}}
	for i := range w.Steps {
		s := &w.Steps[i]
		name, detail := s.Name, s.Error
		switch p := s.Progress; {
		case s.Members != nil:
			name, detail = "group", fmt.Sprintf("%d of %d done, %d failed", s.Members.Done, s.Members.Total, s.Members.Failed)
		case detail == "" && p != nil:
			detail = fmt.Sprintf("%d of %d %s", p.Done, p.Total, p.Note)
		}
		t.Add(indent(s.Depth, name), string(s.State), string(s.ID), detail)
	}
	if w.More {
		t.Add("...", "", "", "further tasks are left out")
	}
	t.Add("workflow", string(w.State), string(w.Root), "")
	if s := w.Failed; s != nil {
		detail := s.Name
		if s.Error != "" {
			detail += ": " + s.Error
		}
		t.Add("failed step", string(s.State), string(s.ID), detail)
	}
	return t
}
