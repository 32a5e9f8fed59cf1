package main

import (
	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/control"
)

func (a *app) statsCmd() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Show what consumers do",
		Long:  "Stats shows for each consumer and queue how many workers it has, what it holds, and what it has done since its start.",
		Example: "  swarmiji stats\n" +
			"  swarmiji stats --node host-1234-abcdef -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			head := []string{"NODE", "QUEUE", "WORKERS", "ACTIVE", "RESERVED", "PREFETCH", "PAUSED", "SUCCEEDED*", "FAILED*", "RETRIED*"}
			return a.order(cmd, &t, control.Command{Do: control.DoStats}, head, func(t *table, r *control.Reply) {
				if r.Stats == nil {
					return
				}
				for _, q := range r.Stats.Queues {
					n := r.Stats.Totals // of the node, not of the queue
					t.add(r.Node, q.Name, q.Workers, q.Active, q.Reserved, q.Prefetch, q.Paused, n["succeeded"], n["failed"], n["retried"])
				}
			})
		},
	}
	t.flags(cmd, true)
	cmd.Long += "\nColumns with a star are about the whole node."
	return cmd
}
