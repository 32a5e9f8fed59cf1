package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/control"
)

func (a *app) shutdownCmd() *cobra.Command {
	var t target
	var kill, all bool
	cmd := &cobra.Command{
		Use:   "shutdown",
		Short: "Stop consumers",
		Long: "Shutdown stops consumers as a signal would: running tasks may end first. Which are meant has to be said: with --node,\n" +
			"--queue, or --all.",
		Example: "  swarmiji shutdown --node host-1234-abcdef\n" +
			"  swarmiji shutdown --all --kill",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !all && len(t.nodes)+len(t.queues) == 0 {
				return fmt.Errorf("%w: give --node, --queue or --all", errUsage)
			}
			return a.order(cmd, &t, control.Command{Do: control.DoShutdown, Kill: kill}, doneHead(), done)
		},
	}
	t.flags(cmd, true)
	cmd.Flags().BoolVar(&all, "all", false, "stop all consumers")
	cmd.Flags().BoolVar(&kill, "kill", false, "do not wait for running tasks; they run again elsewhere")
	return cmd
}
