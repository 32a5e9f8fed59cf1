package schedulecmd

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/inspect"
)

func (a *app) scheduleListCmd(store *storeOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the entries of a schedule",
		Long: "Ls prints all entries, those that run next first: id, task, name, group, last and next run in UTC, state, and\n" +
			"when they run. It changes nothing. Arguments are not shown, because they may hold secrets; swarmiji schedule\n" +
			"show --args shows them.\n\n" +
			"Entries with a name have a last run, and with --results its state, such as succeeded or failed.\n\n" +
			"The state is waiting, paused, running (no due time until the run has ended) or broken. A broken entry cannot\n" +
			"be read and does not run; the last column says why.",
		Example: "  swarmiji schedule ls --store redis://host:6379\n" +
			"  swarmiji schedule ls --schedule app-tasks -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withEntries(cmd.Context(), store, func(ctx context.Context, api inspect.API) error {
				all, err := cli.Pages(func(cursor string) ([]inspect.Schedule, string, error) {
					page, err := api.ListSchedules(ctx, inspect.ScheduleQuery{Limit: inspect.MaxLimit, Cursor: cursor})
					return page.Schedules, page.Next, err
				})
				if err != nil {
					return err
				}
				t := &cli.Table{Head: []string{"ID", "TASK", "NAME", "GROUP", "LAST", "NEXT", "STATE", "WHEN"}}
				for i := range all {
					s := &all[i]
					t.Add(s.ID, s.Task, s.Name, s.Group, ran(s.LastRun), s.Next, entryState(s), cmp.Or(s.Problem, s.Means))
				}
				if all == nil {
					all = []inspect.Schedule{}
				}
				return a.Show(all, t)
			})
		},
	}
	resultsFlag(cmd, store)
	return cmd
}

// resultsFlag adds the flag --results.
func resultsFlag(cmd *cobra.Command, store *storeOptions) {
	cmd.Flags().StringVar(&store.results, "results", "", "`URL` of the result store of the consumers, or of listeners that run tasks in place; default: none")
}

func (a *app) scheduleShowCmd(store *storeOptions) *cobra.Command {
	var args bool
	count := 5
	cmd := &cobra.Command{
		Use:   "show NAME|ID",
		Short: "Show an entry and its last and next runs",
		Long: "Show prints an entry: its task, times, state and policies, its last 5 runs and its next --count runs, in UTC. It\n" +
			"changes nothing. Entries with a name have last runs; with --results each has its state. Arguments may hold\n" +
			"secrets, so they are shown only with --args. Exit status: 3 if the entry does not exist.",
		Example: "  swarmiji schedule show 8d1ea677\n" +
			"  swarmiji schedule show 8d1ea67747842d56fd5c06ba050885226d73bead --args -o json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, given []string) error {
			if count < 0 || count > inspect.MaxLimit {
				return fmt.Errorf("%w: --count is %d, want 0 to %d", cli.ErrUsage, count, inspect.MaxLimit)
			}
			return a.withEntries(cmd.Context(), store, func(ctx context.Context, api inspect.API) error {
				s, err := api.GetSchedule(ctx, inspect.ScheduleKey{ID: given[0], Runs: count, Args: args})
				if err != nil {
					return err
				}
				return a.Show(&s, entryTable(&s, args))
			})
		},
	}
	resultsFlag(cmd, store)
	cmd.Flags().BoolVar(&args, "args", false, "also show the arguments")
	cmd.Flags().IntVarP(&count, "count", "n", count, "number of next runs to show, 0 to 1000")
	return cmd
}

// ran formats one of the last runs. It returns "" for nil.
func ran(r *inspect.ScheduleRun) string {
	if r == nil {
		return ""
	}
	return strings.TrimSpace(r.Due.Format("2006-01-02 15:04:05Z") + " " + string(r.State))
}

func entryTable(s *inspect.Schedule, args bool) *cli.Table {
	t := &cli.Table{Head: []string{"ID", cli.Visible(s.ID)}}
	for _, more := range [][2]string{{"NAME", s.Name}, {"GROUP", s.Group}} {
		if more[1] != "" {
			t.Add(more[0], more[1])
		}
	}
	t.Add("TASK", s.Task)
	t.Add("WHEN", s.When)
	t.Add("MEANS", s.Means)
	t.Add("STATE", entryState(s))
	t.Add("NEXT", s.Next)
	t.Add("LAST", s.Last)
	for _, more := range [][2]string{{"MISFIRE", s.Misfire}, {"OVERLAP", s.Overlap}, {"NONCE", s.Nonce}, {"PROBLEM", s.Problem}} {
		if more[1] != "" {
			t.Add(more[0], more[1])
		}
	}
	if s.Carries {
		t.Add("CARRIES", "what the last run left")
	}
	if args {
		t.Add("ARGS", cli.Compact(s.Args))
	}
	for i := range s.Ran {
		t.Add("RAN", strings.TrimSpace(ran(&s.Ran[i])+" "+s.Ran[i].Error))
	}
	for _, run := range s.Runs {
		t.Add("RUNS", run)
	}
	return t
}
