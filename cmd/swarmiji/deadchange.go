package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/broker"
)

func (a *app) deadRequeueCmd() *cobra.Command {
	var count int
	cmd := &cobra.Command{
		Use:   "requeue QUEUE",
		Short: "Put dead letters back into their queue",
		Long:  "Requeue puts the oldest dead letters back into their queue, as new messages of the same tasks, and says how many.",
		Example: "  swarmiji dead requeue reports\n" +
			"  swarmiji dead requeue reports --count 1",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.deadLetters(cmd, args[0], count, func(ctx context.Context, b broker.Broker) error {
				most := count
				if most == 0 {
					most = math.MaxInt32
				}
				n, err := requeueDead(ctx, b, args[0], most)
				return a.changed(args[0], "requeued", n, err)
			})
		},
	}
	cmd.Flags().IntVar(&count, "count", 0, "how many; 0: all")
	return cmd
}

// requeueDead publishes up to n dead letters as messages of the next Generation, the oldest first,
// and removes them.
func requeueDead(ctx context.Context, b broker.Broker, queue string, n int) (count int, err error) {
	d, _ := broker.As[broker.DeadLetterer](b)
	var failed error
	err = d.ScanDead(ctx, queue, func(letter *broker.Dead) broker.DeadAction {
		if count == n {
			return broker.DeadStop
		}
		next := *letter.Message
		next.Generation++
		next.Expires = time.Time{} // it is asked for just now
		if failed = b.Publish(ctx, queue, &next); failed != nil {
			return broker.DeadStop
		}
		count++
		return broker.DeadRemove
	})
	return count, cmp.Or(failed, err)
}

func (a *app) deadPurgeCmd() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "purge QUEUE",
		Short: "Remove the dead letters of a queue",
		Long:  "Purge removes all dead letters of a queue, for ever, and says how many they were. It wants --yes.",
		Example: "  swarmiji dead purge reports --yes\n" +
			"  swarmiji dead purge reports.suspects --yes -o json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !yes {
				return fmt.Errorf("%w: this cannot be undone; say --yes", errUsage)
			}
			return a.deadLetters(cmd, args[0], 0, func(ctx context.Context, b broker.Broker) error {
				d, _ := broker.As[broker.DeadLetterer](b)
				n, err := d.PurgeDead(ctx, args[0])
				return a.changed(args[0], "purged", n, err)
			})
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	return cmd
}

// changed says how many dead letters were changed.
func (a *app) changed(queue, what string, n int, err error) error {
	if err != nil {
		return err
	}
	t := &table{head: []string{"QUEUE", "DEAD LETTERS"}}
	t.add(queue, fmt.Sprintf("%d %s", n, what))
	return a.show(map[string]any{"queue": queue, what: n}, t)
}
