// Package deadcmd has the commands swarmiji dead: they show, requeue, drop and copy dead letters.
package deadcmd

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/task"
)

// app is the program, with the commands of this package as methods.
type app struct{ *cli.App }

// Command makes the command dead.
func Command(a *cli.App) *cobra.Command { return (&app{a}).deadCmd() }

func (a *app) deadCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dead list|show|requeue|drop|export|import",
		Short: "Show, requeue, drop, export and import dead letters",
		Long: "A task becomes a dead letter of its queue if it fails for good, if its message cannot be read, if no consumer\n" +
			"knows its name, or if it ends the process of its consumer. Dead letters stay until they are requeued or\n" +
			"dropped, or until the limits of the queue remove them (dead_ttl and dead_max in the URL of the broker).\n\n" +
			"Older versions may have left a queue QUEUE.suspects with dead letters of its own. Exit status: 3 if the queue\n" +
			"does not exist.",
		Example: "  swarmiji dead list reports\n" +
			"  swarmiji dead requeue reports --task 'report.*' --error timeout",
		Args:        cobra.NoArgs,
		Annotations: map[string]string{cli.Offline: "yes"}, // only shows its help
		RunE: func(cmd *cobra.Command, _ []string) error {
			return errors.Join(cmd.Help(), fmt.Errorf("%w: dead what? list, show, requeue, drop, export or import", cli.ErrUsage))
		},
	}
	cmd.AddCommand(a.deadListCmd(), a.deadShowCmd(), a.deadRequeueCmd(), a.deadDropCmd(), a.deadExportCmd(), a.deadImportCmd())
	return cmd
}

// withAPI calls do with the inspection API. It has no time limit, because a filter may have to read
// all letters of the queue.
func (a *app) withAPI(ctx context.Context, queue string, do func(ctx context.Context, api inspect.API) error) error {
	if err := task.CheckName(queue); err != nil {
		return err
	}
	return a.Inspect(ctx, cli.Inspection{Endless: true}, do)
}

// selection says which dead letters a command is about.
type selection struct {
	inspect.DeadFilter
	limit int // 0: no limit
}

// deadFilter holds the flags that select dead letters.
type deadFilter struct {
	ids, headers           []string
	name, root, reason     string
	olderThan, youngerThan time.Duration
	limit                  int
	all                    bool
}

// flags adds the flags to cmd. limit is the default of --limit.
func (d *deadFilter) flags(cmd *cobra.Command, limit int) {
	f := cmd.Flags()
	f.StringArrayVar(&d.ids, "id", nil, "`id` of a task; may be repeated; default: any")
	f.StringVar(&d.name, "task", "", "`name` of the tasks; * stands for any text; default: any")
	f.StringVar(&d.root, "root", "", "`id` of the workflow of the tasks; default: any")
	f.StringVar(&d.reason, "error", "", "`text` that the reason contains, case-sensitive; default: any")
	f.StringArrayVar(&d.headers, "header", nil, "`key=value` of a header of the task; may be repeated: all must match; default: any")
	f.DurationVar(&d.olderThan, "older-than", 0, "only letters older than this, such as 24h; default: any")
	f.DurationVar(&d.youngerThan, "younger-than", 0, "only letters younger than this, such as 2h; default: any")
	f.IntVar(&d.limit, "limit", limit, "maximum number of letters, the oldest first; 0: no limit")
	f.IntVar(&d.limit, "count", limit, "")
	_ = f.MarkHidden("count") // the old name of --limit
	f.BoolVar(&d.all, "all", false, "ignore --limit; other flags still select letters")
}

// of returns the letters of a queue that the flags select, and whether any flag selects letters.
func (d *deadFilter) of(queue string) (f selection, some bool, err error) {
	f = selection{inspect.DeadFilter{
		Queue: queue, Name: d.name, Root: task.ID(d.root), Error: d.reason, OlderThan: inspect.Duration(d.olderThan), YoungerThan: inspect.Duration(d.youngerThan),
	}, d.limit}
	for _, id := range d.ids {
		f.IDs = append(f.IDs, task.ID(id))
	}
	for _, h := range d.headers {
		k, v, ok := strings.Cut(h, "=")
		if !ok || k == "" {
			return f, false, fmt.Errorf("%w: --header is %.80q, want key=value", cli.ErrUsage, h)
		}
		if f.Headers == nil {
			f.Headers = make(map[string]string)
		}
		f.Headers[k] = v
	}
	if d.all {
		f.limit = 0
	}
	if d.limit < 0 || d.olderThan < 0 || d.youngerThan < 0 {
		return f, false, fmt.Errorf("%w: --limit is %d, --older-than %v, --younger-than %v", cli.ErrUsage, d.limit, d.olderThan, d.youngerThan)
	}
	some = d.all || f.limit > 0 || !reflect.DeepEqual(f.DeadFilter, inspect.DeadFilter{Queue: queue})
	return f, some, nil
}

// inParts changes the letters of f, or as many as its limit says, in calls of a bounded size.
func inParts(f *selection, c inspect.DeadChange, do func(c inspect.DeadChange) (inspect.Change, error)) (sum inspect.Change, err error) {
	left := f.limit
	for {
		if f.limit > 0 {
			c.Limit = min(left, inspect.MaxBulk)
		}
		one, err := do(c)
		left -= one.Done + one.Already
		one.Done, one.Already, one.Unfenced = one.Done+sum.Done, one.Already+sum.Already, one.Unfenced+sum.Unfenced
		sum = one // each call sees all letters that are refused
		if err != nil || !one.More || f.limit > 0 && left <= 0 {
			return sum, err
		}
	}
}
