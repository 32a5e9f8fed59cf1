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
		Long: "Tasks shows what runs (active), or what waits in consumers before it starts (reserved): what they have fetched ahead, which\n" +
			"has no SINCE, and what a worker has taken that has to wait, for its rate, after a scale to fewer workers, for the pool,\n" +
			"or while a suspect runs alone. Arguments are not shown. swarmiji queues counts all that consumers hold as HELD, and what\n" +
			"waits in the broker as READY.",
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
