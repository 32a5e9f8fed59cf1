package deadcmd

import (
	"context"
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

func (a *app) deadListCmd() *cobra.Command {
	var which deadFilter
	cmd := &cobra.Command{
		Use:   "list QUEUE",
		Short: "List the dead letters of a queue",
		Long: "List prints the dead letters of a queue that match all flags, the oldest first: task id, name, since when,\n" +
			"attempts, size and reason. It changes nothing. If there are more than --limit, or several letters of one task,\n" +
			"a line on the standard error says so. A queue without dead letters gives an empty list and status 0. --timeout\n" +
			"limits only the connecting.",
		Example: "  swarmiji dead list reports\n" +
			"  swarmiji dead list reports --task 'report.*' --error timeout --younger-than 24h\n" +
			"  swarmiji dead list reports --all -o json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, _, err := which.of(args[0])
			if err != nil {
				return err
			}
			return a.withAPI(cmd.Context(), args[0], func(ctx context.Context, api inspect.API) error {
				out := []inspect.DeadLetter{}
				more, err := inPages(&f, func(q inspect.DeadQuery) (int, string, error) {
					page, err := api.ListDead(ctx, q)
					out = append(out, page.Letters...)
					return len(page.Letters), page.Next, err
				})
				if err != nil {
					return err
				}
				t := &cli.Table{Head: []string{"ID", "NAME", "SINCE", "ATTEMPTS", "BYTES", "REASON"}}
				tasks := make(map[string]bool)
				for i := range out {
					o := &out[i]
					tasks[o.ID] = true
					t.Add(o.ID, o.Name, o.At, attempts(o.Attempts), o.Size, o.Reason)
				}
				if more {
					a.Say("these are the oldest %d of more; --limit N or --all shows them", len(out))
				}
				if len(tasks) < len(out) {
					a.Say("these are %d letters of %d tasks", len(out), len(tasks))
				}
				return a.Show(out, t)
			})
		},
	}
	which.flags(cmd, 100)
	return cmd
}

// inPages reads the letters of f, or as many as its limit says, in pages. page returns the number
// of its letters and the next cursor. more reports that there are letters beyond the limit.
func inPages(f *selection, page func(q inspect.DeadQuery) (n int, next string, err error)) (more bool, err error) {
	left := f.limit
	for q := (inspect.DeadQuery{DeadFilter: f.DeadFilter, Limit: inspect.MaxLimit}); ; {
		if f.limit > 0 {
			q.Limit = min(left, inspect.MaxLimit)
		}
		n, next, err := page(q)
		left -= n
		if err != nil || next == "" || f.limit > 0 && left <= 0 {
			return next != "", err
		}
		q.Cursor = next
	}
}

// attempts formats a count for a table. It returns "" for an unknown count.
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
		Long: "Show prints a dead letter of a queue, by the id of its task. It changes nothing. Arguments may hold secrets,\n" +
			"so they are printed only with --args; sealed ones need --key-file. Of several letters of one task it shows the\n" +
			"newest.\n\n" +
			"LIFE is how often the task was requeued. GENERATION counts the messages of the task: each retry, snooze (a\n" +
			"postponement by the handler) and requeue adds one. --timeout limits only the connecting. Exit status: 3 if the\n" +
			"queue has no such letter.",
		Example: "  swarmiji dead show reports report-2026-10\n" +
			"  swarmiji dead show reports report-2026-10 --args -o json",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, given []string) error {
			return a.withAPI(cmd.Context(), given[0], func(ctx context.Context, api inspect.API) error {
				l, err := api.GetDead(ctx, inspect.DeadKey{Queue: given[0], ID: task.ID(given[1]), Args: args})
				if err != nil {
					return err
				}
				return a.Show(&l, table(&l, args))
			})
		},
	}
	cmd.Flags().BoolVar(&args, "args", false, "also show the arguments")
	return cmd
}

// table returns the fields of a dead letter.
func table(o *inspect.DeadLetter, args bool) *cli.Table {
	t := &cli.Table{Head: []string{"ID", cli.Visible(o.ID)}}
	t.Add("NAME", o.Name)
	t.Add("QUEUE", o.Queue)
	t.Add("SINCE", o.At)
	if !o.At.IsZero() {
		t.Add("AGE", time.Since(o.At).Truncate(time.Second))
	}
	t.Add("REASON", o.Reason)
	if o.Letters > 1 {
		t.Add("LETTERS", fmt.Sprintf("%d, this is the newest", o.Letters))
	}
	t.Add("ATTEMPTS", attempts(o.Attempts))
	t.Add("LIFE", o.Life)
	t.Add("GENERATION", o.Generation)
	t.Add("RETRIES", o.Retries)
	t.Add("BYTES", o.Size)
	t.Add("CONTENT", o.ContentType)
	t.Add("PARENT", string(o.Parent))
	t.Add("ROOT", string(o.Root))
	if o.Group != "" {
		t.Add("GROUP", fmt.Sprintf("%s, member %d", o.Group, o.GroupIndex))
	}
	if o.AtMostOnce {
		t.Add("RUNS", "at most once")
	}
	for _, k := range slices.Sorted(maps.Keys(o.Headers)) {
		t.Add("HEADER", k+"="+o.Headers[k])
	}
	switch {
	case args && o.Withheld != "":
		t.Add("ARGS", "not shown: "+o.Withheld)
	case args && o.Unread != "":
		t.Add("ARGS", "cannot be read: "+o.Unread)
	case args:
		t.Add("ARGS", cli.Compact(o.Args))
	}
	head := "STACK"
	for line := range strings.Lines(o.Stack) {
		t.Add(head, strings.ReplaceAll(strings.TrimRight(line, "\n"), "\t", "  "))
		head = ""
	}
	return t
}
