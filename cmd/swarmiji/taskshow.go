package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

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
			"Without a history it shows what the result store, the queues, the consumers and the dead letters know of the\n" +
			"task, without arguments and result.\n\n" +
			"Exit status: 3 if nothing is known of the task.",
		Example: "  swarmiji task show 0199ac31 --store sqlite:///var/lib/history.db\n" +
			"  swarmiji task show 0199ac31 -o json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if *url == "" && a.getenv("SWARMIJI_HISTORY") == "" {
				return a.showLive(cmd, &live, args[0])
			}
			ctx, cancel := a.limited(cmd.Context())
			defer cancel()
			return a.withHistory(ctx, *url, func(ctx context.Context, s open.HistoryStore) error {
				r, err := s.Get(ctx, task.ID(args[0]))
				switch {
				case errors.Is(err, history.ErrNotFound):
					return fmt.Errorf("%w: task %s is not in the history; check id and --namespace, and whether swarmiji history record ran then", errNotFound, visible(args[0]))
				case err != nil:
					return err
				case a.output == "json":
					return a.json(&r)
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
	facts, timeline := &table{head: []string{"TASK", string(r.ID)}}, &table{head: taskview.Head()}
	for _, row := range taskview.Facts(r) {
		facts.add(row[0], row[1])
	}
	for _, row := range taskview.Timeline(r) {
		timeline.add(row...)
	}
	err := a.show(nil, facts)
	_, blank := fmt.Fprintln(a.stdout)
	err = errors.Join(err, blank, a.show(nil, timeline))
	if r.Stack != "" {
		_, failed := fmt.Fprintln(a.stdout, "\n"+taskview.Stack(r))
		err = errors.Join(err, failed)
	}
	return err
}
