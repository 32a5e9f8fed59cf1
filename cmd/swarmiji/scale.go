package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/inspect"
)

func (a *app) scaleCmd() *cobra.Command {
	var t cli.Target
	cmd := &cobra.Command{
		Use:   "scale QUEUE WORKERS",
		Short: "Set how many workers consumers have for a queue",
		Long: "Scale sets the number of workers (tasks that run at the same time) for a queue in each consumer of the queue,\n" +
			"or in those of --node. It lasts until the consumer restarts. Running tasks continue, also if their number is\n" +
			"then too high. The command prints a line for each consumer that has done so. Exit status: 1 if a consumer\n" +
			"reports an error, 4 if no consumer answers.",
		Example: "  swarmiji scale reports 8\n" +
			"  swarmiji scale reports 2 --node host-1234-abcdef",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := strconv.Atoi(args[1])
			if err != nil {
				return fmt.Errorf("%w: %q is no number of workers", cli.ErrUsage, args[1])
			}
			t.Queues = args[:1]
			return a.Steer(cmd, &t, func(ctx context.Context, api inspect.API) (inspect.Change, error) {
				return api.ScaleWorkers(ctx, inspect.Scale{Queue: args[0], Workers: n, Nodes: t.Nodes})
			})
		},
	}
	t.Flags(cmd, false)
	return cmd
}
