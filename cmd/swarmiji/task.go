package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/inspect"
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
			"needs one of both. why, run and cancel need the broker; why and run also ask the history, if it is given. Over --api\n" +
			"the server has both.",
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
	cmd.AddCommand(a.taskWhyCmd(&url), a.taskRunCmd(&url), a.taskCancelCmd())
	return cmd
}

// taskListOptions holds the flags of task ls.
type taskListOptions struct {
	inspect.TaskQuery
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
			o.Query = strings.Join(args, " ")
			if _, err := history.Parse(o.Query); err != nil {
				return err
			}
			if o.Limit < 1 || o.Limit > inspect.MaxLimit {
				return fmt.Errorf("%w: --limit is %d, want 1 to %d", cli.ErrUsage, o.Limit, inspect.MaxLimit)
			}
			return a.withTasks(cmd, *url, func(ctx context.Context, api inspect.API) error {
				if o.count {
					return a.taskCount(ctx, api, o.Query)
				}
				return a.taskList(ctx, api, o.TaskQuery)
			})
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return fmt.Errorf("%w; before a query that begins with - write --", err)
	})
	f := cmd.Flags()
	f.SortFlags = false
	f.IntVarP(&o.Limit, "limit", "n", inspect.DefaultLimit, fmt.Sprintf("maximum number of tasks, 1 to %d", inspect.MaxLimit))
	f.StringVar(&o.Cursor, "after", "", "continue behind this `cursor`, from the output of the page before")
	f.BoolVar(&o.count, "count", false, fmt.Sprintf("print only the number of tasks, which stops at %d", inspect.MaxCount))
	return cmd
}

// remote reports whether a command about the history goes over --api: it is given, and --store is
// not. Of the variables, SWARMIJI_HISTORY counts more than SWARMIJI_API.
func (a *app) remote(cmd *cobra.Command, url string) bool {
	return a.API != "" && url == "" && (cmd.Flags().Changed("api") || a.Getenv("SWARMIJI_HISTORY") == "")
}

// withTasks calls do with the inspection API over the history.
func (a *app) withTasks(cmd *cobra.Command, url string, do func(ctx context.Context, api inspect.API) error) error {
	if a.remote(cmd, url) {
		return a.Remote(cmd.Context(), &cli.Inspection{}, do)
	}
	ctx, cancel := a.Limited(cmd.Context())
	defer cancel()
	return a.WithHistory(ctx, url, false, func(ctx context.Context, s open.HistoryStore) error {
		api, err := inspect.New(inspect.Config{History: s})
		if err != nil {
			return err
		}
		return do(ctx, api)
	})
}

// taskCount prints the number of tasks that match a query.
func (a *app) taskCount(ctx context.Context, api inspect.API, query string) error {
	n, err := api.CountTasks(ctx, query)
	if err != nil {
		return err
	}
	if a.Output == "json" {
		return a.JSON(n)
	}
	_, err = fmt.Fprintln(a.Stdout, n)
	return err
}

// taskList prints a page of tasks.
func (a *app) taskList(ctx context.Context, api inspect.API, q inspect.TaskQuery) error {
	p, err := api.ListTasks(ctx, q)
	if err != nil {
		return err
	}
	t := &cli.Table{Head: []string{"ID", "NAME", "QUEUE", "STATE", "CHANGED", "ATTEMPTS", "WAIT", "RUN", "ERROR"}}
	for i := range p.Tasks {
		k := &p.Tasks[i]
		t.Add(string(k.ID), k.Name, k.Queue, word(k.State), k.Changed, k.Attempt, lasted(k.Wait), lasted(k.Run), cli.Cut(k.Error))
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

// word returns a state in the words of the query language.
func word(s inspect.State) string {
	switch s {
	case inspect.StateWaiting:
		return string(history.Pending)
	case inspect.StateHeld:
		return string(history.Received)
	case inspect.StateRunning:
		return string(history.Started)
	}
	return string(s)
}

// lasted returns a duration for people, "" for an unknown one.
func lasted(d inspect.Duration) string {
	if d == 0 {
		return ""
	}
	return time.Duration(d).Round(time.Millisecond).String()
}
