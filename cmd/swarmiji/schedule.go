package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/when"
)

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
		Annotations: map[string]string{offline: "yes"}, // only shows its help
		RunE: func(cmd *cobra.Command, _ []string) error {
			return errors.Join(cmd.Help(), fmt.Errorf("%w: schedule what? add, sync, ls, show, next, run, pause, resume or rm", errUsage))
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
		sub.Annotations = map[string]string{offline: "yes"} // no broker
	}
	return cmd
}

// withSchedule opens a schedule, calls do within --timeout, and closes it. loc is the zone of
// phrases; nil: UTC.
func (a *app) withSchedule(ctx context.Context, o *storeOptions, loc *time.Location, do func(ctx context.Context, s *schedule.Schedule) error) (err error) {
	url := cmp.Or(o.url, a.getenv("SWARMIJI_SCHEDULE"), a.broker)
	if url == "" {
		return fmt.Errorf("%w: no store; give --store or set SWARMIJI_SCHEDULE, such as redis://host:6379 or sqlite:///path/app.db", errUsage)
	}
	if strings.HasPrefix(url, "mem:") {
		return fmt.Errorf("%w: mem:// has no use here: nobody can reach the memory of another process", errUsage)
	}
	a.secrets = append(a.secrets, secret{url, open.RedactSchedule(url)})
	ctx, cancel := a.limited(ctx)
	defer cancel()
	logger := slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	store, err := open.Schedule(ctx, url, open.ScheduleOptions{Name: o.name, Logger: logger})
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err) // no I/O was done: the URL is wrong
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
		defer cancel()
		if cerr := store.Close(closing); err == nil {
			err = cerr
		}
	}()
	results, closeResults, err := a.scheduleResults(ctx, o)
	if err != nil {
		return err
	}
	defer closeResults()
	s, err := schedule.New(schedule.Config{Store: store, Location: loc, Results: results})
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	return do(ctx, s)
}

// scheduleResults opens the result store of --results; without the flag it returns nil. Call the
// function to close it.
func (a *app) scheduleResults(ctx context.Context, o *storeOptions) (resultstore.ResultStore, func(), error) {
	if o.results == "" {
		return nil, func() {}, nil
	}
	a.secrets = append(a.secrets, secret{o.results, open.Redact(o.results)})
	results, err := open.Results(ctx, o.results, open.Options{Namespace: a.namespace})
	if err != nil {
		return nil, nil, fmt.Errorf("%w: --results: %w", errUsage, err)
	}
	return results, func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
		defer cancel()
		_ = results.Close(closing) // it was only read
	}, nil
}

