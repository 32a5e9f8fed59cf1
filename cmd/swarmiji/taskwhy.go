package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/task"
)

// search holds the flags of commands that search a task.
type search struct {
	cli.Target
	name, jobs string
	history    string // its URL
}

func (s *search) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.StringSliceVar(&s.Queues, "queue", nil, "`name` of a queue to search; may be repeated; default: all known queues")
	f.StringVar(&s.name, "name", "", "`name` of the task; needed only for a task with conditions that has not run yet")
	f.StringVar(&s.jobs, "jobs", "", "`URL` or file of the store of jobs, for tasks that wait there; default: $SWARMIJI_JOBS, or none")
	s.Listen(cmd)
}

// find calls do with the API and the key of the task.
func (a *app) find(cmd *cobra.Command, s *search, id string, do func(ctx context.Context, api inspect.API, k inspect.TaskKey) error) error {
	k := inspect.TaskKey{ID: task.ID(id), Queues: s.Queues, Name: s.name}
	if err := errors.Join(s.Check(), k.ID.Check()); err != nil {
		return err
	}
	i := cli.Inspection{Listen: s.Collect, Replies: s.Replies, Jobs: s.jobs, History: s.history}
	if i.Jobs == "" {
		i.Jobs = cmp.Or(a.Jobs, a.Getenv("SWARMIJI_JOBS"))
	}
	return a.Inspect(cmd.Context(), i, func(ctx context.Context, api inspect.API) error { return do(ctx, api, k) })
}

// showLive shows a task without a history.
func (a *app) showLive(cmd *cobra.Command, s *search, id string) error {
	if a.Broker == "" && a.API == "" {
		return fmt.Errorf("%w: no history and no broker; give --store, --broker or --api", cli.ErrUsage)
	}
	return a.find(cmd, s, id, func(ctx context.Context, api inspect.API, k inspect.TaskKey) error {
		d, err := api.GetTask(ctx, k)
		a.Noted(d.Notes)
		if err != nil {
			return err
		}
		if err := a.Show(&d, taskTable(&d)); err != nil || len(d.Timeline) == 0 || a.Output == "json" {
			return err
		}
		_, err = fmt.Fprintln(a.Stdout)
		return errors.Join(err, a.Show(nil, timeline(d.Timeline)))
	})
}

// timeline returns the steps of a task.
func timeline(steps []inspect.Step) *cli.Table {
	t := &cli.Table{Head: []string{"TIME", "EVENT", "ATTEMPT", "NODE", "DETAIL"}}
	for i := range steps {
		s := &steps[i]
		detail := s.Text
		if s.Run > 0 {
			detail = strings.TrimSuffix("ran "+lasted(s.Run)+", "+detail, ", ")
		}
		t.Add(s.At, s.Event, s.Attempt, s.Node, cli.Cut(detail))
	}
	return t
}

// taskTable returns the known fields of a task.
func taskTable(d *inspect.TaskDetail) *cli.Table {
	t := &cli.Table{Head: []string{"ID", cli.Visible(string(d.ID))}}
	add := func(name string, value any) {
		if text := cli.Cell(value); text != "-" {
			t.Add(name, text)
		}
	}
	add("NAME", d.Name)
	add("STATE", string(d.State))
	add("QUEUE", d.Queue)
	if d.Attempt > 0 {
		add("ATTEMPT", d.Attempt)
	}
	add("NODE", d.Node)
	add("SENT", d.Sent)
	add("DUE", d.Due)
	add("STARTED", d.Started)
	add("ENDED", d.Ended)
	for _, one := range []struct {
		name string
		d    inspect.Duration
	}{{"WAIT", d.Wait}, {"RUN", d.Run}} {
		if one.d > 0 {
			add(one.name, time.Duration(one.d).Round(time.Microsecond))
		}
	}
	add("PARENT", string(d.Parent))
	if d.Root != d.ID {
		add("ROOT", string(d.Root))
	}
	add("GROUP", string(d.Group))
	add("CORRELATION", d.Correlation)
	for _, k := range slices.Sorted(maps.Keys(d.Headers)) {
		add("HEADER", k+"="+d.Headers[k])
	}
	add("ARGS", d.Args)
	add("RESULT", d.Result)
	add("ERROR", d.Error)
	add("TYPE", d.Class)
	head := "STACK"
	for line := range strings.Lines(d.Stack) {
		t.Add(head, strings.ReplaceAll(strings.TrimRight(line, "\n"), "\t", "  "))
		head = ""
	}
	add("KNOWN BY", d.Found)
	return t
}

