package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/taskview"
	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/open"
)

func (a *app) taskCmd() *cobra.Command {
	var url string
	cmd := &cobra.Command{
		Use:   "task ls|show|why|run|cancel",
		Short: "Find tasks, show what happened to them, explain, cancel and rerun them",
		Long: "Task finds tasks in their history, shows one of them, explains where it is and what it waits for, and cancels\n" +
			"it. swarmiji history record writes the history; see docs/history.md. --store names its database:\n" +
			"sqlite:///path/history.db or postgres://user:password@host/database. ls needs the history, and no broker. show\n" +
			"needs one of both. why, run and cancel need the broker; why also asks the history, if it is given.",
		Example: "  swarmiji task ls state:failed since:1h --store sqlite:///var/lib/history.db\n" +
			"  swarmiji task why report-2026-10",
		Args:        cobra.NoArgs,
		Annotations: map[string]string{cli.Offline: "yes"}, // only shows its help
		RunE: func(cmd *cobra.Command, _ []string) error {
			return errors.Join(cmd.Help(), fmt.Errorf("%w: task what? ls, show, why, run or cancel", cli.ErrUsage))
		},
	}
	cli.HistoryFlag(cmd, &url)
	for _, sub := range []*cobra.Command{a.taskListCmd(&url), a.taskShowCmd(&url)} {
		sub.Annotations = map[string]string{cli.Offline: "yes"} // no broker
		cmd.AddCommand(sub)
	}
	cmd.AddCommand(a.taskWhyCmd(&url), a.taskRunCmd(), a.taskCancelCmd())
	return cmd
}

// taskListOptions holds the flags of task ls.
type taskListOptions struct {
	history.PageOptions
	count bool
}

func (a *app) taskListCmd(url *string) *cobra.Command {
	var o taskListOptions
	cmd := &cobra.Command{
		Use:   "ls [QUERY]",
		Short: "List tasks by a query",
		Long: "Ls prints the tasks that match all terms of the query, the newest change first. Without a query it prints all.\n" +
			"It prints at most --limit tasks. If there are more, a line on the standard error says with which --after to\n" +
			"continue. It changes nothing; no matching tasks are not an error.\n\n" +
			"A term is a field, an operator and a value; a - before it negates it (write -- before such a query):\n" +
			"  state:failed,retrying   pending received started awaiting retrying succeeded failed dead\n" +
			"                          revoked expired\n" +
			"  name:mail.* queue:a,b   also id node root parent group class header.KEY; a * at the end\n" +
			"                          stands for any text\n" +
			"  error~\"no host\"         the error contains it\n" +
			"  wait>5s run<2m          wait before the last start, run time of the last attempt; attempts>3\n" +
			"  since:2h before:14:30   by the last change; also 2006-01-02T15:04:05Z\n\n" +
			"One page examines at most 50,000 entries. If these have fewer matching tasks, the last line says that too.",
		Example: "  swarmiji task ls state:failed 'name:mail.*' header.tenant=42 since:1h\n" +
			"  swarmiji task ls --count -- -state:succeeded",
		RunE: func(cmd *cobra.Command, args []string) error {
			q, err := history.Parse(strings.Join(args, " "))
			if err != nil {
				return err
			}
			q = q.At(time.Now())
			ctx, cancel := a.Limited(cmd.Context())
			defer cancel()
			return a.WithHistory(ctx, *url, false, func(ctx context.Context, s open.HistoryStore) error {
				if o.count {
					return a.taskCount(ctx, s, q)
				}
				return a.taskList(ctx, s, q, o.PageOptions)
			})
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return fmt.Errorf("%w; before a query that begins with - write --", err)
	})
	f := cmd.Flags()
	f.SortFlags = false
	f.IntVarP(&o.Limit, "limit", "n", history.DefaultPage, fmt.Sprintf("maximum number of tasks, 1 to %d", history.MaxPage))
	f.StringVar(&o.After, "after", "", "continue behind this `cursor`, from the output of the page before")
	f.BoolVar(&o.count, "count", false, fmt.Sprintf("print only the number of tasks, which stops at %d", history.MaxCount))
	return cmd
}

// taskCount prints the number of tasks that match q.
func (a *app) taskCount(ctx context.Context, s open.HistoryStore, q history.Query) error {
	n, err := s.Count(ctx, q)
	if err != nil {
		return err
	}
	if a.Output == "json" {
		return a.JSON(n)
	}
	more := ""
	if n.AtLeast {
		more = "+"
	}
	_, err = fmt.Fprintf(a.Stdout, "%d%s\n", n.N, more)
	return err
}

// taskList prints a page of tasks.
func (a *app) taskList(ctx context.Context, s open.HistoryStore, q history.Query, o history.PageOptions) error {
	if o.Limit < 1 || o.Limit > history.MaxPage {
		return fmt.Errorf("%w: --limit is %d, want 1 to %d", cli.ErrUsage, o.Limit, history.MaxPage)
	}
	p, err := s.Page(ctx, q, o)
	if errors.Is(err, history.ErrMalformed) && o.After != "" {
		return fmt.Errorf("%w: %w", cli.ErrUsage, err)
	}
	if err != nil {
		return err
	}
	t := &cli.Table{Head: []string{"ID", "NAME", "QUEUE", "STATE", "CHANGED", "ATTEMPTS", "WAIT", "RUN", "ERROR"}}
	for i := range p.Records {
		r := &p.Records[i]
		t.Add(string(r.ID), r.Name, r.Queue, taskview.State(r), r.Changed, r.Attempts, taskview.Lasted(r.Wait), taskview.Lasted(r.Run), cli.Cut(r.Error))
	}
	if err := a.Show(p, t); err != nil || a.Output == "json" {
		return err
	}
	for _, g := range p.Gaps {
		a.Say("events are missing from %s to %s; a task of that time may be missing or out of date", cli.Cell(g.Since), cli.Cell(g.Before))
	}
	switch {
	case !p.Complete:
		a.Say("the search ended after %d entries; there may be more: --after %s", history.MaxExamined, p.Next)
	case p.Next != "":
		a.Say("there are more: --after %s", p.Next)
	}
	return nil
}
