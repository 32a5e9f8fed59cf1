package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/settings"
)

func (a *app) queueKeysCmd() *cobra.Command {
	var q inspect.KeyQuery
	cmd := &cobra.Command{
		Use:   "keys QUEUE",
		Short: "List the fairness keys of a queue",
		Long: "Keys prints the fairness keys of a fair queue that have tasks: how many are ready and held, since when the oldest\n" +
			"one waits, and until when the rate of the key is used. Held is ? while no consumer uses bounds. It changes\n" +
			"nothing.\n\n" +
			"It prints at most --limit keys. If there are more, a line on the standard error says with which --after to\n" +
			"continue. Exit status: 3 if the queue does not exist, 1 if the broker has no exact turns, such as RabbitMQ.",
		Example: "  swarmiji queue keys mail\n" +
			"  swarmiji queue keys mail --limit 1000 -o csv",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			q.Queue = args[0]
			return a.Inspect(cmd.Context(), cli.Inspection{}, func(ctx context.Context, api inspect.API) error {
				page, err := api.ListKeys(ctx, q)
				if err != nil {
					return err
				}
				tab := &cli.Table{Head: []string{"KEY", "READY", "HELD", "OLDEST", "RATE USED UNTIL"}}
				for _, k := range page.Keys {
					tab.Add(cli.Visible(k.Key), told(k.Ready), told(k.Held), k.Oldest, shownTime(k.Used))
				}
				if page.Next != "" {
					a.Say("there are more: --after %s", quoted(page.Next))
				}
				return a.Show(page.Keys, tab)
			})
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.IntVarP(&q.Limit, "limit", "n", inspect.DefaultLimit, fmt.Sprintf("maximum number of keys, 1 to %d", inspect.MaxLimit))
	f.StringVar(&q.Cursor, "after", "", "begin with this `key`, which an earlier call has printed")
	return cmd
}

// keyLimit are the flags of queue limit for the bounds of fairness keys.
type keyLimit struct {
	key              string
	each, configured bool
}

// flags adds the flags.
func (k *keyLimit) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&k.each, "each-key", false, "limit each fairness key of a fair queue instead of the whole queue")
	f.StringVar(&k.key, "key", "", "limit this fairness `key` of a fair queue")
	f.BoolVar(&k.configured, "configured-keys", false, "remove all stored limits of keys: the consumers use their own bounds")
}

// bounds returns the change of the bounds that the flags tell, or nil if they are about the limit
// of the whole queue. done tells the change to people.
func (k *keyLimit) bounds(cmd *cobra.Command, rate string, concurrency int) (b *settings.Bounds, done string, err error) {
	one, flags := cmd.Flags().Changed("key"), 0
	for _, set := range []bool{one, k.each, k.configured} {
		if set {
			flags++
		}
	}
	bound := settings.Bound{Rate: rate, Max: concurrency}
	done = "limited"
	if bound == (settings.Bound{}) {
		done = "not limited"
	}
	switch {
	case flags > 1:
		return nil, "", fmt.Errorf("%w: use one of --key, --each-key and --configured-keys", cli.ErrUsage)
	case k.configured && done == "limited":
		return nil, "", fmt.Errorf("%w: --configured-keys takes no limit", cli.ErrUsage)
	case k.configured:
		return &settings.Bounds{}, "as configured", nil
	case k.each:
		return &settings.Bounds{Key: &bound}, done, nil
	case one:
		return &settings.Bounds{Keys: map[string]settings.Bound{k.key: bound}}, done, nil
	}
	return nil, "", nil
}

// setBounds stores bounds of a queue.
func (a *app) setBounds(cmd *cobra.Command, queue string, b *settings.Bounds, done string) error {
	return a.stored(cmd, []string{queue}, nil, done, func(ctx context.Context, api inspect.API, queue, _ string) (inspect.Change, error) {
		return api.SetLimit(ctx, inspect.Limit{Queue: queue, Bounds: b})
	})
}

// boundsText describes stored bounds for a table.
func boundsText(b *settings.Bounds) string {
	if b == nil {
		return ""
	}
	text := ""
	if b.Key != nil {
		text = "each " + boundText(*b.Key)
	}
	if len(b.Keys) > 0 {
		if text != "" {
			text += "; "
		}
		text += fmt.Sprintf("%d single", len(b.Keys))
	}
	return text
}

// boundText describes a bound.
func boundText(b settings.Bound) string {
	switch {
	case b.Max > 0 && b.Rate != "":
		return fmt.Sprintf("%d at once, %s", b.Max, b.Rate)
	case b.Max > 0:
		return fmt.Sprintf("%d at once", b.Max)
	case b.Rate != "":
		return b.Rate
	}
	return "without a limit"
}
