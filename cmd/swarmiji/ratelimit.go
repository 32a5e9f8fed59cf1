package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/inspect"
)

func (a *app) rateLimitCmd() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "rate-limit TASK [RATE]",
		Short: "Limit how often tasks of a name start in each consumer",
		Long: "Rate-limit limits how often each consumer starts tasks of this name, for example 10/s, 600/m or 5000/h. It\n" +
			"lasts until the consumer restarts. Without RATE there is no limit any more; the rate \"default\" restores the\n" +
			"limit of the task's definition. The command prints a line for each consumer that has done so. Exit status: 1\n" +
			"if a consumer reports an error, 4 if no consumer answers.",
		Example: "  swarmiji rate-limit mail.send 10/s\n" +
			"  swarmiji rate-limit mail.send",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			l := inspect.RateLimit{Name: args[0]}
			if len(args) > 1 {
				l.Rate = args[1]
			}
			return a.steer(cmd, &t, func(ctx context.Context, api inspect.API) (inspect.Change, error) {
				l.Target = t.target()
				return api.LimitWorkers(ctx, l)
			})
		},
	}
	t.flags(cmd, true)
	return cmd
}
