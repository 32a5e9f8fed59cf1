package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/schedule"
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
			return a.withSchedule(cmd.Context(), store, nil, func(ctx context.Context, s *schedule.Schedule) error {
				all, err := items(ctx, s)
				if err != nil {
					return err
				}
				out := make([]entryOutput, len(all))
				t := &table{head: []string{"ID", "TASK", "NAME", "GROUP", "LAST", "NEXT", "STATE", "WHEN"}}
				for i := range all {
					out[i] = entry(&all[i], false)
					last, ok, err := s.LastRun(ctx, &all[i])
					if err != nil {
						return err
					}
					if ok {
						out[i].LastRun = ran(&last)
					}
					means := out[i].Means
					if out[i].Problem != "" {
						means = out[i].Problem
					}
					t.add(out[i].ID, out[i].Job, out[i].Name, out[i].Group, out[i].LastRun.text(), out[i].Next, out[i].state(), means)
				}
				return a.show(out, t)
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

// showOutput is the output of schedule show.
type showOutput struct {
	entryOutput
	Runs []time.Time  `json:"runs"`
	Ran  []*runOutput `json:"ran"`
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
			if count < 0 || count > maxNext {
				return fmt.Errorf("%w: --count is %d, want 0 to %d", errUsage, count, maxNext)
			}
			return a.withSchedule(cmd.Context(), store, nil, func(ctx context.Context, s *schedule.Schedule) error {
				i, err := item(ctx, s, given[0])
				if err != nil {
					return err
				}
				o := showOutput{entryOutput: entry(&i, args), Runs: []time.Time{}, Ran: []*runOutput{}}
				last, err := s.Runs(ctx, i.ID)
				if err != nil {
					return err
				}
				for n := range last {
					o.Ran = append(o.Ran, ran(&last[n]))
				}
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
	resultsFlag(cmd, store)
	cmd.Flags().BoolVar(&args, "args", false, "also show the arguments")
	cmd.Flags().IntVarP(&count, "count", "n", count, "number of next runs to show, 0 to 10000")
	return cmd
}

func (o *showOutput) table(args bool) *table {
	t := &table{head: []string{"ID", visible(o.ID)}}
	for _, more := range [][2]string{{"NAME", o.Name}, {"GROUP", o.Group}} {
		if more[1] != "" {
			t.add(more[0], more[1])
		}
	}
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
	for _, run := range o.Ran {
		t.add("RAN", strings.TrimSpace(run.text()+" "+run.Error))
	}
	for _, run := range o.Runs {
		t.add("RUNS", run)
	}
	return t
}
