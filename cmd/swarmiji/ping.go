package main

import (
	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/control"
)

func (a *app) pingCmd() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "ping",
		Short: "Ask consumers whether they are there",
		Long:  "Ping shows the consumers that answer, their queues and the time on their clocks.",
		Example: "  swarmiji ping\n" +
			"  swarmiji ping --queue reports --replies 2 -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.order(cmd, &t, control.Command{Do: control.DoPing}, []string{"NODE", "QUEUES", "CLOCK"}, func(t *table, r *control.Reply) {
				t.add(r.Node, r.Queues, r.At)
			})
		},
	}
	t.flags(cmd, true)
	return cmd
}
