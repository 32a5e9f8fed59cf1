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
		Short: "Set how many workers each consumer has for a queue",
		Long: "Scale sets the number of workers of a queue in every consumer of it, or in those that --node names, till they are\n" +
			"started anew. Tasks that run are not ended by it.",
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
