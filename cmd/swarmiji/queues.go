package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/task"
)

func (a *app) queuesCmd() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "queues [QUEUE...]",
		Short: "Show what waits in queues",
		Long: "Queues shows how many tasks wait, are held by consumers, are delayed and are dead. Without names it shows the queues of\n" +
			"the consumers that answer, and \"default\". What the broker does not tell is \"?\", in JSON -1.",
		Example: "  swarmiji queues\n" +
			"  swarmiji queues reports mail -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			keys, err := a.keys()
			if err = errors.Join(err, t.check()); err != nil {
				return err
			}
			for _, q := range args {
				if err := task.CheckName(q); err != nil {
					return err
				}
			}
			return a.with(cmd.Context(), open.Options{Control: len(args) == 0}, func(ctx context.Context, s *open.Swarm) error {
				names := args
				if len(names) == 0 {
					if names, err = known(ctx, s, keys, control.Wait{Replies: t.replies, Timeout: t.collect}); err != nil {
						return err
					}
				}
				return a.sizes(ctx, s, names, len(args) > 0)
			})
		},
	}
	cmd.Flags().DurationVar(&t.collect, "collect", control.DefaultTimeout, "how long consumers are asked for their queues")
	cmd.Flags().IntVar(&t.replies, "replies", 0, "how many consumers' answers are enough; default: as many as come in time")
	return cmd
}

// known returns the queues of the consumers that answer, and the default one.
func known(ctx context.Context, s *open.Swarm, keys *control.Keys, w control.Wait) ([]string, error) {
	replies, err := send(ctx, s, keys, control.Command{Do: control.DoPing}, w)
	if err != nil && !errors.Is(err, errNobody) && !errors.Is(err, control.ErrMissing) {
		return nil, err
	}
	names := []string{router.DefaultQueue}
	for _, r := range replies {
		names = append(names, r.Queues...)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// queueOutput is a queue as it is shown.
type queueOutput struct {
	Queue   string `json:"queue"`
	Ready   int    `json:"ready"`
	Held    int    `json:"held"`
	Delayed int    `json:"delayed"`
	Dead    int    `json:"dead"`
}

// sizes shows queues. One that does not exist is an error where the user has named it.
func (a *app) sizes(ctx context.Context, s *open.Swarm, names []string, must bool) error {
	i, ok := capability.As[broker.Inspector](s.Broker)
	if !ok {
		return fmt.Errorf("this broker does not tell what waits: %w", broker.ErrUnsupported)
	}
	out := []queueOutput{}
	t := &table{head: []string{"QUEUE", "READY", "HELD", "DELAYED", "DEAD"}}
	var missing []error
	for _, q := range names {
		st, err := i.Stats(ctx, q)
		switch {
		case errors.Is(err, broker.ErrNoQueue):
			missing = append(missing, fmt.Errorf("queue %s: %w", q, errNotFound))
			continue
		case err != nil:
			return err
		}
		out = append(out, queueOutput{q, st.Ready, st.Held, st.Delayed, st.Dead})
		t.add(q, told(st.Ready), told(st.Held), told(st.Delayed), told(st.Dead))
	}
	err := a.show(out, t)
	if must {
		err = errors.Join(append(missing, err)...)
	}
	return err
}

// told is a number of a queue for people.
func told(n int) string {
	if n < 0 {
		return "?"
	}
	return strconv.Itoa(n)
}
