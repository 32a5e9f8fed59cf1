package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/inspect"
)

func (a *app) rateLimitCmd() *cobra.Command {
	var t cli.Target
	var concurrency int
	cmd := &cobra.Command{
		Use:   "rate-limit TASK [RATE]",
		Short: "Limit how often tasks of a name start",
		Long: "Rate-limit limits how often tasks of this name start, for example 10/s, 600/m or 5000/h, and with --concurrency\n" +
			"how many run at once. The limit is stored and holds for all consumers, also for those that start later. It\n" +
			"applies to all consumers together if their server keeps limits (Redis and SQL databases do), otherwise to each\n" +
			"consumer. It adds to the limit of the task's definition. Without RATE and --concurrency, or with the rate\n" +
			"\"default\", there is no stored limit any more. swarmiji queue limit does the same for a queue.\n\n" +
			"With --node, --queue, --replies or --collect it is a command to the consumers that run now, each of which\n" +
			"applies the limit alone until it restarts. There no RATE means no limit, and \"default\" restores the limit of\n" +
			"the definition. The command prints a line for each consumer that has done so. Exit status: 1 if a consumer\n" +
			"reports an error, 4 if no consumer answers.",
		Example: "  swarmiji rate-limit mail.send 10/s\n" +
			"  swarmiji rate-limit mail.send",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			l := inspect.RateLimit{Name: args[0]}
			if len(args) > 1 {
				l.Rate = args[1]
			}
			if !toLiving(cmd) && !cmd.Flags().Changed("queue") {
				return a.setLimit(cmd, nil, args[:1], l.Rate, concurrency)
			}
			if err := notStored(cmd, "concurrency"); err != nil {
				return err
			}
			a.onlyLiving()
			return a.Steer(cmd, &t, func(ctx context.Context, api inspect.API) (inspect.Change, error) {
				l.Target = t.Target()
				return api.LimitWorkers(ctx, l)
			})
		},
	}
	cmd.Flags().IntVar(&concurrency, "concurrency", 0, "how many tasks of this name run at once; default: no limit")
	t.Flags(cmd, true)
	return cmd
}
