package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/inspect"
)

func (a *app) resumeCmd() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "resume [QUEUE...]",
		Short: "Let paused consumers take tasks again",
		Long: "Resume lets consumers take tasks again from the named queues, or from all queues, after swarmiji pause. The\n" +
			"command prints a line for each consumer that has resumed. Exit status: 1 if a consumer reports an error, 4 if\n" +
			"no consumer answers.",
		Example: "  swarmiji resume reports\n" +
			"  swarmiji resume",
		RunE: func(cmd *cobra.Command, args []string) error {
			t.queues = args
			return a.steer(cmd, &t, func(ctx context.Context, api inspect.API) (inspect.Change, error) {
				return api.ResumeWorkers(ctx, t.target())
			})
		},
	}
	t.flags(cmd, false)
	return cmd
}
