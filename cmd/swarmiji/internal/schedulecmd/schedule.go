// Package schedulecmd has the commands swarmiji schedule: they show and change the entries of a
// schedule.
package schedulecmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/task"
)

// app is the program, with the commands of this package as methods.
type app struct{ *cli.App }

// Command makes the command schedule.
func Command(a *cli.App) *cobra.Command { return (&app{a}).scheduleCmd() }

// storeOptions holds the flags that name the schedule, and the store of its results.
type storeOptions struct{ url, name, results string }

func (a *app) scheduleCmd() *cobra.Command {
	var o storeOptions
	cmd := &cobra.Command{
		Use:   "schedule add|sync|ls|show|next|run|pause|resume|rm",
		Short: "Add, show and change entries of a schedule",
		Long: "Schedule adds entries, each of which runs a task once or repeatedly. It shows, pauses, resumes, runs and\n" +
			"removes them. Entries run only while a listener of the schedule runs; see docs/schedules.md. These commands\n" +
			"need no broker.\n\n" +
			"--store names the server or file that holds the schedule: redis://host:6379, nats://host:4222,\n" +
			"sqlite:///path/app.db or postgres://user:password@host/database. The name of an entry, or the beginning of its\n" +
			"id, 4 characters or more, may stand for the id.\n\n" +
			"Exit status: 3 if an entry does not exist, 2 if several entries begin with the given text.",
		Example: "  swarmiji schedule add \"every weekday at 9am\" report.make --store redis://host:6379\n" +
			"  SWARMIJI_SCHEDULE=sqlite:///var/lib/app.db swarmiji schedule ls",
		Args:        cobra.NoArgs,
		Annotations: map[string]string{cli.Offline: "yes"}, // only shows its help
		RunE: func(cmd *cobra.Command, _ []string) error {
			return errors.Join(cmd.Help(), fmt.Errorf("%w: schedule what? add, sync, ls, show, next, run, pause, resume or rm", cli.ErrUsage))
		},
	}
	f := cmd.PersistentFlags()
	f.StringVar(&o.url, "store", "", "`URL` of the store that holds the schedule; default: $SWARMIJI_SCHEDULE, or else the URL of the broker, if its server can hold a schedule")
	f.StringVar(&o.name, "schedule", "", "`name` of the schedule; default: \"default\"")
	cmd.AddCommand(
		a.scheduleAddCmd(&o), a.scheduleSyncCmd(&o), a.scheduleListCmd(&o), a.scheduleShowCmd(&o), a.scheduleNextCmd(), a.scheduleRunCmd(&o),
		a.schedulePauseCmd(&o), a.scheduleResumeCmd(&o), a.scheduleRemoveCmd(&o),
	)
	for _, sub := range cmd.Commands() {
		sub.Annotations = map[string]string{cli.Offline: "yes"} // no broker
	}
	return cmd
}

// withSchedule opens a schedule, calls do within --timeout, and closes it. If fresh is true, a
// missing SQLite file is created. loc is the zone of phrases; nil: UTC.
func (a *app) withSchedule(ctx context.Context, o *storeOptions, fresh bool, loc *time.Location, do func(ctx context.Context, s *schedule.Schedule) error) (err error) {
	url := cmp.Or(o.url, a.Schedule, a.Getenv("SWARMIJI_SCHEDULE"), a.Broker)
	if url == "" {
		return fmt.Errorf("%w: no store; give --store or set SWARMIJI_SCHEDULE, such as redis://host:6379 or sqlite:///path/app.db", cli.ErrUsage)
	}
	if err := cli.NotMemory(url); err != nil {
		return err
	}
	if !fresh {
		if err := cli.Existing("--store, SWARMIJI_SCHEDULE or SWARMIJI_BROKER names the database of the schedule, which swarmiji schedule add creates", url); err != nil {
			return err
		}
	}
	if err := cli.Existing("--results names the database of the results of the consumers", o.results); err != nil {
		return err
	}
	a.Hide(url, open.RedactSchedule(url))
	ctx, cancel := a.Limited(ctx)
	defer cancel()
	logger := slog.New(slog.NewTextHandler(a.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	store, err := open.Schedule(ctx, url, open.ScheduleOptions{Name: o.name, Logger: logger})
	if err != nil {
		return fmt.Errorf("%w: %w", cli.ErrUsage, err) // no I/O was done: the URL is wrong
	}
	defer cli.CloseAfter(ctx, store.Close, &err)
	results, closeResults, err := a.scheduleResults(ctx, o)
	if err != nil {
		return err
	}
	defer closeResults()
	s, err := schedule.New(schedule.Config{Store: store, Location: loc, Results: results})
	if err != nil {
		return fmt.Errorf("%w: %w", cli.ErrUsage, err)
	}
	return do(ctx, s)
}

// scheduleResults opens the result store of --results; without the flag it returns nil. Call the
// function to close it.
func (a *app) scheduleResults(ctx context.Context, o *storeOptions) (resultstore.ResultStore, func(), error) {
	if o.results == "" {
		return nil, func() {}, nil
	}
	a.Hide(o.results, open.Redact(o.results))
	results, err := open.Results(ctx, o.results, open.Options{Namespace: a.Namespace})
	if err != nil {
		return nil, nil, fmt.Errorf("%w: --results: %w", cli.ErrUsage, err)
	}
	return results, func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), cli.CloseTime)
		defer cancel()
		_ = results.Close(closing) // it was only read
	}, nil
}

// entryState returns the state of an entry in one word.
func entryState(s *inspect.Schedule) string {
	switch {
	case s.Problem != "":
		return "broken"
	case s.Paused:
		return "paused"
	case s.Next.IsZero():
		return "running" // or dropped
	}
	return "waiting"
}

// addedOutput is the output of add and run.
type addedOutput struct {
	ID      string    `json:"id"`
	New     bool      `json:"new"`
	Changed bool      `json:"changed,omitempty"`
	Next    time.Time `json:"next,omitzero"`
	When    string    `json:"when"`
	Echo    string    `json:"echo"`
}

// showAdded prints the id for scripts, and how the phrase was understood.
func (a *app) showAdded(added *schedule.Added) error {
	o := addedOutput{ID: added.ID, New: added.New, Changed: added.Changed, Next: added.Next.UTC(), Echo: added.Echo}
	if added.Next.IsZero() {
		o.Next = time.Time{}
	}
	if added.Spec != nil {
		o.When = added.Spec.String()
	}
	t := &cli.Table{Head: []string{o.ID}}
	t.Add(o.Echo)
	switch {
	case o.Changed:
		t.Add("it was there already and was changed")
	case !o.New:
		t.Add("it was there already: nothing has changed")
	}
	return a.Show(o, t)
}

// scheduled returns the call of a task with JSON arguments. Names may be those of other languages.
func (a *app) scheduled(name string, given []string) (task.Call, error) {
	arguments, err := a.Arguments(given)
	if err != nil {
		return task.Call{}, err
	}
	return task.New[any, any](name).Call(arguments), nil
}

// withEntries calls do with the inspection API over a schedule.
func (a *app) withEntries(ctx context.Context, o *storeOptions, do func(ctx context.Context, api inspect.API) error) error {
	if a.API != "" {
		return a.Remote(ctx, &cli.Inspection{}, do)
	}
	return a.withSchedule(ctx, o, false, nil, func(ctx context.Context, s *schedule.Schedule) error {
		return a.WithAudited(ctx, inspect.Config{Schedule: s}, func(api inspect.API) error { return do(ctx, api) })
	})
}
