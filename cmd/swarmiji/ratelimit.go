package main

import (
	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/control"
)

func (a *app) rateLimitCmd() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "rate-limit TASK [RATE]",
		Short: "Limit how often tasks of a name start in each consumer",
		Long: "Rate-limit lets each consumer start tasks of a name no more often than the rate (10/s, 600/m, 5000/h), till it is\n" +
			"started anew. Without a rate the limit is lifted; \"default\" is the task's own again.",
		Example: "  swarmiji rate-limit mail.send 10/s\n" +
			"  swarmiji rate-limit mail.send",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := control.Command{Do: control.DoRateLimit, Task: args[0]}
			if len(args) > 1 {
				c.Rate = args[1]
			}
			return a.order(cmd, &t, c, doneHead(), done)
		},
	}
	t.flags(cmd, true)
	return cmd
}
