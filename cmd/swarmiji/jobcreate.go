package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

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

func (a *app) jobCreateCmd(store *jobStore) *cobra.Command {
	var o createOptions
	cmd := &cobra.Command{
		Use:   "create NAME [JSON|@FILE|-]",
		Short: "Make a job",
		Long: "Create makes a job with a JSON object for its data, {} if there is none, and prints its id. \"@FILE\" reads the data from a\n" +
			"file, \"-\" from the standard input. Times are by the store's clock. A SQLite file that is not there is made.",
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
	f.StringVar(&o.at, "at", "", "when it runs, as a `moment`: \"7pm tomorrow\", \"friday at noon\", 2026-11-21T19:00:00+01:00; default: now")
	f.StringVar(&o.in, "in", "", "when it runs, from now: a `duration` as \"5 minutes\", \"2 weeks, 1 day\" or 90s")
	f.StringVar(&o.zone, "zone", "UTC", "`name` of the time zone of --at and --windows, such as Europe/Berlin")
	f.IntVar(&o.priority, "priority", jobs.DefaultPriority, "the lower goes first")
	f.StringVar(&o.repeat, "repeat", "", "a `rule`, such as \"FINISHED, +1 DAY\"")
	f.StringVar(&o.retryAfter, "retry-after", "", "after what time it is handed out again while it runs, a `modifier` such as \"+5 MINUTES\"")
	f.StringVar(&o.sequenceKey, "sequence-key", "", "jobs of one `key` run one at a time, in the order of their ids")
	f.StringVar(&o.queue, "queue", "", "`name` of the queue whose runner hands it out, as its limit and its throttler let it")
	f.Float64Var(&o.weight, "weight", 1, "how much of the queue's limit it takes while it runs; 0: nothing")
	f.StringVar(&o.windows, "windows", "", "`times` at which it may start, for a job of a queue: \"Mon-Fri 09:00-17:00, 22:00-06:00\"")
	f.DurationVar(&o.attempt, "attempt-timeout", jobs.DefaultAttemptTimeout, "how long an attempt of a queue's job may take, the wait for its answer included; 0: as long as it likes")
	f.StringVar(&o.key, "key", "", "`key` by which an answer from outside names it, together with its name")
	f.StringVar(&o.uniqueKey, "unique-key", "", "it is refused while another job of this name and this `key` is not over")
	f.Int64Var(&o.parent, "parent", 0, "`id` of the job that it is a child of")
	f.BoolVar(&o.unique, "unique", false, "if there is a job of this name, that is the one: other data are merged into its own")
	f.BoolVar(&o.keep, "keep", false, "with --unique, the job that is there stays as it is")
	f.BoolVar(&o.mock, "mock", false, "it is handed out only to who asks for such jobs")
	return cmd
}

func (a *app) jobCreate(ctx context.Context, store *jobStore, args []string, o *createOptions) error {
	spec, err := o.spec(args[0])
	if err != nil {
		return err
	}
	if spec.Data, err = a.document(args[1:], jobs.MaxData); err != nil {
		return err
	}
	if _, err := o.first(time.Now()); err != nil { // refuse wrong flags before the store is asked
		return err
	}
	return a.withJobs(ctx, store, true, jobs.Config{}, func(ctx context.Context, s *jobs.Service) error {
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
		return spec, fmt.Errorf("%w: --keep belongs to --unique", errUsage)
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
	loc, err := zone(o.zone)
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
	loc, err := zone(o.zone)
	if err != nil {
		return time.Time{}, err
	}
	var phrase string
	switch {
	case o.at != "" && o.in != "":
		return time.Time{}, fmt.Errorf("%w: give --at or --in, not both", errUsage)
	case o.at != "":
		if t, err := time.Parse(time.RFC3339, o.at); err == nil {
			return t, nil // also a time in the past
		}
		phrase = "at " + strings.TrimPrefix(o.at, "at ")
	case o.in != "":
		phrase = "in " + strings.TrimPrefix(o.in, "in ")
		if d, ok := span(phrase); ok {
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
	t := &table{head: []string{fmt.Sprint(made.ID)}}
	if j, err := s.Row(ctx, made.ID); err == nil { // the job is made, even if this read fails
		o.State, o.NextRun = j.State, utc(j.NextRun)
		t.add(fmt.Sprintf("%s, next run %s", o.State, cell(o.NextRun)))
	}
	if o.Existed {
		t.add("it was there already")
	}
	return a.show(o, t)
}

// document reads a JSON text from an argument, a file or stdin. It returns nil if none is given.
func (a *app) document(given []string, most int64) (text []byte, err error) {
	if len(given) == 0 {
		return nil, nil
	}
	var from io.Reader = strings.NewReader(given[0])
	if file, ok := strings.CutPrefix(given[0], "@"); ok {
		f, err := os.Open(file) //nolint:gosec // the user names a file of their own
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errUsage, err)
		}
		defer func() { _ = f.Close() }()
		from = f
	} else if given[0] == "-" {
		from = a.stdin
	}
	if text, err = io.ReadAll(io.LimitReader(from, most+1)); err != nil {
		return nil, err
	}
	switch {
	case int64(len(text)) > most:
		return nil, fmt.Errorf("%w: more than %d bytes of JSON", errUsage, most)
	case !json.Valid(text):
		return nil, fmt.Errorf("%w: this is no JSON; a text is written '\"text\"'", errUsage)
	}
	return text, nil
}
