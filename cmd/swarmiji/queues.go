package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/internal/reach"
	"github.com/swarmiji/swarmiji/task"
)

func (a *app) queueCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "queue ls|show|messages|keys|pause|resume|purge|limit|add|remove",
		Short: "Show, pause, limit, move and purge queues",
		Long: "Queue shows the queues of the broker, what is in them and who serves them. It pauses, resumes and purges them.\n" +
			"swarmiji dead shows and repairs their dead letters.\n\n" +
			"Exit status: 3 if a queue does not exist, 4 if no consumer answers a command.",
		Example: "  swarmiji queue ls\n" +
			"  swarmiji queue show reports",
		Args:        cobra.NoArgs,
		Annotations: map[string]string{cli.Offline: "yes"}, // only shows its help
		RunE: func(cmd *cobra.Command, _ []string) error {
			return errors.Join(cmd.Help(), fmt.Errorf("%w: queue what? ls, show, messages, keys, pause, resume, purge, limit, add or remove", cli.ErrUsage))
		},
	}
	cmd.AddCommand(a.queueListCmd("ls [QUEUE...]", "swarmiji queue ls"), a.queueShowCmd(), a.queueMessagesCmd(), a.queueKeysCmd(), a.pauseCmd("swarmiji queue pause"), a.resumeCmd("swarmiji queue resume"), a.queuePurgeCmd(), a.queueLimitCmd())
	cmd.AddCommand(a.queueServeCmds()...)
	return cmd
}

// queuesCmd is the old name of queue ls.
func (a *app) queuesCmd() *cobra.Command {
	return a.queueListCmd("queues [QUEUE...]", "swarmiji queues")
}

// queueListCmd lists queues. name is the whole command, for the examples.
func (a *app) queueListCmd(use, name string) *cobra.Command {
	var t cli.Target
	cmd := &cobra.Command{
		Use:   use,
		Short: "Show how many tasks are in queues",
		Long: "It prints for each queue how many tasks wait (READY), are held by consumers (HELD), are delayed (DELAYED) and\n" +
			"are dead letters (DEAD), for how long the oldest waiting task waits, how many consumers serve it, and how many\n" +
			"of them have paused it.\n\n" +
			"Without names it shows the queues that the broker lists, those of the consumers that answer or send heartbeats,\n" +
			"and \"default\". RabbitMQ lists none: name the queues of consumers that do not run. The command changes nothing.\n" +
			"A number that is not known is \"?\", and -1 in JSON.\n\n" +
			"Exit status: 3 if a named queue does not exist; the others are printed.",
		Example: "  " + name + "\n" +
			"  " + name + " reports mail -o json",
		RunE: func(cmd *cobra.Command, args []string) error { return a.queueList(cmd.Context(), &t, args) },
	}
	t.Listen(cmd)
	return cmd
}

func (a *app) queueList(ctx context.Context, t *cli.Target, names []string) error {
	if err := t.Check(); err != nil {
		return err
	}
	for _, q := range names {
		if err := task.CheckName(q); err != nil {
			return err
		}
	}
	return a.Inspect(ctx, cli.Inspection{Listen: t.Collect, Replies: t.Replies}, func(ctx context.Context, api inspect.API) error {
		var notes []string
		all, err := cli.Pages(func(cursor string) ([]inspect.Queue, string, error) {
			page, err := api.ListQueues(ctx, inspect.QueueQuery{Names: names, Cursor: cursor})
			notes = append(notes, page.Notes...)
			return page.Queues, page.Next, err
		})
		if err != nil {
			return err
		}
		a.Noted(notes[:min(len(notes), 1)])
		tab := &cli.Table{Head: []string{"QUEUE", "READY", "HELD", "DELAYED", "DEAD", "OLDEST", "CONSUMERS", "PAUSED"}}
		found := make(map[string]bool)
		for i := range all {
			q := &all[i]
			found[q.Name] = true
			tab.Add(q.Name, told(q.Ready), told(q.Held), told(q.Delayed), told(q.Dead), age(q), told(q.Consumers), pausedText(q))
		}
		if all == nil {
			all = []inspect.Queue{}
		}
		var missing []error
		for _, name := range names {
			if !found[name] {
				missing = append(missing, reach.Also(fmt.Errorf("queue %s: %w", name, cli.ErrNotFound), broker.ErrNoQueue))
			}
		}
		return errors.Join(append(missing, a.Show(all, tab))...)
	})
}

