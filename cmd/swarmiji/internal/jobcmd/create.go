package jobcmd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/when"
)

// createOptions holds the flags of job create.
type createOptions struct {
	at, in, zone                    string
	repeat, retryAfter, sequenceKey string
	queue, windows, key, uniqueKey  string
	priority                        int
	parent                          int64
	weight                          float64
	attempt                         time.Duration
	unique, keep, mock              bool
	given                           func(flag string) bool
}

func (a *app) jobCreateCmd(store *cli.JobStore) *cobra.Command {
	var o createOptions
	cmd := &cobra.Command{
		Use:   "create NAME [JSON|@FILE|-]",
		Short: "Create a job",
		Long: "Create creates a job and prints its id, then its state and next run in UTC. JSON is an object with the job's\n" +
			"data, {} by default; \"@FILE\" reads it from a file, \"-\" from the standard input. Relative times count from the\n" +
			"time of the store's clock. A SQLite file that does not exist is created.",
		Example: "  swarmiji job create feed/news '{\"last\": 0}' --repeat 'FINISHED, +1 HOUR'\n" +
			"  swarmiji job create mail/send @mail.json --at '9am tomorrow' --zone Europe/Berlin --priority 10",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.given = cmd.Flags().Changed
			return a.jobCreate(cmd.Context(), store, args, &o)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.at, "at", "", "first run, as a `moment`: \"7pm tomorrow\", \"friday at noon\", 2026-11-21T19:00:00+01:00; default: now")
	f.StringVar(&o.in, "in", "", "first run, counted from now, as a `duration`: \"5 minutes\", \"2 weeks, 1 day\" or 90s; default: now")
	f.StringVar(&o.zone, "zone", "UTC", "`name` of the time zone of --at and --windows, such as Europe/Berlin")
	f.IntVar(&o.priority, "priority", jobs.DefaultPriority, "jobs with a lower number run first")
	f.StringVar(&o.repeat, "repeat", "", "`rule` by which the job runs again, such as \"FINISHED, +1 DAY\"; default: it runs once")
	f.StringVar(&o.retryAfter, "retry-after", "", "time after which another worker gets the job although it still runs, as a `modifier` such as \"+5 MINUTES\"; default: never")
	f.StringVar(&o.sequenceKey, "sequence-key", "", "jobs with the same `key` run one at a time, in the order of their ids")
	f.StringVar(&o.queue, "queue", "", "`name` of the queue whose runner runs the job, within the limit and throttler of the queue; default: no queue")
	f.Float64Var(&o.weight, "weight", 1, "share of the queue's limit that the job takes while it runs; 0: none")
	f.StringVar(&o.windows, "windows", "", "`times` at which a job with a queue may start, such as \"Mon-Fri 09:00-17:00, 22:00-06:00\"; default: always")
	f.DurationVar(&o.attempt, "attempt-timeout", jobs.DefaultAttemptTimeout, "how long an attempt of a job with a queue may take, including the wait for its answer; 0: no limit")
	f.StringVar(&o.key, "key", "", "`key` that, together with the name, identifies the job for an answer from outside, see job complete")
	f.StringVar(&o.uniqueKey, "unique-key", "", "refuse the job (status 1) while another job with this name and this `key` has not ended")
	f.Int64Var(&o.parent, "parent", 0, "`id` of the job whose child this job is")
	f.BoolVar(&o.unique, "unique", false, "if a job of this name exists, create no other one; merge the data into that job")
	f.BoolVar(&o.keep, "keep", false, "with --unique: leave the existing job unchanged")
	f.BoolVar(&o.mock, "mock", false, "give the job only to workers that ask for mock jobs")
	return cmd
}

