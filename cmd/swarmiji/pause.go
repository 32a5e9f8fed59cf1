package main

import (
	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/control"
)

func (a *app) pauseCmd() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "pause [QUEUE...]",
		Short: "Let consumers take no new tasks",
		Long: "Pause lets consumers take no new tasks from the queues, or from any, until swarmiji resume or their next start. Running\n" +
			"tasks end; what was only fetched goes back.",
		Example: "  swarmiji pause reports\n" +
			"  swarmiji pause --node host-1234-abcdef",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.order(cmd, &t, control.Command{Do: control.DoPause, Queues: args}, doneHead(), done)
		},
	}
	t.flags(cmd, false)
	return cmd
}
