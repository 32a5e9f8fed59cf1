package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/inspect"
)

func (a *app) pauseCmd() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "pause [QUEUE...]",
		Short: "Stop consumers from taking new tasks",
		Long: "Pause stops consumers from taking new tasks from the named queues, or from all queues. It lasts until swarmiji\n" +
			"resume or until the consumer restarts. Running tasks continue; fetched ones go back to the queue. The command\n" +
			"prints a line for each consumer that has paused. Exit status: 1 if a consumer reports an error, 4 if no\n" +
			"consumer answers.",
		Example: "  swarmiji pause reports\n" +
			"  swarmiji pause --node host-1234-abcdef",
		RunE: func(cmd *cobra.Command, args []string) error {
			t.queues = args
			return a.steer(cmd, &t, func(ctx context.Context, api inspect.API) (inspect.Change, error) {
				return api.PauseWorkers(ctx, t.target())
			})
		},
	}
	t.flags(cmd, false)
	return cmd
}