// told formats a number of a queue for people.
func told(n int) string {
	if n < 0 {
		return "?"
	}
	return strconv.Itoa(n)
}

// age formats how long the oldest waiting task of a queue waits.
func age(q *inspect.Queue) string {
	if q.Oldest.IsZero() {
		return ""
	}
	text := time.Since(q.Oldest).Truncate(time.Second).String()
	if q.OldestGuess {
		return "about " + text
	}
	return text
}

// pausedText describes the pause of a queue.
func pausedText(q *inspect.Queue) string {
	switch {
	case q.Pause != nil && q.Pause.Until.IsZero():
		return "yes"
	case q.Pause != nil:
		return "until " + cli.Cell(q.Pause.Until)
	case q.Paused > 0:
		return fmt.Sprintf("%d of %d", q.Paused, q.Consumers)
	}
	return ""
}

func (a *app) queueShowCmd() *cobra.Command {
	var t cli.Target
	cmd := &cobra.Command{
		Use:   "show QUEUE",
		Short: "Show one queue and its consumers",
		Long: "Show prints what is in a queue, and the consumers that serve it: their workers, running and fetched tasks, and\n" +
			"whether they have paused it. It changes nothing. Exit status: 3 if the queue does not exist.",
		Example: "  swarmiji queue show reports\n" +
			"  swarmiji queue show reports -o json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.queueShow(cmd.Context(), &t, args[0]) },
	}
	t.Listen(cmd)
	return cmd
}

// queueShown is the output of queue show.
type queueShown struct {
	inspect.Queue
	Serving []inspect.Worker `json:"serving"` // its consumers
}

func (a *app) queueShow(ctx context.Context, t *cli.Target, name string) error {
	if err := errors.Join(t.Check(), task.CheckName(name)); err != nil {
		return err
	}
	return a.Inspect(ctx, cli.Inspection{Listen: t.Collect, Replies: t.Replies}, func(ctx context.Context, api inspect.API) error {
		q, err := api.GetQueue(ctx, name)
		if err != nil {
			return err
		}
		out := queueShown{Queue: q, Serving: []inspect.Worker{}}
		tab := &cli.Table{Head: []string{"QUEUE", q.Name}}
		tab.Add("READY", told(q.Ready))
		tab.Add("HELD", told(q.Held))
		tab.Add("DELAYED", told(q.Delayed))
		tab.Add("DEAD", told(q.Dead))
		tab.Add("OLDEST", age(&q))
		tab.Add("CONSUMERS", told(q.Consumers))
		tab.Add("WORKERS", fmt.Sprintf("%d, %d active, %d reserved", q.Workers, q.Active, q.Reserved))
		tab.Add("PAUSED", pausedText(&q))
		if q.Pause != nil {
			tab.Add("BY", q.Pause.By)
			tab.Add("REASON", q.Pause.Reason)
		}
		workers, err := cli.Pages(func(cursor string) ([]inspect.Worker, string, error) {
			page, err := api.ListWorkers(ctx, inspect.WorkerQuery{Cursor: cursor})
			return page.Workers, page.Next, err
		})
		if err != nil && !errors.Is(err, inspect.ErrUnsupported) {
			return err
		}
		for i := range workers {
			w := &workers[i]
			for _, s := range w.Serves {
				if s.Name != name {
					continue
				}
				out.Serving = append(out.Serving, *w)
				state := ""
				if s.Paused {
					state = ", paused"
				}
				tab.Add("NODE", fmt.Sprintf("%s: %d workers, %d active, %d reserved%s", w.Node, s.Workers, s.Active, s.Reserved, state))
			}
		}
		return a.Show(out, tab)
	})
}

