package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/deadletter"
	"github.com/swarmiji/swarmiji/task"
)

func (a *app) deadListCmd() *cobra.Command {
	var which deadFilter
	cmd := &cobra.Command{
		Use:   "list QUEUE",
		Short: "Show the dead letters of a queue",
		Long:  "List shows the dead letters of a queue, the oldest first.",
		Example: "  swarmiji dead list reports\n" +
			"  swarmiji dead list reports --task 'report.*' --error timeout --younger-than 24h\n" +
			"  swarmiji dead list reports --all -o json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, _, err := which.filter()
			if err != nil {
				return err
			}
			return a.deadLetters(cmd, args[0], !which.all, func(ctx context.Context, l *deadletter.Letters) error {
				out := []deadOutput{}
				t := &table{head: []string{"ID", "NAME", "SINCE", "ATTEMPTS", "BYTES", "REASON"}}
				err := l.List(ctx, args[0], f, func(letter *deadletter.Letter) bool {
					o := a.letter(letter, false, false)
					out = append(out, o)
					t.add(o.ID, o.Name, o.At, attempts(o.Attempts), o.Size, o.Reason)
					return true
				})
				if err != nil {
					return err
				}
				return a.show(out, t)
			})
		},
	}
	which.flags(cmd, 100)
	return cmd
}

// attempts is a count in a table, "" where it is not known.
func attempts(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

func (a *app) deadShowCmd() *cobra.Command {
	var args bool
	cmd := &cobra.Command{
		Use:   "show QUEUE ID",
		Short: "Show one dead letter",
		Long: "Show prints a dead letter without its arguments, since these may hold secrets; --args prints them too, opened with\n" +
			"--key-file where they are sealed. Of several letters of one task it shows the oldest. LIFE is how often the task was\n" +
			"requeued, and GENERATION counts its messages: each retry, snooze and requeue adds one.",
		Example: "  swarmiji dead show reports report-2026-10\n" +
			"  swarmiji dead show reports report-2026-10 --args -o json",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, given []string) error {
			return a.deadLetters(cmd, given[0], true, func(ctx context.Context, l *deadletter.Letters) error {
				var o *deadOutput
				err := l.List(ctx, given[0], deadletter.Filter{IDs: []task.ID{task.ID(given[1])}, Limit: 1}, func(letter *deadletter.Letter) bool {
					shown := a.letter(letter, true, args)
					o = &shown
					return false
				})
				switch {
				case err != nil:
					return err
				case o == nil:
					return fmt.Errorf("queue %s has no dead letter %s: %w", given[0], visible(given[1]), errNotFound)
				}
				return a.show(o, o.table(args))
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
	t.add("SINCE", o.At)
	t.add("AGE", time.Since(o.At).Truncate(time.Second))
	t.add("REASON", o.Reason)
	t.add("ATTEMPTS", attempts(o.Attempts))
	t.add("LIFE", o.Life)
	t.add("GENERATION", o.Generation)
	t.add("RETRIES", o.Retries)
	t.add("BYTES", o.Size)
	t.add("CONTENT", o.ContentType)
	t.add("PARENT", string(o.Parent))
	t.add("ROOT", string(o.Root))
	for _, k := range slices.Sorted(maps.Keys(o.Headers)) {
		t.add("HEADER", k+"="+o.Headers[k])
	}
	if args {
		t.add("ARGS", compact(o.Args))
	}
	head := "STACK"
	for line := range strings.Lines(o.Stack) {
		t.add(head, strings.ReplaceAll(strings.TrimRight(line, "\n"), "\t", "  "))
		head = ""
	}
	return t
}
