package main

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/inspect"
)

func (a *app) settingsCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "settings",
		Short: "Show what is paused and limited",
		Long: "Settings prints the stored pauses and limits of queues and of tasks with a name, and the breakers that have\n" +
			"tripped. All consumers obey them, also those that start later. It changes nothing. No line means that nothing\n" +
			"is paused or limited.",
		Example: "  swarmiji settings\n" +
			"  swarmiji settings -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.Inspect(cmd.Context(), cli.Inspection{}, func(ctx context.Context, api inspect.API) error {
				all := []inspect.Setting{}
				for q := (inspect.SettingsQuery{Limit: inspect.MaxLimit}); ; {
					page, err := api.ListSettings(ctx, q)
					if err != nil {
						return err
					}
					all = append(all, page.Settings...)
					if q.Cursor = page.Next; q.Cursor == "" {
						break
					}
				}
				t := &cli.Table{Head: []string{"QUEUE", "TASK", "PAUSED BY", "UNTIL", "RATE", "AT ONCE", "KEYS", "REASON"}}
				for i := range all {
					t.Add(settingRow(&all[i])...)
				}
				return a.Show(all, t)
			})
		},
	}
}

// settingRow returns the cells of a setting. The end of a pause comes before that of a breaker.
func settingRow(s *inspect.Setting) []any {
	var pause inspect.StoredPause
	var limit inspect.StoredLimit
	var reasons []string
	if b := s.Breaker; b != nil {
		pause.By, pause.Until = "breaker", b.Until
		reasons = append(reasons, b.Reason)
	}
	if s.Pause != nil {
		pause = *s.Pause
		reasons = append(reasons, pause.Reason)
	}
	if s.Limit != nil {
		limit = *s.Limit
	}
	many := ""
	if limit.Concurrency > 0 {
		many = strconv.Itoa(limit.Concurrency)
	}
	return []any{s.Queue, s.Name, pause.By, pause.Until, limit.Rate, many, boundsText(s.Bounds), cli.Cut(strings.Join(reasons, "; "))}
}
