package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/task"
)

func (a *app) workflowCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "workflow ls|show|cancel|retry",
		Short: "List, show, cancel and retry workflows",
		Long: "A workflow is named by the id of its last step, which Submit returns. Ls finds workflows in the history, show\n" +
			"prints the steps of one, cancel ends it, and retry runs its failed tasks again.",
		Example: "  swarmiji workflow ls --state failed --store sqlite:///var/lib/history.db\n" +
			"  swarmiji workflow retry report-2026-10 --queue reports",
		Args:        cobra.NoArgs,
		Annotations: map[string]string{cli.Offline: "yes"}, // only shows its help
		RunE: func(cmd *cobra.Command, _ []string) error {
			return errors.Join(cmd.Help(), fmt.Errorf("%w: workflow what? ls, show, cancel or retry", cli.ErrUsage))
		},
	}
	cmd.AddCommand(a.workflowListCmd(), a.workflowShowCmd(), a.workflowCancelCmd(), a.workflowRetryCmd())
	return cmd
}

// cancelOutput is the output of workflow cancel.
type cancelOutput struct {
	ID    string   `json:"id"`
	Nodes []string `json:"nodes"`
}

func (a *app) workflowCancelCmd() *cobra.Command {
	var within time.Duration
	cmd := &cobra.Command{
		Use:   "cancel ID",
		Short: "Cancel a workflow",
		Long: "Cancel keeps all tasks of a workflow from starting, also those that are delayed, wait for an answer or are sent\n" +
			"later, and cancels the contexts of those that run. It takes a second, in which the consumers answer, and prints\n" +
			"the consumers that obey from then on. The records of the tasks become revoked when a consumer receives them. A\n" +
			"canceled workflow cannot be retried.\n\n" +
			"Exit status: 4 if no running consumer has a list of revocations; the cancel is stored nevertheless, and\n" +
			"consumers that start later obey it.",
		Example: "  swarmiji workflow cancel report-2026-10\n" +
			"  swarmiji workflow cancel report-2026-10 --within 24h -o json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			w := inspect.WorkflowCancel{Root: task.ID(args[0])}
			if within < 0 {
				return fmt.Errorf("%w: --within is %v", cli.ErrUsage, within)
			}
			if within > 0 {
				w.Until = time.Now().Add(within)
			}
			if err := w.Root.Check(); err != nil {
				return err
			}
			return a.Inspect(cmd.Context(), cli.Inspection{}, func(ctx context.Context, api inspect.API) error {
				c, err := api.CancelWorkflow(ctx, w)
				if err != nil && !errors.Is(err, inspect.ErrNoConsumer) {
					return err
				}
				if _, unknown := api.GetWorkflow(ctx, w.Root); errors.Is(unknown, inspect.ErrNotFound) {
					a.Say("no task of workflow %s has begun, or the id is wrong; the cancel holds for tasks that come", w.Root)
				}
				var nodes []string
				for i := range c.Nodes {
					nodes = append(nodes, c.Nodes[i].Node)
				}
				t := &cli.Table{Head: []string{"WORKFLOW", "OBEYED BY"}}
				t.Add(args[0], nodes)
				return errors.Join(err, a.Show(cancelOutput{args[0], nodes}, t))
			})
		},
	}
	cmd.Flags().DurationVar(&within, "within", 0, "how long from now its tasks could start; default: as long as the server keeps the cancel, usually 7 days")
	return cmd
}

// retryOutput is the output of workflow retry.
type retryOutput struct {
	ID string `json:"id"`
	cli.Requeued
}

func (a *app) workflowRetryCmd() *cobra.Command {
	var queues []string
	cmd := &cobra.Command{
		Use:   "retry ID",
		Short: "Run the failed tasks of a workflow again",
		Long: "Retry requeues the dead letters of a workflow, in the queues of --queue. Tasks that have succeeded do not run\n" +
			"again. Steps that were skipped run, with the results that the workflow has. The members of a failed group are\n" +
			"retried together, when all members have ended.\n\n" +
			"Letters that cannot be retried stay. The reasons are printed, and the exit status is 1. It is also 1 if the\n" +
			"workflow has no dead letter in these queues, or was canceled. It is safe to repeat the command. --timeout\n" +
			"limits only the connecting.",
		Example: "  swarmiji workflow retry report-2026-10 --queue reports --queue mail\n" +
			"  swarmiji workflow retry report-2026-10 --queue reports -o json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := task.ID(args[0]).Check(); err != nil {
				return err
			}
			return a.Inspect(cmd.Context(), cli.Inspection{Endless: true}, func(ctx context.Context, api inspect.API) error {
				r, err := api.RetryWorkflow(ctx, inspect.WorkflowRetry{Root: task.ID(args[0]), Queues: queues})
				if errors.Is(err, inspect.ErrConflict) {
					return err
				}
				out, t, refused := cli.RequeuedOf(&r, "WORKFLOW", args[0])
				return errors.Join(a.Show(retryOutput{args[0], out}, t), refused, err)
			})
		},
	}
	cmd.Flags().StringSliceVar(&queues, "queue", nil, "`name` of a queue of the workflow; may be repeated; default: the queues of the broker and of running consumers")
	return cmd
}

// indent shifts a name below that of its parent.
func indent(depth int, name string) string { return strings.Repeat("  ", depth) + name }
