package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/control"
)

func (a *app) scaleCmd() *cobra.Command {
	var t target
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
				return fmt.Errorf("%w: %q is no number of workers", errUsage, args[1])
			}
			return a.order(cmd, &t, control.Command{Do: control.DoScale, Queues: args[:1], Workers: n}, doneHead(), done)
		},
	}
	t.flags(cmd, false)
	return cmd
}
