package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/inspect"
)

func (a *app) taskRunCmd(history *string) *cobra.Command {
	var s search
	var now bool
	cmd := &cobra.Command{
		Use:   "run ID [JSON|-]",
		Short: "Run a task again, with the same or with edited arguments",
		Long: "Run submits a copy of a task under a new id, which it prints. The copy has the name, the options and the\n" +
			"headers of the task, starts at once, and belongs to no workflow. The task itself stays as it is. Without JSON\n" +
			"the arguments are the same, byte for byte; \"-\" reads edited ones from the standard input.\n\n" +
			"It needs the message of the task: a dead letter, a task that still waits, or one whose message the history has\n" +
			"kept (events.Report.KeepArguments). Sealed tasks and tasks with conditions do not run again.\n\n" +
			"With --now the task itself starts at once, if it is delayed or waits for another attempt. Not on RabbitMQ.\n\n" +
			"Exit status: 3 if nothing is known of the task, 1 if its message is gone or, with --now, is not delayed.",
		Example: "  swarmiji task run report-2026-10\n" +
			"  swarmiji task run report-2026-10 '{\"month\": \"2026-09\"}' --queue reports",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var edited json.RawMessage
			var err error
			if len(args) > 1 && now {
				return fmt.Errorf("%w: --now runs the task itself, with its own arguments", cli.ErrUsage)
			}
			if len(args) > 1 {
				if edited, err = a.Arguments(args[1:]); err != nil {
					return err
				}
			}
			if s.history, err = a.KnownHistory(*history); err != nil {
				return err
			}
			return a.find(cmd, &s, args[0], func(ctx context.Context, api inspect.API, k inspect.TaskKey) error {
				c, err := api.RunTask(ctx, inspect.TaskRun{ID: k.ID, Queues: k.Queues, Args: edited, Now: now})
				if err != nil {
					return err
				}
				return a.Show(&c, &cli.Table{Head: []string{cmp.Or(c.Copy, c.Target)}})
			})
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringSliceVar(&s.Queues, "queue", nil, "`name` of a queue to search; may be repeated; default: all known queues")
	f.BoolVar(&now, "now", false, "start the delayed task itself at once, instead of a copy")
	s.Listen(cmd)
	return cmd
}