func (a *app) taskWhyCmd(history *string) *cobra.Command {
	var s search
	cmd := &cobra.Command{
		Use:   "why ID",
		Short: "Explain where a task is and what it waits for",
		Long: "Why prints in sentences where a task is and what it waits for. It may run, wait for its time, its next attempt,\n" +
			"a free worker, a limit, an answer, or the resume of its queue. It may have no consumer or no handler. Or it has\n" +
			"ended, or is a dead letter. Below each reason stands the one action that helps, if there is one. It changes\n" +
			"nothing.\n\n" +
			"Exit status: 3 if nothing is known of the task.",
		Example: "  swarmiji task why report-2026-10\n" +
			"  swarmiji task why report-2026-10 --jobs jobs.db -o json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if s.history, err = a.KnownHistory(*history); err != nil {
				return err
			}
			return a.find(cmd, &s, args[0], func(ctx context.Context, api inspect.API, k inspect.TaskKey) error {
				e, err := api.Why(ctx, k)
				if err != nil {
					return err
				}
				a.Noted(e.Notes)
				if err := a.Show(&e, reasons(&e)); err != nil {
					return err
				}
				if e.Reasons[0].Kind == inspect.KindUnknown {
					return fmt.Errorf("task %s: %w", cli.Visible(args[0]), cli.ErrNotFound)
				}
				return nil
			})
		},
	}
	s.flags(cmd)
	return cmd
}

// reasons returns the sentences of an explanation, each with the action that helps.
func reasons(e *inspect.Explanation) *cli.Table {
	t := &cli.Table{}
	for i := range e.Reasons {
		r := &e.Reasons[i]
		t.Add(r.Text)
		if r.Help == nil {
			continue
		}
		help := "  -> " + r.Help.Text
		if r.Help.Command != "" {
			help += ": " + r.Help.Command
		}
		t.Add(help)
	}
	if len(t.Rows) > 0 {
		t.Head, t.Rows = t.Rows[0], t.Rows[1:]
	}
	return t
}

func (a *app) taskCancelCmd() *cobra.Command {
	var t cli.Target
	var c inspect.Cancel
	within := time.Duration(0)
	cmd := &cobra.Command{
		Use:   "cancel ID",
		Short: "Keep a task from starting, or stop it",
		Long: "Cancel keeps a task from starting. The cancellation is stored, so consumers that start later obey too. If the\n" +
			"message is found in a queue, it is removed at once (removed); otherwise the next consumer skips it (noted). A\n" +
			"running task continues, unless --terminate cancels its context. swarmiji revoke does the same for many tasks.\n\n" +
			"Exit status: 3 if no part knows the task (unknown), 4 if no running consumer listens to cancellations, which\n" +
			"takes 3 s to find out. The cancellation is stored nevertheless. On RabbitMQ a waiting task cannot be found, so\n" +
			"that an unknown one is noted too.",
		Example: "  swarmiji task cancel report-2026-10\n" +
			"  swarmiji task cancel report-2026-10 --queue reports --terminate",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c.ID, c.Queues = task.ID(args[0]), t.Queues
			if within > 0 {
				c.Until = time.Now().Add(within)
			}
			if err := errors.Join(t.Check(), c.ID.Check()); err != nil {
				return err
			}
			return a.Inspect(cmd.Context(), cli.Inspection{Listen: t.Collect, Replies: t.Replies}, func(ctx context.Context, api inspect.API) error {
				done, err := api.CancelTask(ctx, c)
				if done.Outcome == "" && err != nil {
					return err
				}
				tab := &cli.Table{Head: []string{"ID", "OUTCOME"}}
				tab.Add(done.Target, done.Outcome)
				if err == nil && done.Outcome == inspect.OutcomeUnknown {
					err = fmt.Errorf("%w: no part knows task %s; check id, --queue and --namespace. The cancellation is stored nevertheless", cli.ErrNotFound, cli.Visible(done.Target))
				}
				return errors.Join(a.Show(&done, tab), err)
			})
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringSliceVar(&t.Queues, "queue", nil, "`name` of a queue to search for the message; may be repeated; default: all known queues")
	f.BoolVar(&c.Terminate, "terminate", false, "also cancel the context of the running task")
	f.DurationVar(&within, "within", 0, "how long from now the task could start; default: a day, counted from the due time of a delayed task that is found")
	t.Listen(cmd)
	return cmd
}
