package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/outbox"
)

func (a *app) relayCmd() *cobra.Command {
	var from, to string
	cmd := &cobra.Command{
		Use:   "relay",
		Short: "Send the messages of an outbox to a broker",
		Long: "Relay sends the messages of an outbox, which programs have stored in their own database transactions, to a\n" +
			"broker; see docs/outbox.md. It needs neither the types of the tasks nor keys. It runs until it is interrupted,\n" +
			"and then ends with status 0. While the database or the broker cannot be reached, it tries again. Any number\n" +
			"of relays share the messages.\n\n" +
			"--namespace is that of the outbox and of the broker. --timeout limits only the first connection.",
		Example: "  swarmiji relay --from postgres://user:password@host/shop --to amqp://user:password@host:5672/\n" +
			"  SWARMIJI_OUTBOX=sqlite:///var/lib/app.db SWARMIJI_BROKER=redis://host:6379 swarmiji relay",
		Args:        cobra.NoArgs,
		Annotations: map[string]string{cli.Offline: "yes"}, // --to may name the broker
		RunE: func(cmd *cobra.Command, _ []string) error {
			a.Broker = cmp.Or(to, a.Broker)
			if a.Broker == "" || strings.HasPrefix(a.Broker, "mem:") {
				return fmt.Errorf("%w: no broker that others can reach; give --to or set SWARMIJI_BROKER, such as amqp://user:password@host:5672/", cli.ErrUsage)
			}
			a.Hide(a.Broker, open.Redact(a.Broker))
			return a.WithOutbox(cmd.Context(), from, "--from", a.relay)
		},
	}
	f := cmd.Flags()
	f.StringVar(&from, "from", "", "`URL` of the database that holds the outbox; default: $SWARMIJI_OUTBOX")
	f.StringVar(&to, "to", "", "`URL` of the broker; default: that of --broker")
	return cmd
}

// relay runs a relay from the outbox to the broker until ctx ends.
func (a *app) relay(ctx context.Context, from open.OutboxStore) error {
	logger := slog.New(slog.NewTextHandler(a.Stderr, nil))
	return a.WithSwarm(ctx, true, open.Options{}, func(ctx context.Context, s *open.Swarm) error {
		preparing, cancel := a.Limited(ctx)
		defer cancel()
		if err := from.Prepare(preparing); err != nil {
			return err
		}
		r, err := outbox.New(outbox.Config{Store: from, Broker: s.Broker, Logger: logger})
		if err != nil {
			return err
		}
		a.Say("the relay runs until it is interrupted")
		return r.Run(ctx)
	})
}
