package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/settings"
)

func (a *app) queueCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "queue",
		Short: "Pause, limit and move queues while consumers run",
		Long: "Queue changes how queues are consumed. Pauses, limits and the queues of groups are stored on the server of the\n" +
			"broker: they hold for all consumers, also for those that start later.",
		Annotations: map[string]string{offline: "yes"},
		Args:        cobra.NoArgs,
		RunE:        func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.pauseCmd(), a.resumeCmd(), a.queueLimitCmd(), a.queueAddCmd(), a.queueRemoveCmd())
	return cmd
}

func (a *app) queueLimitCmd() *cobra.Command {
	var concurrency int
	cmd := &cobra.Command{
		Use:   "limit QUEUE [RATE]",
		Short: "Limit how often tasks of a queue start, and how many run at once",
		Long: "Limit stores how often tasks of the queue start, for example 10/s, and with --concurrency how many run at once.\n" +
			"It applies to all consumers together if their server keeps limits (Redis and SQL databases do), otherwise to\n" +
			"each consumer. Without RATE and --concurrency there is no stored limit any more.",
		Example: "  swarmiji queue limit reports 10/s --concurrency 4\n" +
			"  swarmiji queue limit reports",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			rate := ""
			if len(args) > 1 {
				rate = args[1]
			}
			return a.setLimit(cmd, args[:1], nil, rate, concurrency)
		},
	}
	cmd.Flags().IntVar(&concurrency, "concurrency", 0, "how many tasks of the queue run at once; default: no limit")
	return cmd
}

// place holds the flags that say which consumers serve a queue.
type place struct {
	target

	group string
}

// flags adds the flags to cmd.
func (p *place) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.group, "group", "", "`name` of the group of consumers (consumer.Config.Group); the change is stored for it; default: a command to the consumers of --node")
	p.target.flags(cmd, false)
}

// check returns an error unless a group or consumers are named.
func (p *place) check(cmd *cobra.Command) error {
	if p.group == "" && len(p.nodes) == 0 {
		return fmt.Errorf("%w: name the consumers: --group for all consumers of a group, also later ones, or --node", errUsage)
	}
	if p.group != "" && toLiving(cmd) {
		return fmt.Errorf("%w: --group stores the change, so --node, --replies and --collect have no use", errUsage)
	}
	return nil
}

// serve stores how the group serves a queue, or sends the command to its consumers.
func (a *app) serve(cmd *cobra.Command, p *place, queue string, s settings.Served) error {
	if err := p.check(cmd); err != nil {
		return err
	}
	if p.group == "" {
		c := control.Command{Do: control.DoAddQueue, Queue: queue, Workers: s.Workers}
		if s.Removed {
			c.Do = control.DoRemoveQueue
		}
		a.onlyLiving()
		return a.order(cmd, &p.target, c, doneHead(), done)
	}
	s.By, s.At = a.operator(), time.Now().UTC().Truncate(time.Millisecond)
	return a.changeSettings(cmd, []string{queue}, nil, func(ctx context.Context, store settings.Store, queue, _ string) (settled, error) {
		result := "added to " + p.group
		if s.Removed {
			result = "removed from " + p.group
		}
		return settled{Done: result}, settings.ServeQueue(ctx, store, p.group, queue, s)
	})
}

func (a *app) queueAddCmd() *cobra.Command {
	var p place
	var s settings.Served
	cmd := &cobra.Command{
		Use:   "add QUEUE",
		Short: "Make running consumers serve another queue",
		Long: "Add makes the consumers of a group serve a queue, also those that start later. With --node it is a command to\n" +
			"these consumers, which serve the queue until they stop. Exit status: 1 if a consumer reports an error, 4 if no\n" +
			"consumer answers.",
		Example: "  swarmiji queue add reports --group batch --workers 4\n" +
			"  swarmiji queue add reports --node host-1234-abcdef",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.serve(cmd, &p, args[0], s) },
	}
	cmd.Flags().IntVar(&s.Workers, "workers", 0, "tasks that run at once in each consumer; default: as the consumer defines it")
	p.flags(cmd)
	return cmd
}

func (a *app) queueRemoveCmd() *cobra.Command {
	var p place
	cmd := &cobra.Command{
		Use:   "remove QUEUE",
		Short: "Make running consumers leave a queue",
		Long: "Remove makes the consumers of a group leave a queue, also those that start later with this queue in their\n" +
			"configuration. With --node it is a command to these consumers, which leave the queue until they stop. Running\n" +
			"tasks continue, fetched ones go back, and messages stay in the queue. Exit status: 1 if a consumer reports an\n" +
			"error, 4 if no consumer answers.",
		Example: "  swarmiji queue remove reports --group batch",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.serve(cmd, &p, args[0], settings.Served{Removed: true})
		},
	}
	p.flags(cmd)
	return cmd
}
