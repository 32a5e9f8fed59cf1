package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/open"
)

func (a *app) outboxCmd() *cobra.Command {
	var url string
	cmd := &cobra.Command{
		Use:   "outbox show|list|dead|requeue|drop",
		Short: "Show an outbox, requeue its dead messages, and drop dead or failing ones",
		Long: "An outbox keeps messages in a database, from the transaction that submits them until a relay has sent them; see\n" +
			"docs/outbox.md. A message that cannot be sent now fails, and is tried again. A message that the broker can\n" +
			"never accept becomes a dead message. These commands need no broker.\n\n" +
			"--store names the database: sqlite:///path/app.db or postgres://user:password@host/database.",
		Example: "  swarmiji outbox show --store sqlite:///var/lib/app.db\n" +
			"  SWARMIJI_OUTBOX=postgres://host/shop swarmiji outbox dead",
		Args:        cobra.NoArgs,
		Annotations: map[string]string{cli.Offline: "yes"}, // only shows its help
		RunE: func(cmd *cobra.Command, _ []string) error {
			return errors.Join(cmd.Help(), fmt.Errorf("%w: outbox what? show, list, dead, requeue or drop", cli.ErrUsage))
		},
	}
	cmd.PersistentFlags().StringVar(&url, "store", "", "`URL` of the database that holds the outbox; default: $SWARMIJI_OUTBOX")
	cmd.AddCommand(a.outboxShowCmd(&url), a.outboxListCmd(&url), a.outboxDeadCmd(&url), a.outboxRequeueCmd(&url), a.outboxDropCmd(&url))
	for _, sub := range cmd.Commands() {
		sub.Annotations = map[string]string{cli.Offline: "yes"} // no broker
	}
	return cmd
}

// outboxOutput is the output of outbox show.
type outboxOutput struct {
	Waiting int    `json:"waiting"`
	Oldest  string `json:"oldest,omitempty"` // its age
	Failing int    `json:"failing"`
	Reason  string `json:"reason,omitempty"`
	Dead    int    `json:"dead"`
	Relays  int    `json:"relays"`
}

func (a *app) outboxShowCmd(url *string) *cobra.Command {
	return &cobra.Command{
		Use:   "show",
		Short: "Count the messages of an outbox and its relays",
		Long: "Show prints how many messages wait to be sent and the age of the oldest one. Of these it counts the messages\n" +
			"whose last publish failed, with the reason of the oldest one. It also counts dead messages and live relays. It\n" +
			"changes nothing.",
		Example: "  swarmiji outbox show --store sqlite:///var/lib/app.db\n" +
			"  swarmiji outbox show -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := a.Limited(cmd.Context())
			defer cancel()
			return a.WithOutbox(ctx, *url, "--store", func(ctx context.Context, s open.OutboxStore) error {
				st, err := s.Stats(ctx)
				if err != nil {
					return err
				}
				o := outboxOutput{Waiting: st.Waiting, Failing: st.Failing, Reason: st.Reason, Dead: st.Dead, Relays: st.Relays}
				if st.Waiting > 0 {
					o.Oldest = st.Oldest.Round(time.Millisecond).String()
				}
				t := &cli.Table{Head: []string{"WAITING", "OLDEST", "FAILING", "DEAD", "RELAYS", "REASON"}}
				t.Add(o.Waiting, o.Oldest, o.Failing, o.Dead, o.Relays, o.Reason)
				return a.Show(o, t)
			})
		},
	}
}

// outboxDeadOutput is the output of outbox dead for a message.
type outboxDeadOutput struct {
	ID         string    `json:"id"`
	Generation int       `json:"generation"`
	Queue      string    `json:"queue"`
	Key        string    `json:"key,omitempty"`
	Size       int       `json:"size"`
	At         time.Time `json:"at"`
	Reason     string    `json:"reason"`
}

func (a *app) outboxDeadCmd(url *string) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "dead",
		Short: "List the dead messages of an outbox",
		Long: "Dead prints the messages that could never be sent, the oldest first: task id, queue, order key, size, since\n" +
			"when, and the reason. It changes nothing.",
		Example: "  swarmiji outbox dead --store sqlite:///var/lib/app.db\n" +
			"  swarmiji outbox dead --limit 10 -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit <= 0 {
				return fmt.Errorf("%w: --limit is %d", cli.ErrUsage, limit)
			}
			ctx, cancel := a.Limited(cmd.Context())
			defer cancel()
			return a.WithOutbox(ctx, *url, "--store", func(ctx context.Context, s open.OutboxStore) error {
				dead, err := s.Dead(ctx, limit)
				if err != nil {
					return err
				}
				out := []outboxDeadOutput{}
				t := &cli.Table{Head: []string{"ID", "QUEUE", "KEY", "BYTES", "SINCE", "REASON"}}
				for _, m := range dead {
					out = append(out, outboxDeadOutput{m.ID, m.Generation, m.Queue, m.OrderKey, m.Size, m.At, m.Reason})
					t.Add(m.ID, m.Queue, m.OrderKey, m.Size, m.At, m.Reason)
				}
				return a.Show(out, t)
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 100, "maximum number of messages")
	return cmd
}