func (a *app) jobCreate(ctx context.Context, store *cli.JobStore, args []string, o *createOptions) error {
	spec, err := o.spec(args[0])
	if err != nil {
		return err
	}
	if spec.Data, err = a.Document(args[1:], jobs.MaxData); err != nil {
		return err
	}
	if _, err := o.first(time.Now()); err != nil { // refuse wrong flags before the store is asked
		return err
	}
	return a.WithJobs(ctx, store, true, jobs.Config{}, func(ctx context.Context, s *jobs.Service) error {
		if o.at != "" || o.in != "" {
			now, err := storeTime(ctx, s)
			if err != nil {
				return err
			}
			if spec.FirstRun, err = o.first(now); err != nil {
				return err
			}
		}
		made, err := s.Create(ctx, spec)
		a.Audit(ctx, inspect.Change{Do: inspect.DoCreateJob, Target: spec.Name, Done: cli.OneIf(err)}, map[string]any{"job": made.ID, "existed": made.Existed}, err)
		if err != nil {
			return err
		}
		return a.showMade(ctx, s, made)
	})
}

// spec returns the job of the flags, without its data and its time.
func (o *createOptions) spec(name string) (jobs.Spec, error) {
	spec := jobs.Spec{
		Name: name, Repeat: o.repeat, RetryAfter: o.retryAfter, SequenceKey: o.sequenceKey, Parent: jobs.ID(o.parent), Unique: o.unique, Keep: o.keep, Mock: o.mock,
		Queue: o.queue, Key: o.key, UniqueKey: o.uniqueKey,
	}
	if o.keep && !o.unique {
		return spec, fmt.Errorf("%w: --keep belongs to --unique", cli.ErrUsage)
	}
	if o.given("priority") {
		spec.Priority = task.Set(o.priority)
	}
	if o.given("weight") {
		spec.Weight = task.Set(o.weight)
	}
	if o.given("attempt-timeout") {
		spec.Timeout = task.Set(o.attempt)
	}
	if o.windows == "" {
		return spec, nil
	}
	loc, err := cli.Zone(o.zone)
	if err != nil {
		return spec, err
	}
	spec.Windows, err = when.ParseWindows(o.windows, loc)
	return spec, err
}

// storeTime returns the time of the store's clock.
func storeTime(ctx context.Context, s *jobs.Service) (now time.Time, err error) {
	err = s.Store().View(ctx, func(ctx context.Context, tx jobstore.Tx) error {
		now, err = tx.Now(ctx)
		return err
	})
	return now, err
}

// first returns the time of the first run, relative to now. Zero: now.
func (o *createOptions) first(now time.Time) (time.Time, error) {
	loc, err := cli.Zone(o.zone)
	if err != nil {
		return time.Time{}, err
	}
	var phrase string
	switch {
	case o.at != "" && o.in != "":
		return time.Time{}, fmt.Errorf("%w: give --at or --in, not both", cli.ErrUsage)
	case o.at != "":
		if t, err := time.Parse(time.RFC3339, o.at); err == nil {
			return t, nil // also a time in the past
		}
		phrase = "at " + strings.TrimPrefix(o.at, "at ")
	case o.in != "":
		phrase = "in " + strings.TrimPrefix(o.in, "in ")
		if d, ok := cli.Span(phrase); ok {
			return now.Add(d), nil
		}
	default:
		return time.Time{}, nil
	}
	p, err := when.ParsePhrase(phrase, now.In(loc))
	return p.At, err
}

// madeOutput is the output of job create.
type madeOutput struct {
	ID      jobs.ID    `json:"id"`
	Existed bool       `json:"existed"`
	State   jobs.State `json:"state,omitempty"`
	NextRun time.Time  `json:"nextRun,omitzero"`
}

// showMade prints the id for scripts, and the state of the job unless it has ended already.
func (a *app) showMade(ctx context.Context, s *jobs.Service, made jobs.Created) error {
	o := madeOutput{ID: made.ID, Existed: made.Existed}
	t := &cli.Table{Head: []string{fmt.Sprint(made.ID)}}
	if j, err := s.Row(ctx, made.ID); err == nil { // the job is made, even if this read fails
		o.State, o.NextRun = j.State, utc(j.NextRun)
		t.Add(fmt.Sprintf("%s, next run %s", o.State, cli.Cell(o.NextRun)))
	}
	if o.Existed {
		t.Add("it was there already")
	}
	return a.Show(o, t)
}
