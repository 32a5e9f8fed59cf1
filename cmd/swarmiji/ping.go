package main

import (
	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/control"
)

func (a *app) pingCmd() *cobra.Command {
	var t cli.Target
	cmd := &cobra.Command{
		Use:   "ping",
		Short: "Show which consumers answer",
		Long: "Ping prints the consumers that answer, with their queues and the time on their clocks. It changes nothing.\n" +
			"Consumers answer only if their configuration enables control, and with the same keys as --control-keys, if\n" +
			"they have keys. Exit status: 1 if a consumer reports an error, 4 if no consumer answers.",
		Example: "  swarmiji ping\n" +
			"  swarmiji ping --queue reports --replies 2 -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.Order(cmd, &t, control.Command{Do: control.DoPing}, []string{"NODE", "QUEUES", "CLOCK"}, func(t *cli.Table, r *control.Reply) {
				t.Add(r.Node, r.Queues, r.At)
			})
		},
	}
	t.Flags(cmd, true)
	return cmd
}
