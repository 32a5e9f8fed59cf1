package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/inspect"
)

func (a *app) workersCmd() *cobra.Command {
	var t cli.Target
	var listen time.Duration
	cmd := &cobra.Command{
		Use:   "workers",
		Short: "Show the consumers and producers that are alive",
		Long: "Workers listens for the heartbeats of consumers and producers, which come every 2 s, and asks consumers for\n" +
			"their state. It prints a line for each one: node id, role, host, queues, state, running tasks (ACTIVE), tasks\n" +
			"done since its start (PROCESSED), last heartbeat, and load and memory of the machine (0 to 1). It changes\n" +
			"nothing.\n\n" +
			"Exit status: 4 if nothing was heard of a consumer or producer.",
		Example: "  swarmiji workers\n" +
			"  swarmiji workers --listen 10s -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.workers(cmd.Context(), &t, listen) },
	}
	cmd.Flags().DurationVar(&listen, "listen", cli.ListenTime, "how long to listen for heartbeats and answers")
	cmd.Flags().IntVar(&t.Replies, "replies", 0, "stop listening after this many answers of consumers; default: listen for --listen")
	return cmd
}

func (a *app) workers(ctx context.Context, t *cli.Target, listen time.Duration) error {
	if listen <= 0 || t.Replies < 0 {
		return fmt.Errorf("%w: --listen is %v and --replies %d", cli.ErrUsage, listen, t.Replies)
	}
	return a.Inspect(ctx, cli.Inspection{Listen: listen, Replies: t.Replies}, func(ctx context.Context, api inspect.API) error {
		all, err := cli.Pages(func(cursor string) ([]inspect.Worker, string, error) {
			page, err := api.ListWorkers(ctx, inspect.WorkerQuery{Limit: inspect.MaxLimit, Cursor: cursor})
			return page.Workers, page.Next, err
		})
		if err != nil {
			return err
		}
		if len(all) == 0 {
			return cli.ErrNobody
		}
		tab := &cli.Table{Head: []string{"NODE", "ROLE", "HOST", "QUEUES", "STATE", "ACTIVE", "PROCESSED", "LOAD", "MEM", "HEARTBEAT"}}
		for i := range all {
			w := &all[i]
			state := "online"
			switch {
			case w.Offline:
				state = "offline"
			case w.Stopping:
				state = "stopping"
			}
			tab.Add(w.Node, w.Role, w.Host, w.Queues, state, w.Active, w.Processed, optional(w.Load), optional(w.Memory), w.Heartbeat)
		}
		return a.Show(all, tab)
	})
}

func optional(f *float64) string {
	if f == nil {
		return ""
	}
	return strconv.FormatFloat(*f, 'f', 2, 64)
}
