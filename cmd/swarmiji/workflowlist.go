package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/inspect"
)

func (a *app) workflowListCmd() *cobra.Command {
	var url, state string
	var q inspect.WorkflowQuery
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List workflows",
		Long: "Ls prints the workflows of the history, those whose tasks changed last first, with the numbers of their tasks. A\n" +
			"number of tasks with a + is that of the 200 newest. STATE is that of the last step if it has ended, otherwise\n" +
			"running or waiting if a task is. It prints at most --limit workflows. If there are more, a line on the standard\n" +
			"error says with which --after to continue. It changes nothing and needs no broker; --store names the database\n" +
			"of the history, which swarmiji history record writes.",
		Example: "  swarmiji workflow ls --state failed --store sqlite:///var/lib/history.db\n" +
			"  swarmiji workflow ls -n 5 -o json",
		Args:        cobra.NoArgs,
		Annotations: map[string]string{cli.Offline: "yes"}, // no broker
		RunE: func(cmd *cobra.Command, _ []string) error {
			if q.Limit < 1 || q.Limit > inspect.DefaultLimit {
				return fmt.Errorf("%w: --limit is %d, want 1 to %d", cli.ErrUsage, q.Limit, inspect.DefaultLimit)
			}
			q.State = inspect.State(state)
			return a.withTasks(cmd, url, func(ctx context.Context, api inspect.API) error { return a.workflowList(ctx, api, q) })
		},
	}
	cli.HistoryFlag(cmd, &url)
	states := make([]string, 0, len(inspect.WorkflowStates()))
	for _, s := range inspect.WorkflowStates() {
		states = append(states, string(s))
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&state, "state", "", "only those in this state: "+strings.Join(states, ", "))
	f.IntVarP(&q.Limit, "limit", "n", 20, fmt.Sprintf("maximum number of workflows, 1 to %d", inspect.DefaultLimit))
	f.StringVar(&q.Cursor, "after", "", "continue behind this `cursor`, from the output of the page before")
	return cmd
}

// workflowList prints a page of workflows.
func (a *app) workflowList(ctx context.Context, api inspect.API, q inspect.WorkflowQuery) error {
	p, err := api.ListWorkflows(ctx, q)
	if err != nil {
		return err
	}
	t := &cli.Table{Head: []string{"WORKFLOW", "LAST STEP", "STATE", "TASKS", "SUCCEEDED", "RUNNING", "WAITING", "FAILED", "SKIPPED", "BEGAN", "CHANGED"}}
	for i := range p.Workflows {
		w := &p.Workflows[i]
		tasks := fmt.Sprint(w.Tasks)
		if w.More {
			tasks += "+"
		}
		t.Add(string(w.Root), w.Name, string(w.State), tasks, w.Succeeded, w.Running, w.Waiting, w.Failed, w.Skipped, w.Began, w.Changed)
	}
	if err := a.Show(p, t); err != nil || a.Output == "json" || p.Next == "" {
		return err
	}
	a.Say("there may be more: --after %s", p.Next)
	return nil
}
