package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/broker"
)

// maxDead is how many dead letters are looked through for one of them.
const maxDead = 10000

func (a *app) deadListCmd() *cobra.Command {
	var count int
	cmd := &cobra.Command{
		Use:   "list QUEUE",
		Short: "Show the dead letters of a queue",
		Long:  "List shows the dead letters of a queue, the oldest first.",
		Example: "  swarmiji dead list reports\n" +
			"  swarmiji dead list reports.suspects --count 1000 -o json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			codec, err := a.codec()
			if err != nil {
				return err
			}
			return a.deadLetters(cmd, args[0], count, func(ctx context.Context, b broker.Broker) error {
				ds, err := broker.ListDead(ctx, b, args[0], count)
				if err != nil {
					return err
				}
				out := make([]deadOutput, len(ds))
				t := &table{head: []string{"ID", "NAME", "BURIED", "BYTES", "REASON"}}
				for i := range ds {
					out[i] = a.letter(codec, &ds[i], false, false)
					t.add(out[i].ID, out[i].Name, out[i].At, out[i].Size, out[i].Reason)
				}
				return a.show(out, t)
			})
		},
	}
	cmd.Flags().IntVar(&count, "count", 100, "how many at most")
	return cmd
}

func (a *app) deadShowCmd() *cobra.Command {
	var args bool
	cmd := &cobra.Command{
		Use:   "show QUEUE ID",
		Short: "Show one dead letter",
		Long: "Show tells all of a dead letter but its arguments, since these may hold secrets; --args shows them too, opened with\n" +
			"--key-file where they are sealed. It is looked for among the oldest 10,000 of the queue.",
		Example: "  swarmiji dead show reports report-2026-10\n" +
			"  swarmiji dead show reports report-2026-10 --args -o json",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, given []string) error {
			codec, err := a.codec()
			if err != nil {
				return err
			}
			return a.deadLetters(cmd, given[0], 0, func(ctx context.Context, b broker.Broker) error {
				ds, err := broker.ListDead(ctx, b, given[0], maxDead)
				if err != nil {
					return err
				}
				for i := range ds {
					if ds[i].Message.ID == given[1] {
						o := a.letter(codec, &ds[i], true, args)
						return a.show(o, o.table(args))
					}
				}
				return fmt.Errorf("queue %s has no dead letter %s: %w", given[0], visible(given[1]), errNotFound)
			})
		},
	}
	cmd.Flags().BoolVar(&args, "args", false, "show the arguments")
	return cmd
}

func (o *deadOutput) table(args bool) *table {
	t := &table{head: []string{"ID", visible(o.ID)}}
	t.add("NAME", o.Name)
	t.add("QUEUE", o.Queue)
	t.add("BURIED", o.At)
	t.add("REASON", o.Reason)
	t.add("GENERATION", o.Generation)
	t.add("RETRIES", o.Retries)
	t.add("BYTES", o.Size)
	t.add("CONTENT", o.ContentType)
	t.add("PARENT", string(o.Parent))
	t.add("ROOT", string(o.Root))
	for k, v := range o.Headers {
		t.add("HEADER", k+"="+v)
	}
	if args {
		t.add("ARGS", compact(o.Args))
	}
	return t
}
