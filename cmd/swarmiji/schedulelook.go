package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/schedule"
)

func (a *app) scheduleListCmd(store *storeOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List the entries of a schedule",
		Long: "Ls prints all entries, those that run next first: id, task, next run in UTC, state, and when they run. It\n" +
			"changes nothing. Arguments are not shown, because they may hold secrets; swarmiji schedule show --args shows\n" +
			"them.\n\n" +
			"The state is waiting, paused, running (no due time until the run has ended) or broken. A broken entry cannot\n" +
			"be read and does not run; the last column says why.",
		Example: "  swarmiji schedule ls --store redis://host:6379\n" +
			"  swarmiji schedule ls --schedule app-tasks -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withSchedule(cmd.Context(), store, nil, func(ctx context.Context, s *schedule.Schedule) error {
				all, err := items(ctx, s)
				if err != nil {
					return err
				}
				out := make([]entryOutput, len(all))
				t := &table{head: []string{"ID", "TASK", "NEXT", "STATE", "WHEN"}}
				for i := range all {
					out[i] = entry(&all[i], false)
					means := out[i].Means
					if out[i].Problem != "" {
						means = out[i].Problem
					}
					t.add(out[i].ID, out[i].Job, out[i].Next, out[i].state(), means)
				}
				return a.show(out, t)
			})
		},
	}
}

// showOutput is the output of schedule show.
type showOutput struct {
	entryOutput
	Runs []time.Time `json:"runs"`
}

func (a *app) scheduleShowCmd(store *storeOptions) *cobra.Command {
	var args bool
	count := 5
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show an entry and its next runs",
		Long: "Show prints an entry: its task, times, state and policies, and its next --count runs, in UTC. It changes\n" +
			"nothing. Arguments may hold secrets, so they are shown only with --args. Exit status: 3 if the entry does not\n" +
			"exist.",
		Example: "  swarmiji schedule show 8d1ea677\n" +
			"  swarmiji schedule show 8d1ea67747842d56fd5c06ba050885226d73bead --args -o json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, given []string) error {
			if count < 0 || count > maxNext {
				return fmt.Errorf("%w: --count is %d, want 0 to %d", errUsage, count, maxNext)
			}
			return a.withSchedule(cmd.Context(), store, nil, func(ctx context.Context, s *schedule.Schedule) error {
				i, err := item(ctx, s, given[0])
				if err != nil {
					return err
				}
				o := showOutput{entryOutput: entry(&i, args), Runs: []time.Time{}}
				if i.Problem == nil && count > 0 {
					runs, err := s.Next(ctx, i.ID, count)
					if err != nil {
						return err
					}
					for _, t := range runs {
						o.Runs = append(o.Runs, t.UTC())
					}
				}
				return a.show(o, o.table(args))
			})
		},
	}
	cmd.Flags().BoolVar(&args, "args", false, "also show the arguments")
	cmd.Flags().IntVarP(&count, "count", "n", count, "number of next runs to show, 0 to 10000")
	return cmd
}

func (o *showOutput) table(args bool) *table {
	t := &table{head: []string{"ID", visible(o.ID)}}
	t.add("TASK", o.Job)
	t.add("WHEN", o.When)
	t.add("MEANS", o.Means)
	t.add("STATE", o.state())
	t.add("NEXT", o.Next)
	t.add("LAST", o.Last)
	for _, more := range [][2]string{{"MISFIRE", o.Misfire}, {"OVERLAP", o.Overlap}, {"NONCE", o.Nonce}, {"PROBLEM", o.Problem}} {
		if more[1] != "" {
			t.add(more[0], more[1])
		}
	}
	if o.State {
		t.add("CARRIES", "what the last run left")
	}
	if args {
		t.add("ARGS", compact(o.Args))
	}
	for _, run := range o.Runs {
		t.add("RUNS", run)
	}
	return t
}
