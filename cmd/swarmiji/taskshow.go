package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/task"
)

func (a *app) taskShowCmd(url *string) *cobra.Command {
	var live search
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show what happened to a task",
		Long: "Show prints what the events told about a task, and its timeline: when it was sent, received and started, each\n" +
			"failed attempt with its error, and its end. Times are by the clocks of the nodes. Arguments and result are\n" +
			"shown as far as the programs allow it (events.Report). It changes nothing.\n\n" +
			"Without a history it shows what the result store, the queues, the consumers and the dead letters know of the\n" +
			"task, without arguments and result.\n\n" +
			"Exit status: 3 if nothing is known of the task.",
		Example: "  swarmiji task show 0199ac31 --store sqlite:///var/lib/history.db\n" +
			"  swarmiji task show 0199ac31 -o json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if *url == "" && a.getenv("SWARMIJI_HISTORY") == "" {
				return a.showLive(cmd, &live, args[0])
			}
			ctx, cancel := a.limited(cmd.Context())
			defer cancel()
			return a.withHistory(ctx, *url, func(ctx context.Context, s open.HistoryStore) error {
				r, err := s.Get(ctx, task.ID(args[0]))
				switch {
				case errors.Is(err, history.ErrNotFound):
					return fmt.Errorf("%w: task %s is not in the history; check id and --namespace, and whether swarmiji history record ran then", errNotFound, visible(args[0]))
				case err != nil:
					return err
				case a.output == "json":
					return a.json(&r)
				}
				return errors.Join(a.show(nil, factsTable(&r)), a.blankLine(), a.show(nil, timelineTable(&r)), a.showStack(&r))
			})
		},
	}
	live.flags(cmd)
	return cmd
}

// blankLine prints an empty line.
func (a *app) blankLine() error {
	_, err := fmt.Fprintln(a.stdout)
	return err
}

// showStack prints the stack of the last error.
func (a *app) showStack(r *history.Record) error {
	if r.Stack == "" {
		return nil
	}
	lines := strings.Split(strings.TrimSpace(r.Stack), "\n")
	for i := range lines {
		lines[i] = visible(strings.ReplaceAll(lines[i], "\t", "    "))
	}
	_, err := fmt.Fprintf(a.stdout, "\n%s\n", strings.Join(lines, "\n"))
	return err
}

// factsTable returns the fields of a record that are not empty.
func factsTable(r *history.Record) *table {
	t := &table{head: []string{"TASK", string(r.ID)}}
	add := func(name, text string) {
		if text != "" {
			t.add(name, text)
		}
	}
	number := func(n int) string {
		if n == 0 {
			return ""
		}
		return fmt.Sprint(n)
	}
	add("name", r.Name)
	add("queue", r.Queue)
	add("state", stateOf(r))
	add("node", r.Node)
	add("attempts", number(r.Attempts))
	add("requeued", number(r.Life))
	add("wait", spent(r.Wait))
	add("run", spent(r.Run))
	add("parent", string(r.Parent))
	add("root", string(r.Root))
	add("group", string(r.Group))
	keys := make([]string, 0, len(r.Headers))
	for k := range r.Headers {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		add("header."+k, r.Headers[k])
	}
	add("args", r.Args)
	add("result", r.Result)
	if p := r.Progress; p != nil {
		add("progress", strings.TrimSpace(fmt.Sprintf("%d of %d %s", p.Done, p.Total, p.Note)))
	}
	add("class", r.Class)
	add("error", r.Error)
	return t
}

// timelineTable returns the timeline of a record.
func timelineTable(r *history.Record) *table {
	t := &table{head: []string{"TIME", "AFTER", "EVENT", "ATTEMPT", "NODE", "DETAIL"}}
	for i := range r.Timeline {
		e := &r.Timeline[i]
		attempt := fmt.Sprint(e.Attempt)
		if e.Life > 0 {
			attempt += fmt.Sprintf(" of life %d", e.Life+1)
		}
		t.add(e.Time, spent(e.Time.Sub(r.Timeline[0].Time)), string(e.Kind), attempt, e.Node, detail(e))
	}
	return t
}

// detail returns what an entry tells beside its kind.
func detail(e *history.Entry) string {
	var parts []string
	if e.Queue != "" {
		parts = append(parts, "queue "+e.Queue)
	}
	if !e.Due.IsZero() {
		parts = append(parts, "not before "+cell(e.Due))
	}
	if e.Run > 0 {
		parts = append(parts, "ran "+e.Run.Round(time.Microsecond).String())
	}
	if e.Kind == history.KindProgress {
		parts = append(parts, strings.TrimSpace(fmt.Sprintf("%d of %d %s", e.Done, e.Total, e.Note)))
	}
	if e.DeadLetter {
		parts = append(parts, "dead-lettered")
	}
	if e.Error != "" {
		parts = append(parts, cut(strings.TrimSpace(e.Class+" "+e.Error)))
	}
	return strings.Join(parts, ", ")
}
