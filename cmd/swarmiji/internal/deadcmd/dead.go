// Package deadcmd has the commands swarmiji dead: they show, requeue, drop and copy dead letters.
package deadcmd

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/deadletter"
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

// deadFilter holds the flags that select dead letters.
type deadFilter struct {
	ids     []string
	headers []string
	f       deadletter.Filter
	all     bool
}

// flags adds the flags to cmd. limit is the default of --limit.
func (d *deadFilter) flags(cmd *cobra.Command, limit int) {
	f := cmd.Flags()
	f.StringArrayVar(&d.ids, "id", nil, "`id` of a task; may be repeated; default: any")
	f.StringVar(&d.f.Task, "task", "", "`name` of the tasks; * stands for any text; default: any")
	f.StringVar((*string)(&d.f.Root), "root", "", "`id` of the workflow of the tasks; default: any")
	f.StringVar(&d.f.Error, "error", "", "`text` that the reason contains, case-sensitive; default: any")
	f.StringArrayVar(&d.headers, "header", nil, "`key=value` of a header of the task; may be repeated: all must match; default: any")
	f.DurationVar(&d.f.OlderThan, "older-than", 0, "only letters older than this, such as 24h; default: any")
	f.DurationVar(&d.f.YoungerThan, "younger-than", 0, "only letters younger than this, such as 2h; default: any")
	f.IntVar(&d.f.Limit, "limit", limit, "maximum number of letters, the oldest first; 0: no limit")
	f.IntVar(&d.f.Limit, "count", limit, "")
	_ = f.MarkHidden("count") // the old name of --limit
	f.BoolVar(&d.all, "all", false, "ignore --limit; other flags still select letters")
}

// filter returns the filter of the flags, and whether any flag selects letters.
func (d *deadFilter) filter() (f deadletter.Filter, some bool, err error) {
	f = d.f
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
		f.Limit = 0
	}
	if f.Limit < 0 || f.OlderThan < 0 || f.YoungerThan < 0 {
		return f, false, fmt.Errorf("%w: --limit is %d, --older-than %v, --younger-than %v", cli.ErrUsage, f.Limit, f.OlderThan, f.YoungerThan)
	}
	some = d.all || f.IDs != nil || f.Task != "" || f.Root != "" || f.Error != "" || f.Headers != nil || f.OlderThan > 0 || f.YoungerThan > 0 || f.Limit > 0
	return f, some, nil
}

// deadChangeOf returns the filter for the inspection API.
func deadChangeOf(queue string, f *deadletter.Filter) inspect.DeadChange {
	return inspect.DeadChange{DeadFilter: inspect.DeadFilter{
		Queue: queue, IDs: f.IDs, Name: f.Task, Root: f.Root, Error: f.Error, Headers: f.Headers,
		OlderThan: inspect.Duration(f.OlderThan), YoungerThan: inspect.Duration(f.YoungerThan),
	}}
}

// inParts changes the letters of f, or as many as its limit says, in calls of a bounded size.
func inParts(f *deadletter.Filter, c inspect.DeadChange, do func(c inspect.DeadChange) (inspect.Change, error)) (sum inspect.Change, err error) {
	left := f.Limit
	for {
		if f.Limit > 0 {
			c.Limit = min(left, inspect.MaxBulk)
		}
		one, err := do(c)
		left -= one.Done + one.Already
		one.Done, one.Already, one.Unfenced = one.Done+sum.Done, one.Already+sum.Already, one.Unfenced+sum.Unfenced
		sum = one // each call sees all letters that are refused
		if err != nil || !one.More || f.Limit > 0 && left <= 0 {
			return sum, err
		}
	}
}

// deadOutput is the output for one dead letter.
type deadOutput struct {
	ID         string    `json:"id"`
	Name       string    `json:"name,omitempty"` // "" if the message cannot be read
	Queue      string    `json:"queue"`
	Reason     string    `json:"reason"`
	Attempts   int       `json:"attempts,omitempty"` // 0: unknown
	At         time.Time `json:"at"`
	Life       int       `json:"life,omitempty"`
	Generation int       `json:"generation"`
	Size       int       `json:"size"`

	Stack       string            `json:"stack,omitempty"`
	ContentType string            `json:"content_type,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	Parent      task.ID           `json:"parent,omitempty"`
	Root        task.ID           `json:"root,omitempty"`
	Group       task.ID           `json:"group,omitempty"`
	GroupIndex  int               `json:"group_index,omitempty"`
	AtMostOnce  bool              `json:"at_most_once,omitempty"` // as the producer stated
	// letters of this task; this is the newest
	Letters int `json:"letters,omitempty"`
	Retries int `json:"retries,omitempty"`
	Args    any `json:"args,omitempty"`
}

// letter describes a dead letter. full adds all fields of the message, args adds the arguments.
func (a *app) letter(l *deadletter.Letter, full, args bool) deadOutput {
	m := l.Message
	o := deadOutput{
		ID: string(l.ID), Name: l.Name(), Queue: l.Queue, Reason: l.Reason, Attempts: l.Attempts, At: l.At, Life: l.Life,
		Generation: m.Generation, Size: len(m.Body),
	}
	e := l.Task
	if !full || e == nil {
		return o
	}
	o.Stack, o.ContentType, o.Headers, o.Parent, o.Root, o.Retries = l.Stack, l.ContentType, e.Headers, e.Parent, e.Root, e.Retries
	meta := e.Meta
	if e.Base != nil {
		meta = task.Merge(*e.Base, e.Meta)
	}
	o.Group, o.GroupIndex, o.AtMostOnce = e.Group, e.GroupIndex, !meta.Idempotent.Or(true)
	if args {
		v, err := any(nil), l.Unread
		if err == nil {
			v, err = cli.Readable(e.ContentType, e.Args)
		}
		if err != nil {
			v = "cannot be read: " + a.Remedy(err).Error()
		}
		o.Args = v
	}
	return o
}
