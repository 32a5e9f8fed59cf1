package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/open"
)

func (a *app) outboxRequeueCmd(url *string) *cobra.Command {
	return &cobra.Command{
		Use:   "requeue ID...",
		Short: "Send dead messages of an outbox again",
		Long: "Requeue puts the dead messages of these tasks back into the outbox, behind the messages that wait, and prints\n" +
			"their number. Relays send them again. It is safe to repeat the command. A message stays dead while another one\n" +
			"of its task waits for the same queue. Exit status: 3 if no message was put back.",
		Example: "  swarmiji outbox requeue report-2026-10 --store sqlite:///var/lib/app.db\n" +
			"  swarmiji outbox requeue report-2026-10 report-2026-11",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return a.outboxChange(cmd, *url, "requeued", "dead", ids, open.OutboxStore.Requeue)
		},
	}
}

func (a *app) outboxDropCmd(url *string) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "drop ID...",
		Short: "Delete dead or failing messages of an outbox",
		Long: "Drop deletes for good the messages of these tasks that are dead, or that wait and failed at the last attempt,\n" +
			"and prints their number. Other waiting messages stay. After the drop of a failing message the later ones of\n" +
			"its order key are sent. A relay that publishes it at that moment may still send it. Drop needs --yes; otherwise\n" +
			"it deletes nothing, with status 2. Exit status: 3 if no dead or failing message has one of the ids.",
		Example: "  swarmiji outbox drop report-2026-10 --yes --store sqlite:///var/lib/app.db\n" +
			"  swarmiji outbox drop report-2026-10 report-2026-11 --yes",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, ids []string) error {
			if !yes {
				return fmt.Errorf("%w: this cannot be undone; say --yes", cli.ErrUsage)
			}
			return a.outboxChange(cmd, *url, "dropped", "dead or failing", ids, open.OutboxStore.Drop)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "confirm; without it nothing is deleted")
	return cmd
}

// outboxChange changes messages of an outbox and prints their number. which names the kind of
// messages in errors.
func (a *app) outboxChange(cmd *cobra.Command, url, what, which string, ids []string, change func(open.OutboxStore, context.Context, ...string) (int, error)) error {
	ctx, cancel := a.Limited(cmd.Context())
	defer cancel()
	return a.WithOutbox(ctx, url, "--store", func(ctx context.Context, s open.OutboxStore) error {
		n, err := change(s, ctx, ids...)
		if err == nil && n == 0 {
			err = fmt.Errorf("%w: no %s message of the outbox has such an id; swarmiji outbox dead and swarmiji outbox list show them", cli.ErrNotFound, which)
			if what == "requeued" {
				err = fmt.Errorf("%w; or a message with this id still waits", err)
			}
		}
		if err != nil {
			return err
		}
		t := &cli.Table{Head: []string{"MESSAGES"}}
		t.Add(fmt.Sprintf("%d %s", n, what))
		return a.Show(map[string]int{what: n}, t)
	})
}
