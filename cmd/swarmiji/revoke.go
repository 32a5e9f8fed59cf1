package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/task"
)

// revokeOptions holds the flags of revoke.
type revokeOptions struct {
	selector  revoke.Selector
	header    string
	queues    []string
	within    time.Duration
	terminate bool
	future    bool
	command   bool
	target    target
}

func (a *app) revokeCmd() *cobra.Command {
	var o revokeOptions
	cmd := &cobra.Command{
		Use:   "revoke ID...",
		Short: "Stop tasks before they start",
		Long: "Revoke has consumers with a list of revocations not start the tasks, also those that are started later. A message that the\n" +
			"broker finds in --queue is removed at once. Instead of ids, --task or --header choose tasks. A task that runs is left\n" +
			"alone, unless --terminate cancels its context. With --command consumers are told directly and answer: also those obey that\n" +
			"have no list of revocations, for as long as they run. Where no running consumer has a list the revocation is stored all the\n" +
			"same, for those that start later, and the exit status is 4. That takes 3 s to find out.",
		Example: "  swarmiji revoke report-2026-10 --queue reports\n" +
			"  swarmiji revoke --task mail.send --header customer=4711 --within 48h --terminate",
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.command {
				return a.revokeByCommand(cmd, args, &o)
			}
			for _, flag := range []string{"node", "replies", "collect"} {
				if cmd.Flags().Changed(flag) {
					return fmt.Errorf("%w: --%s belongs to --command", errUsage, flag)
				}
			}
			return a.revoke(cmd.Context(), args, &o)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.queues, "queue", []string{router.DefaultQueue}, "`name` of a queue in which messages of the ids are looked for; may be given again")
	f.StringVar(&o.selector.Name, "task", "", "`name` of the tasks to revoke")
	f.StringVar(&o.header, "header", "", "`key=value` of a header of the tasks to revoke")
	f.DurationVar(&o.within, "within", 0, "from now, the time within which the tasks may start; default: a day, or as the messages found say")
	f.BoolVar(&o.future, "future", false, "with --task or --header: also tasks that are submitted from now on, within --within")
	f.BoolVar(&o.terminate, "terminate", false, "cancel the contexts of those that run")
	f.BoolVar(&o.command, "command", false, "tell the consumers, and nobody else")
	o.target.flags(cmd, false)
	return cmd
}

// revokeByCommand sends the revocation to the consumers as a command.
func (a *app) revokeByCommand(cmd *cobra.Command, args []string, o *revokeOptions) error {
	for _, flag := range []string{"queue", "task", "header", "within", "future"} {
		if cmd.Flags().Changed(flag) {
			return fmt.Errorf("%w: --%s does not go with --command", errUsage, flag)
		}
	}
	return a.order(cmd, &o.target, control.Command{Do: control.DoRevoke, IDs: ids(args), Terminate: o.terminate}, doneHead(), done)
}

func ids(args []string) []task.ID {
	list := make([]task.ID, len(args))
	for i, id := range args {
		list[i] = task.ID(id)
	}
	return list
}

// revokeOutput is the output for one task, or for all selected tasks.
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
	if o.within < 0 {
		return fmt.Errorf("%w: --within is %v", errUsage, o.within)
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
			err := r.RevokeMatching(ctx, options, o.selector)
			if err != nil && !errors.Is(err, revoke.ErrUnheard) {
				return err
			}
			return errors.Join(err, a.show([]revokeOutput{{Outcome: revoke.Noted}}, &table{head: []string{string(revoke.Noted)}}))
		}
		outcomes, err := r.Revoke(ctx, options, ids(args)...)
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
