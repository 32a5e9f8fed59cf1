package main

import (
	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/control"
)

func (a *app) statsCmd() *cobra.Command {
	var t cli.Target
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Show workers and totals of consumers",
		Long: "Stats prints for each consumer that answers, and each of its queues: the number of workers, running (ACTIVE)\n" +
			"and fetched (RESERVED) tasks, how many it fetches ahead (PREFETCH), and whether the queue is paused. It\n" +
			"changes nothing. Exit status: 1 if a consumer reports an error, 4 if no consumer answers.",
		Example: "  swarmiji stats\n" +
			"  swarmiji stats --node host-1234-abcdef -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			head := []string{"NODE", "QUEUE", "WORKERS", "ACTIVE", "RESERVED", "PREFETCH", "PAUSED", "SUCCEEDED*", "FAILED*", "RETRIED*"}
			return a.Order(cmd, &t, control.Command{Do: control.DoStats}, head, func(t *cli.Table, r *control.Reply) {
				if r.Stats == nil {
					return
				}
				for _, q := range r.Stats.Queues {
					n := r.Stats.Totals // of the node, not of the queue
					t.Add(r.Node, q.Name, q.Workers, q.Active, q.Reserved, q.Prefetch, q.Paused, n["succeeded"], n["failed"], n["retried"])
				}
			})
		},
	}
	t.Flags(cmd, true)
	cmd.Long += "\n\nColumns with a star count the attempts in all queues of the consumer since its start."
	return cmd
}
