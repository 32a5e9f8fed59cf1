package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/inspect"
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
			return a.withEntries(cmd.Context(), store, func(ctx context.Context, api inspect.API) error {
				all, err := pages(func(cursor string) ([]inspect.Schedule, string, error) {
					page, err := api.ListSchedules(ctx, inspect.ScheduleQuery{Limit: inspect.MaxLimit, Cursor: cursor})
					return page.Schedules, page.Next, err
				})
				if err != nil {
					return err
				}
				t := &table{head: []string{"ID", "TASK", "NEXT", "STATE", "WHEN"}}
				for i := range all {
					s := &all[i]
					t.add(s.ID, s.Name, s.Next, stateOf(s), cmp.Or(s.Problem, s.Means))
				}
				if all == nil {
					all = []inspect.Schedule{}
				}
				return a.show(all, t)
			})
		},
	}
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
			if count < 0 || count > inspect.MaxLimit {
				return fmt.Errorf("%w: --count is %d, want 0 to %d", errUsage, count, inspect.MaxLimit)
			}
			return a.withEntries(cmd.Context(), store, func(ctx context.Context, api inspect.API) error {
				s, err := api.GetSchedule(ctx, inspect.ScheduleKey{ID: given[0], Runs: count, Args: args})
				if err != nil {
					return err
				}
				return a.show(&s, entryTable(&s, args))
			})
		},
	}
	cmd.Flags().BoolVar(&args, "args", false, "also show the arguments")
	cmd.Flags().IntVarP(&count, "count", "n", count, "number of next runs to show, 0 to 1000")
	return cmd
}

func entryTable(s *inspect.Schedule, args bool) *table {
	t := &table{head: []string{"ID", visible(s.ID)}}
	t.add("TASK", s.Name)
	t.add("WHEN", s.When)
	t.add("MEANS", s.Means)
	t.add("STATE", stateOf(s))
	t.add("NEXT", s.Next)
	t.add("LAST", s.Last)
	for _, more := range [][2]string{{"MISFIRE", s.Misfire}, {"OVERLAP", s.Overlap}, {"NONCE", s.Nonce}, {"PROBLEM", s.Problem}} {
		if more[1] != "" {
			t.add(more[0], more[1])
		}
	}
	if s.Carries {
		t.add("CARRIES", "what the last run left")
	}
	if args {
		t.add("ARGS", compact(s.Args))
	}
	for _, run := range s.Runs {
		t.add("RUNS", run)
	}
	return t
}
