package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/inspect"
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
	target    cli.Target
}

func (a *app) revokeCmd() *cobra.Command {
	var o revokeOptions
	cmd := &cobra.Command{
		Use:   "revoke ID...",
		Short: "Keep tasks from starting",
		Long: "Revoke keeps tasks from starting: those with the ids, or with --task or --header those that match and were\n" +
			"submitted before now. The revocation is stored, so consumers that start later obey it too. Consumers obey if\n" +
			"they have a list of revocations, as those made with package open have. A running task continues, unless\n" +
			"--terminate cancels its context.\n\n" +
			"If the broker finds the message of an id in --queue, the message is removed at once. The command prints the\n" +
			"outcome of each id: noted means that consumers will not start the task, removed means that its message was\n" +
			"removed too. For --task and --header it prints noted.\n\n" +
			"With --command the ids go to the running consumers as a command, and nothing is stored. Consumers without a\n" +
			"list obey too, until they end. The command prints a line for each consumer that answers.\n\n" +
			"Exit status: 4 if no running consumer has a list, which takes 3 s to find out; the revocation is stored\n" +
			"nevertheless. With --command, 1 if a consumer reports an error, and 4 if no consumer answers.",
		Example: "  swarmiji revoke report-2026-10 --queue reports\n" +
			"  swarmiji revoke --task mail.send --header customer=4711 --within 48h --terminate",
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.command {
				return a.revokeByCommand(cmd, args, &o)
			}
			for _, flag := range []string{"node", "replies", "collect"} {
				if cmd.Flags().Changed(flag) {
					return fmt.Errorf("%w: --%s belongs to --command", cli.ErrUsage, flag)
				}
			}
			return a.revoke(cmd.Context(), args, &o)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.queues, "queue", []string{router.DefaultQueue}, "`name` of a queue to search for messages of the ids; may be repeated")
	f.StringVar(&o.selector.Name, "task", "", "revoke all tasks with this `name`; with --header both must match")
	f.StringVar(&o.header, "header", "", "revoke all tasks with this header, as `key=value`")
	f.DurationVar(&o.within, "within", 0, "how long from now the tasks could start; the revocation is kept longer than this; default: a day, counted from the due time of a delayed task that is found")
	f.BoolVar(&o.future, "future", false, "with --task or --header: also revoke tasks that are submitted later, within --within")
	f.BoolVar(&o.terminate, "terminate", false, "also cancel the contexts of running tasks")
	f.BoolVar(&o.command, "command", false, "send a command to the running consumers, and store nothing")
	o.target.Flags(cmd, false)
	return cmd
}

// revokeByCommand sends the revocation to the consumers as a command.
func (a *app) revokeByCommand(cmd *cobra.Command, args []string, o *revokeOptions) error {
	for _, flag := range []string{"queue", "task", "header", "within", "future"} {
		if cmd.Flags().Changed(flag) {
			return fmt.Errorf("%w: --%s does not go with --command", cli.ErrUsage, flag)
		}
	}
	head := []string{"NODE", "QUEUES", "DONE"}
	return a.Order(cmd, &o.target, control.Command{Do: control.DoRevoke, IDs: ids(args), Terminate: o.terminate}, head, func(t *cli.Table, r *control.Reply) {
		t.Add(r.Node, strings.Join(r.Queues, ","), "ok")
	})
}

func ids(args []string) []task.ID {
	list := make([]task.ID, len(args))
	for i, id := range args {
		list[i] = task.ID(id)
	}
	return list
}

// detail returns the flags for the audit log.
func (o *revokeOptions) detail() any {
	return map[string]any{"header": o.header, "within": o.within.String(), "future": o.future, "terminate": o.terminate}
}

// revokeOutput is the output for one task, or for all selected tasks.
type revokeOutput struct {
	ID      string         `json:"id,omitempty"`
	Outcome revoke.Outcome `json:"outcome"`
}

func (a *app) revoke(ctx context.Context, args []string, o *revokeOptions) error {
	chosen := o.header != "" || o.selector.Name != ""
	if chosen == (len(args) > 0) {
		return fmt.Errorf("%w: give ids, or --task or --header", cli.ErrUsage)
	}
	if o.header != "" {
		key, value, ok := strings.Cut(o.header, "=")
		if !ok {
			return fmt.Errorf("%w: --header is not key=value", cli.ErrUsage)
		}
		o.selector.Header, o.selector.Value = key, value
	}
	if o.within < 0 {
		return fmt.Errorf("%w: --within is %v", cli.ErrUsage, o.within)
	}
	options := revoke.Options{Terminate: o.terminate}
	if o.within > 0 {
		options.Until = time.Now().Add(o.within)
	}
	return a.With(ctx, false, open.Options{}, func(ctx context.Context, s *open.Swarm) error {
		r, err := revoke.NewRevoker(revoke.RevokerConfig{Events: s.Revocations, Broker: s.Broker, Queues: o.queues, Results: s.Results, Tasks: s.Events})
		if err != nil {
			return fmt.Errorf("%w: %w", cli.ErrUsage, err)
		}
		if chosen {
			if !o.future {
				o.selector.SentBefore = time.Now()
			}
			if err := o.selector.Check(); err != nil {
				return fmt.Errorf("%w: %w", cli.ErrUsage, err)
			}
			err := r.RevokeMatching(ctx, options, o.selector)
			a.Audit(ctx, inspect.Change{Do: inspect.DoRevokeTasks, Target: cmp.Or(o.selector.Name, o.header), Done: cli.OneIf(err)}, o.detail(), err)
			if err != nil && !errors.Is(err, revoke.ErrUnheard) {
				return err
			}
			return errors.Join(err, a.Show([]revokeOutput{{Outcome: revoke.Noted}}, &cli.Table{Head: []string{string(revoke.Noted)}}))
		}
		outcomes, err := r.Revoke(ctx, options, ids(args)...)
		a.Audit(ctx, inspect.Change{Do: inspect.DoCancelTask, Target: strings.Join(args, ","), Done: len(outcomes)}, o.detail(), err)
		if len(outcomes) == 0 {
			return err
		}
		out := make([]revokeOutput, len(outcomes))
		t := &cli.Table{Head: []string{"ID", "OUTCOME"}}
		for i, outcome := range outcomes {
			out[i] = revokeOutput{args[i], outcome}
			t.Add(args[i], string(outcome))
		}
		if serr := a.Show(out, t); err == nil {
			err = serr
		}
		return err
	})
}
