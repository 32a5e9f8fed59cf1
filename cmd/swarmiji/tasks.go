package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/control"
)

func (a *app) tasksCmd() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "tasks active|reserved",
		Short: "Show the tasks that consumers have",
		Long: "Tasks shows what runs (active), or what a worker has taken that has to wait before it starts: for its rate, after a scale\n" +
			"to fewer workers, for the pool, or while a suspect runs alone (reserved). Arguments are not shown. What a consumer has\n" +
			"fetched ahead, and no worker has taken yet, is in neither: swarmiji queues counts it, with all that is held, as HELD, and\n" +
			"what waits in the broker as READY.",
		Example: "  swarmiji tasks active\n" +
			"  swarmiji tasks reserved --queue reports -o json",
		ValidArgs: []string{"active", "reserved"},
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := control.Command{Do: control.DoActive}
			if args[0] == "reserved" {
				c.Do = control.DoReserved
			}
			return a.order(cmd, &t, c, []string{"NODE", "ID", "NAME", "QUEUE", "ATTEMPT", "SINCE"}, func(t *table, r *control.Reply) {
				for _, k := range r.Tasks {
					t.add(r.Node, string(k.ID), k.Name, k.Queue, k.Attempt, k.Since)
				}
				if r.More > 0 {
					t.add(r.Node, fmt.Sprintf("and %d more", r.More))
				}
			})
		},
	}
	t.flags(cmd, true)
	return cmd
}