// items returns all entries in the order of their next runs.
func items(ctx context.Context, s *schedule.Schedule) ([]schedule.Item, error) {
	var all []schedule.Item
	seen := make(map[string]bool)
	for item, err := range s.List(ctx) {
		if err != nil {
			return nil, err
		}
		if !seen[item.ID] {
			seen[item.ID] = true
			all = append(all, item)
		}
	}
	slices.SortFunc(all, func(a, b schedule.Item) int {
		if a.Next.IsZero() != b.Next.IsZero() {
			return cmp.Compare(btoi(a.Next.IsZero()), btoi(b.Next.IsZero()))
		}
		return cmp.Or(a.Next.Compare(b.Next), cmp.Compare(a.ID, b.ID))
	})
	return all, nil
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// minPrefix is the least length of the beginning of an id.
const minPrefix = 4

// item finds an entry by its id, its name or the beginning of its id.
func item(ctx context.Context, s *schedule.Schedule, id string) (schedule.Item, error) {
	got, err := s.Get(ctx, id)
	if errors.Is(err, schedule.ErrNotFound) {
		got, err = s.Get(ctx, schedule.NameID(id))
	}
	if !errors.Is(err, schedule.ErrNotFound) || len(id) < minPrefix {
		return got, err
	}
	found := 0
	for one, lerr := range s.List(ctx) {
		if lerr != nil {
			return got, lerr
		}
		if len(one.ID) > len(id) && one.ID[:len(id)] == id && one.ID != got.ID {
			got = one
			found++
		}
	}
	switch found {
	case 0:
		return got, err
	case 1:
		return got, nil
	}
	return got, fmt.Errorf("%w: %d entries begin with %s; give more of the id", errUsage, found, visible(id))
}

// entryOutput is the output for an entry.
type entryOutput struct {
	ID      string            `json:"id"`
	Name    string            `json:"name,omitempty"`
	Group   string            `json:"group,omitempty"`
	Job     string            `json:"job,omitempty"`
	When    string            `json:"when,omitempty"`
	Means   string            `json:"means,omitempty"` // in English
	Next    time.Time         `json:"next,omitzero"`
	Last    time.Time         `json:"last,omitzero"`
	Paused  bool              `json:"paused"`
	Args    any               `json:"args,omitempty"`
	Misfire string            `json:"misfire,omitempty"`
	Overlap string            `json:"overlap,omitempty"`
	Nonce   string            `json:"nonce,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	State   bool              `json:"state,omitempty"` // the last run has left state for the next one
	Problem string            `json:"problem,omitempty"`
	LastRun *runOutput        `json:"last_run,omitempty"`
}

// runOutput is the output for one of the last runs. The state is that of the result store; "": it
// is not known.
type runOutput struct {
	Due   time.Time  `json:"due"`
	Task  task.ID    `json:"task"`
	State task.State `json:"state,omitempty"`
	Error string     `json:"error,omitempty"`
}

// ran returns the output for a run.
func ran(r *schedule.Run) *runOutput {
	o := &runOutput{Due: r.Due.UTC(), Task: r.Task}
	if r.Record != nil {
		o.State = r.Record.State
		if r.Record.Error != nil {
			o.Error = r.Record.Error.Error()
		}
	}
	return o
}

// text returns the run for a table.
func (o *runOutput) text() string {
	if o == nil {
		return ""
	}
	return strings.TrimSpace(o.Due.Format("2006-01-02 15:04:05Z") + " " + string(o.State))
}

// entry returns the output for an item. args adds the arguments, which may hold secrets.
func entry(i *schedule.Item, args bool) entryOutput {
	o := entryOutput{ID: i.ID, Group: i.Group, Next: i.Next.UTC(), Last: i.Last.UTC(), Paused: i.Paused, State: len(i.State) > 0}
	if i.Next.IsZero() {
		o.Next = time.Time{}
	}
	if i.Last.IsZero() {
		o.Last = time.Time{}
	}
	if i.Problem != nil {
		o.Problem = i.Problem.Error()
	}
	if c := i.Content; c != nil {
		o.Name = c.Name
		o.Job, o.When, o.Misfire, o.Overlap, o.Nonce, o.Headers = c.Job, c.When, string(c.Misfire), string(c.Overlap), c.Nonce, c.Headers
		if args {
			o.Args = c.Args
		}
	}
	if i.Spec != nil {
		o.Means = when.Describe(i.Spec)
	}
	return o
}

func (o *entryOutput) state() string {
	switch {
	case o.Problem != "":
		return "broken"
	case o.Paused:
		return "paused"
	case o.Next.IsZero():
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
	t := &table{head: []string{o.ID}}
	t.add(o.Echo)
	switch {
	case o.Changed:
		t.add("it was there already and was changed")
	case !o.New:
		t.add("it was there already: nothing has changed")
	}
	return a.show(o, t)
}

// scheduled returns the call of a task with JSON arguments. Names may be those of other languages.
func (a *app) scheduled(name string, given []string) (task.Call, error) {
	arguments, err := a.arguments(given)
	if err != nil {
		return task.Call{}, err
	}
	return task.New[any, any](name).Call(arguments), nil
}
