package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/inspect"
)

func (a *app) auditCmd() *cobra.Command {
	var q inspect.AuditQuery
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show who has changed what",
		Long: "Audit prints the newest changes that were made by this program or through a dashboard, the newest first: time,\n" +
			"who made it, what was done to what, the number of changed records, and the error of a failed change. It changes\n" +
			"nothing. Changes are kept for 90 days, at most 10,000. No changes are not an error.\n\n" +
			"Who made a change is the user and the machine of this program, or the name with which a dashboard has\n" +
			"authenticated its user. Every program that can publish events can add entries.",
		Example: "  swarmiji audit\n" +
			"  swarmiji audit --limit 1000 -o csv",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.Inspect(cmd.Context(), cli.Inspection{}, func(ctx context.Context, api inspect.API) error {
				page, err := api.ListAudit(ctx, q)
				if err != nil {
					return err
				}
				t := &cli.Table{Head: []string{"AT", "WHO", "DID", "TARGET", "DONE", "ERROR"}}
				for _, e := range page.Entries {
					t.Add(e.At, e.Who, string(e.Do), cli.Cut(e.Target), e.Done, cli.Cut(e.Error))
				}
				return a.Show(page.Entries, t)
			})
		},
	}
	cmd.Flags().IntVarP(&q.Limit, "limit", "n", inspect.DefaultLimit, fmt.Sprintf("maximum number of changes, 1 to %d", inspect.MaxLimit))
	return cmd
}
