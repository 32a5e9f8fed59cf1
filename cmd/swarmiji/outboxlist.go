package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/open"
)

// outboxListOutput is the output of outbox list for a message.
type outboxListOutput struct {
	ID         string    `json:"id"`
	Generation int       `json:"generation"`
	Queue      string    `json:"queue"`
	Key        string    `json:"key,omitempty"`
	At         time.Time `json:"at"`
	Failures   int       `json:"failures"`
	Next       time.Time `json:"next,omitzero"`
	Reason     string    `json:"reason,omitempty"`
}

func (a *app) outboxListCmd(url *string) *cobra.Command {
	var limit int
	var failing bool
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the waiting messages of an outbox",
		Long: "List prints the messages that wait to be sent, the oldest first: task id, queue, order key, failed attempts,\n" +
			"when the next attempt is due, and the reason of the last failure. With --failing it prints only messages whose\n" +
			"last attempt failed. It changes nothing. If there are more than --limit, a line on the standard error says so.",
		Example: "  swarmiji outbox list --failing --store sqlite:///var/lib/app.db\n" +
			"  swarmiji outbox list --limit 1000 -o csv",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit <= 0 || limit > maxOutboxList {
				return fmt.Errorf("%w: --limit is %d, want 1 to %d", cli.ErrUsage, limit, maxOutboxList)
			}
			ctx, cancel := a.Limited(cmd.Context())
			defer cancel()
			return a.WithOutbox(ctx, *url, "--store", func(ctx context.Context, s open.OutboxStore) error {
				waiting, err := s.Waiting(ctx, failing, limit+1)
				if err != nil {
					return err
				}
				if len(waiting) > limit {
					waiting = waiting[:limit]
					a.Say("these are the oldest %d of more; --limit N shows them", limit)
				}
				out := []outboxListOutput{}
				t := &cli.Table{Head: []string{"ID", "QUEUE", "KEY", "FAILURES", "NEXT", "REASON"}}
				for _, m := range waiting {
					out = append(out, outboxListOutput{m.ID, m.Generation, m.Queue, m.OrderKey, m.At, m.Failures, m.Next, m.Reason})
					t.Add(m.ID, m.Queue, m.OrderKey, m.Failures, m.Next, m.Reason)
				}
				return a.Show(out, t)
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, fmt.Sprintf("maximum number of messages, 1 to %d", maxOutboxList))
	cmd.Flags().BoolVar(&failing, "failing", false, "only messages whose last attempt failed")
	return cmd
}

// maxOutboxList limits the messages of outbox list.
const maxOutboxList = 1000
