package schedulecmd

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/inspect"
)

// changedOutput is the output of pause, resume and rm for an entry.
type changedOutput struct {
	ID   string    `json:"id"`
	Done string    `json:"done"`
	Next time.Time `json:"next,omitzero"`
}

// change calls do for the named entries, all within --timeout, and prints the result for each.
// Before the first change it checks that all entries exist.
func (a *app) change(cmd *cobra.Command, store *storeOptions, ids []string, done string, do func(ctx context.Context, api inspect.API, id string) (inspect.Change, error)) error {
	return a.withEntries(cmd.Context(), store, func(ctx context.Context, api inspect.API) error {
		all := make([]inspect.Schedule, len(ids))
		for i, id := range ids {
			var err error
			if all[i], err = api.GetSchedule(ctx, inspect.ScheduleKey{ID: id}); err != nil {
				return err
			}
		}
		out := make([]changedOutput, 0, len(all))
		t := &cli.Table{Head: []string{"ID", "DONE", "NEXT"}}
		for i := range all {
			c, err := do(ctx, api, all[i].ID)
			if err != nil {
				return err
			}
			out = append(out, changedOutput{all[i].ID, done, c.At})
			t.Add(all[i].ID, done, c.At)
		}
		return a.Show(out, t)
	})
}

func (a *app) schedulePauseCmd(store *storeOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "pause NAME|ID...",
		Short: "Stop entries from running until they are resumed",
		Long: "Pause stops entries from running until swarmiji schedule resume. A run that has started continues. The command\n" +
			"prints a line for each entry. If one of the entries does not exist, none is paused, and the exit status is 3.",
		Example: "  swarmiji schedule pause nightly-report\n" +
			"  swarmiji schedule pause 8d1ea677 1b2c3d4e --store postgres://user:password@host/database",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return a.change(cmd, store, ids, "paused", func(ctx context.Context, api inspect.API, id string) (inspect.Change, error) {
				return api.PauseSchedule(ctx, id)
			})
		},
	}
}

func (a *app) scheduleResumeCmd(store *storeOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "resume NAME|ID...",
		Short: "Let paused entries run again",
		Long: "Resume ends the pause of entries and prints their next runs, in UTC. A recurring entry continues with its\n" +
			"first run from now on; runs missed during the pause are left out. An entry that should have run once during\n" +
			"the pause runs at once, or not at all with --misfire skip. An entry that is not paused stays as it is. If one\n" +
			"of the entries does not exist, none is resumed, and the exit status is 3.",
		Example: "  swarmiji schedule resume 8d1ea677\n" +
			"  swarmiji schedule resume 8d1ea677 -o json",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return a.change(cmd, store, ids, "resumed", func(ctx context.Context, api inspect.API, id string) (inspect.Change, error) {
				return api.ResumeSchedule(ctx, id)
			})
		},
	}
}

func (a *app) scheduleRemoveCmd(store *storeOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "rm NAME|ID...",
		Short: "Delete entries",
		Long: "Rm deletes entries for good, with the state that their runs have stored. A run that has started continues. The\n" +
			"command prints a line for each entry. If one of the entries does not exist, none is deleted, and the exit\n" +
			"status is 3.",
		Example: "  swarmiji schedule rm 8d1ea677\n" +
			"  swarmiji schedule rm 8d1ea677 -o json",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return a.change(cmd, store, ids, "removed", func(ctx context.Context, api inspect.API, id string) (inspect.Change, error) {
				return api.RemoveSchedule(ctx, id)
			})
		},
	}
}

func (a *app) scheduleRunCmd(store *storeOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "run NAME|ID",
		Short: "Run an entry once more, now",
		Long: "Run adds a copy of an entry that is due at once, also if the entry is paused. A listener runs the copy and\n" +
			"then deletes it. The entry and its times stay as they are. The command prints the id of the copy, and does not\n" +
			"wait for the run. Exit status: 3 if the entry does not exist.",
		Example: "  swarmiji schedule run 8d1ea677\n" +
			"  swarmiji schedule run 8d1ea677 -o json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return a.withEntries(cmd.Context(), store, func(ctx context.Context, api inspect.API) error {
				c, err := api.RunSchedule(ctx, inspect.EntryRun{ID: ids[0]})
				if err != nil {
					return err
				}
				t := &cli.Table{Head: []string{c.Copy}}
				t.Add("a copy of " + c.Target + " is due now")
				return a.Show(addedOutput{ID: c.Copy, New: true, Next: c.At, Echo: "now"}, t)
			})
		},
	}
}
