package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/inspect"
)

// queueServeCmds makes the commands by which consumers serve or leave a queue.
func (a *app) queueServeCmds() []*cobra.Command {
	return []*cobra.Command{
		a.queueServeCmd("add", "Make running consumers serve another queue", "Add makes consumers serve a queue.",
			"  swarmiji queue add reports --group batch --workers 4\n"+
				"  swarmiji queue add reports --node host-1234-abcdef", inspect.Serve{}),
		a.queueServeCmd("remove", "Make running consumers leave a queue",
			"Remove makes consumers leave a queue. Running tasks continue, and messages stay in the queue.",
			"  swarmiji queue remove reports --group batch\n"+
				"  swarmiji queue remove reports --node host-1234-abcdef", inspect.Serve{Leave: true}),
	}
}

func (a *app) queueLimitCmd() *cobra.Command {
	var concurrency int
	var keys keyLimit
	cmd := &cobra.Command{
		Use:   "limit QUEUE [RATE]",
		Short: "Limit how often tasks of a queue start, and how many run at once",
		Long: "Limit stores how often tasks of the queue start, for example 10/s, and with --concurrency how many run at once.\n" +
			"It applies to all consumers together if their server keeps limits (Redis and SQL databases do), otherwise to\n" +
			"each consumer. Without RATE and --concurrency there is no stored limit any more.\n\n" +
			"With --each-key or --key it limits the fairness keys of a fair queue, over all consumers, where tasks are taken:\n" +
			"a key at its limit uses no worker. Without RATE and --concurrency that key has no limit. Redis, PostgreSQL and\n" +
			"SQLite can do this.",
		Example: "  swarmiji queue limit reports 10/s --concurrency 4\n" +
			"  swarmiji queue limit reports\n" +
			"  swarmiji queue limit mail --concurrency 3 --each-key\n" +
			"  swarmiji queue limit mail --concurrency 20 --key 'customer 7'",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			rate := ""
			if len(args) > 1 {
				rate = args[1]
			}
			b, done, err := keys.bounds(cmd, rate, concurrency)
			switch {
			case err != nil:
				return err
			case b != nil:
				return a.setBounds(cmd, args[0], b, done)
			}
			return a.setLimit(cmd, args[:1], nil, rate, concurrency)
		},
	}
	cmd.Flags().IntVar(&concurrency, "concurrency", 0, "how many tasks of the queue run at once; default: no limit")
	keys.flags(cmd)
	return cmd
}

func (a *app) queueServeCmd(name, short, long, example string, s inspect.Serve) *cobra.Command {
	var t cli.Target
	var group string
	cmd := &cobra.Command{
		Use: name + " QUEUE", Short: short, Example: example,
		Long: long + " With --group it is stored for all consumers of the group (consumer.Config.Group), also for\n" +
			"those that start later. With --node it is a command to these consumers, until they stop. Exit status: 1 if a\n" +
			"consumer reports an error, 4 if no consumer answers.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (group == "") == (len(t.Nodes) == 0) {
				return fmt.Errorf("%w: name the consumers, by --group or by --node", cli.ErrUsage)
			}
			if group == "" {
				c := control.Command{Do: control.DoAddQueue, Queue: args[0], Workers: s.Workers}
				if s.Leave {
					c.Do = control.DoRemoveQueue
				}
				return a.Order(cmd, &t, c, []string{"NODE", "QUEUES", "DONE"}, func(t *cli.Table, r *control.Reply) {
					t.Add(r.Node, strings.Join(r.Queues, ","), "ok")
				})
			}
			s.Group = group
			return a.stored(cmd, args, nil, name+" in "+group, func(ctx context.Context, api inspect.API, queue, _ string) (inspect.Change, error) {
				s.Queue = queue
				return api.ServeQueue(ctx, s)
			})
		},
	}
	cmd.Flags().StringVar(&group, "group", "", "`name` of the group of consumers")
	if !s.Leave {
		cmd.Flags().IntVar(&s.Workers, "workers", 0, "tasks that run at once in each consumer; default: as the consumer defines it")
	}
	t.Flags(cmd, false)
	return cmd
}
