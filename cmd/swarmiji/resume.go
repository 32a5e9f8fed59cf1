package main

import (
	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/control"
)

func (a *app) resumeCmd() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "resume [QUEUE...]",
		Short: "Let consumers take tasks again",
		Long:  "Resume ends what swarmiji pause began, for the queues, or for all.",
		Example: "  swarmiji resume reports\n" +
			"  swarmiji resume",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.order(cmd, &t, control.Command{Do: control.DoResume, Queues: args}, doneHead(), done)
		},
	}
	t.flags(cmd, false)
	return cmd
}
