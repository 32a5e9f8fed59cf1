package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/inspect"
)

func (a *app) tasksCmd() *cobra.Command {
	var t cli.Target
	cmd := &cobra.Command{
		Use:   "tasks active|reserved",
		Short: "Show the tasks that consumers run or have fetched",
		Long: "Tasks prints tasks on the consumers that answer: with active those that run, with reserved those that wait in\n" +
			"a consumer for their start. It changes nothing. Arguments are not shown.\n\n" +
			"A reserved task without SINCE was fetched ahead. One with SINCE has a worker and waits for a rate limit, for\n" +
			"fewer running tasks after scale, for its pool, or while a suspect (a task that may have ended a consumer) runs\n" +
			"alone. swarmiji queues counts running and reserved tasks as HELD, and those that wait in the broker as READY.\n\n" +
			"Exit status: 1 if a consumer reports an error, 4 if no consumer answers.",
		Example: "  swarmiji tasks active\n" +
			"  swarmiji tasks reserved --queue reports -o json",
		ValidArgs: []string{"active", "reserved"},
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := t.Check(); err != nil {
				return err
			}
			q := inspect.RunningQuery{Nodes: t.Nodes, Queues: t.Queues, Held: args[0] == "reserved"}
			return a.Inspect(cmd.Context(), cli.Inspection{Listen: t.Collect, Replies: t.Waits()}, func(ctx context.Context, api inspect.API) error {
				page, err := api.ListRunning(ctx, q)
				if len(page.Nodes) == 0 && err != nil {
					return err
				}
				tab := &cli.Table{Head: []string{"NODE", "ID", "NAME", "QUEUE", "ATTEMPT", "SINCE"}}
				for _, k := range page.Tasks {
					tab.Add(k.Node, string(k.ID), k.Name, k.Queue, k.Attempt, k.Since)
				}
				if page.More > 0 {
					a.Say("%d further tasks are not shown", page.More)
				}
				if serr := a.Show(page.Tasks, tab); serr != nil {
					return serr
				}
				return err
			})
		},
	}
	t.Flags(cmd, true)
	return cmd
}
