package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/task"
)

// revokeOptions are the flags of revoke.
type revokeOptions struct {
	selector  revoke.Selector
	header    string
	queues    []string
	within    time.Duration
	terminate bool
	future    bool
}

func (a *app) revokeCmd() *cobra.Command {
	var o revokeOptions
	cmd := &cobra.Command{
		Use:   "revoke ID...",
		Short: "Stop tasks before they start",
		Long: "Revoke has consumers with a list of revocations not start the tasks, also those that are started later. A message that the\n" +
			"broker finds in --queue is removed at once. Instead of ids, --task or --header choose tasks. A task that runs is left\n" +
			"alone, unless --terminate cancels its context.",
		Example: "  swarmiji revoke report-2026-10 --queue reports\n" +
			"  swarmiji revoke --task mail.send --header customer=4711 --within 48h --terminate",
		RunE: func(cmd *cobra.Command, args []string) error { return a.revoke(cmd.Context(), args, &o) },
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.queues, "queue", []string{router.DefaultQueue}, "`name` of a queue in which messages of the ids are looked for; may be given again")
	f.StringVar(&o.selector.Name, "task", "", "`name` of the tasks to revoke")
	f.StringVar(&o.header, "header", "", "`key=value` of a header of the tasks to revoke")
	f.DurationVar(&o.within, "within", 0, "from now, the time within which the tasks may start; default: a day, or as the messages found say")
	f.BoolVar(&o.future, "future", false, "with --task or --header: also tasks that are submitted from now on, within --within")
	f.BoolVar(&o.terminate, "terminate", false, "cancel the contexts of those that run")
	return cmd
}

// revokeOutput is what became of one task, or of all that were chosen.
type revokeOutput struct {
	ID      string         `json:"id,omitempty"`
	Outcome revoke.Outcome `json:"outcome"`
}

func (a *app) revoke(ctx context.Context, args []string, o *revokeOptions) error {
	chosen := o.header != "" || o.selector.Name != ""
	if chosen == (len(args) > 0) {
		return fmt.Errorf("%w: give ids, or --task or --header", errUsage)
	}
	if o.header != "" {
		key, value, ok := strings.Cut(o.header, "=")
		if !ok {
			return fmt.Errorf("%w: --header is not key=value", errUsage)
		}
		o.selector.Header, o.selector.Value = key, value
	}
	options := revoke.Options{Terminate: o.terminate}
	if o.within > 0 {
		options.Until = time.Now().Add(o.within)
	}
	return a.with(ctx, open.Options{}, func(ctx context.Context, s *open.Swarm) error {
		r, err := revoke.NewRevoker(revoke.RevokerConfig{Events: s.Revocations, Broker: s.Broker, Queues: o.queues, Results: s.Results, Tasks: s.Events})
		if err != nil {
			return fmt.Errorf("%w: %w", errUsage, err)
		}
		if chosen {
			if !o.future {
				o.selector.SentBefore = time.Now()
			}
			if err := o.selector.Check(); err != nil {
				return fmt.Errorf("%w: %w", errUsage, err)
			}
			if err := r.RevokeMatching(ctx, options, o.selector); err != nil {
				return err
			}
			return a.show([]revokeOutput{{Outcome: revoke.Noted}}, &table{head: []string{string(revoke.Noted)}})
		}
		ids := make([]task.ID, len(args))
		for i, id := range args {
			ids[i] = task.ID(id)
		}
		outcomes, err := r.Revoke(ctx, options, ids...)
		if len(outcomes) == 0 {
			return err
		}
		out := make([]revokeOutput, len(outcomes))
		t := &table{head: []string{"ID", "OUTCOME"}}
		for i, outcome := range outcomes {
			out[i] = revokeOutput{args[i], outcome}
			t.add(args[i], string(outcome))
		}
		if serr := a.show(out, t); err == nil {
			err = serr
		}
		return err
	})
}