func (a *app) queueMessagesCmd() *cobra.Command {
	var q inspect.MessageQuery
	place := ""
	cmd := &cobra.Command{
		Use:   "messages QUEUE",
		Short: "List the messages of a queue",
		Long: "Messages prints the messages that wait in a queue, or with --place those that are delayed, held by consumers\n" +
			"or dead: the id of the task, its name, a time, attempt and size. The time is since when it waits, when it is\n" +
			"due, when its lease ends, or when it was dead-lettered. Arguments are not shown. It changes nothing.\n\n" +
			"It prints at most --limit messages. If there are more, a line on the standard error says with which --after to\n" +
			"continue. Exit status: 3 if the queue does not exist, 1 if the broker cannot show these messages, such as\n" +
			"RabbitMQ.",
		Example: "  swarmiji queue messages reports\n" +
			"  swarmiji queue messages reports --place delayed --limit 1000 -o csv",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			q.Queue, q.Place = args[0], broker.Place(place)
			return a.Inspect(cmd.Context(), cli.Inspection{}, func(ctx context.Context, api inspect.API) error {
				page, err := api.ListMessages(ctx, q)
				if err != nil {
					return err
				}
				tab := &cli.Table{Head: []string{"ID", "NAME", "AT", "SENT", "ATTEMPT", "BYTES", "REASON"}}
				for _, m := range page.Messages {
					tab.Add(string(m.ID), m.Name, m.At, m.Sent, m.Attempt, m.Size, cli.Cut(m.Reason+m.Unread))
				}
				if page.Next != "" {
					a.Say("there are more: --after %s", quoted(page.Next))
				}
				return a.Show(page.Messages, tab)
			})
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&place, "place", string(broker.PlaceWaiting), "`place` of the messages: waiting, delayed, held or dead")
	f.IntVarP(&q.Limit, "limit", "n", inspect.DefaultLimit, fmt.Sprintf("maximum number of messages, 1 to %d", inspect.MaxLimit))
	f.StringVar(&q.Cursor, "after", "", "continue after this `position`, which an earlier call has printed")
	return cmd
}

// quoted returns a text of another program for a shell.
func quoted(text string) string { return "'" + cli.Visible(text) + "'" }

func (a *app) queuePurgeCmd() *cobra.Command {
	var yes, dryRun bool
	cmd := &cobra.Command{
		Use:   "purge QUEUE",
		Short: "Delete the tasks that wait in a queue",
		Long: "Purge deletes the tasks that wait in a queue for a consumer, for good and without a record, and prints their\n" +
			"number. Held, delayed and dead ones stay. It needs --yes, or at a terminal the name of the queue, typed. With\n" +
			"--dry-run it only counts them.\n\n" +
			"Exit status: 3 if the queue does not exist.",
		Example: "  swarmiji queue purge reports --dry-run\n" +
			"  swarmiji queue purge reports --yes",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.Confirmed(cmd.Context(), yes, dryRun, args[0]); err != nil {
				return err
			}
			return a.Inspect(cmd.Context(), cli.Inspection{}, func(ctx context.Context, api inspect.API) error {
				c, err := api.PurgeQueue(ctx, inspect.Purge{Queue: args[0], DryRun: dryRun})
				if err != nil {
					return err
				}
				done := fmt.Sprintf("%d deleted", c.Done)
				if dryRun {
					a.SayDryRun()
					done = fmt.Sprintf("%d would be deleted", c.Done)
				}
				t := &cli.Table{Head: []string{"TARGET", "DONE"}}
				t.Add(c.Target, done)
				return a.Show(c, t)
			})
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only count the tasks")
	cmd.Flags().BoolVar(&yes, "yes", false, "confirm; without it nothing is deleted")
	return cmd
}
