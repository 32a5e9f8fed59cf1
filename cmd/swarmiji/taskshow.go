package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/taskview"
	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/task"
)

func (a *app) taskShowCmd(url *string) *cobra.Command {
	var live search
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show what happened to a task",
		Long: "Show prints what the events told about a task, and its timeline: when it was sent, received and started, each\n" +
			"failed attempt with its error, and its end. Times are by the clocks of the nodes. Arguments and result are\n" +
			"shown as far as the programs allow it (events.Report). It changes nothing.\n\n" +
			"Without a history, and for a task that is not in it, it shows what the result store, the queues, the consumers\n" +
			"and the dead letters know of the task, without arguments and result.\n\n" +
			"Exit status: 3 if nothing is known of the task.",
		Example: "  swarmiji task show 0199ac31 --store sqlite:///var/lib/history.db\n" +
			"  swarmiji task show 0199ac31 -o json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.remote(cmd, *url) || *url == "" && a.Getenv("SWARMIJI_HISTORY") == "" {
				return a.showLive(cmd, &live, args[0])
			}
			ctx, cancel := a.Limited(cmd.Context())
			defer cancel()
			return a.WithHistory(ctx, *url, false, func(ctx context.Context, s open.HistoryStore) error {
				r, err := s.Get(ctx, task.ID(args[0]))
				switch {
				case errors.Is(err, history.ErrNotFound) && a.Broker != "":
					return a.showLive(cmd, &live, args[0])
				case errors.Is(err, history.ErrNotFound):
					return fmt.Errorf("%w: task %s is not in the history; check id and --namespace, and whether swarmiji history record ran then", cli.ErrNotFound, cli.Visible(args[0]))
				case err != nil:
					return err
				case a.Output == "json":
					return a.JSON(&r)
				}
				return a.showTask(&r)
			})
		},
	}
	live.flags(cmd)
	return cmd
}

// showTask prints a record, its timeline and the stack of its last error.
func (a *app) showTask(r *history.Record) error {
	facts, timeline := &cli.Table{Head: []string{"TASK", string(r.ID)}}, &cli.Table{Head: taskview.Head()}
	for _, row := range taskview.Facts(r) {
		facts.Add(row[0], row[1])
	}
	for _, row := range taskview.Timeline(r) {
		timeline.Add(row...)
	}
	err := a.Show(nil, facts)
	_, blank := fmt.Fprintln(a.Stdout)
	err = errors.Join(err, blank, a.Show(nil, timeline))
	if r.Stack != "" {
		_, failed := fmt.Fprintln(a.Stdout, "\n"+taskview.Stack(r))
		err = errors.Join(err, failed)
	}
	return err
}
