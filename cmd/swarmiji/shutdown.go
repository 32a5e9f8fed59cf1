package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/inspect"
)

func (a *app) shutdownCmd() *cobra.Command {
	var t cli.Target
	var kill, all bool
	cmd := &cobra.Command{
		Use:   "shutdown",
		Short: "Stop consumers",
		Long: "Shutdown stops consumers as a first signal (SIGTERM) does: they take no new tasks, let running tasks end, and\n" +
			"then end. --kill works as a second signal. The consumers must be chosen with --node, --queue or --all. The\n" +
			"command prints a line for each consumer that accepts; it does not wait for their end. Exit status: 1 if a\n" +
			"consumer reports an error, 4 if no consumer answers.",
		Example: "  swarmiji shutdown --node host-1234-abcdef\n" +
			"  swarmiji shutdown --all --kill",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !all && len(t.Nodes)+len(t.Queues) == 0 {
				return fmt.Errorf("%w: give --node, --queue or --all", cli.ErrUsage)
			}
			return a.Steer(cmd, &t, func(ctx context.Context, api inspect.API) (inspect.Change, error) {
				return api.StopWorkers(ctx, inspect.Stop{Target: t.Target(), All: all, Kill: kill})
			})
		},
	}
	t.Flags(cmd, true)
	cmd.Flags().BoolVar(&all, "all", false, "stop all consumers")
	cmd.Flags().BoolVar(&kill, "kill", false, "cancel running tasks instead of waiting for them; they run again on other consumers")
	return cmd
}
