package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/jobs"
)

// jobStore holds the flag that names the store.
type jobStore struct{ name string }

func (a *app) jobCmd() *cobra.Command {
	var o jobStore
	cmd := &cobra.Command{
		Use:   "job ls|show|create|retry|cancel|rm|complete|waiting|why",
		Short: "Show, create and change jobs",
		Long: "Job shows jobs of a database, creates some, and changes what happens to them; see docs/jobs.md. These commands\n" +
			"need no broker. --store names the database: a SQLite file such as jobs.db, sqlite:///path/jobs.db, or\n" +
			"postgres://user:password@host/database. Times are in UTC.\n\n" +
			"Exit status: 3 if a job or the SQLite file does not exist; only job create creates the file. A job without\n" +
			"queue and key is deleted when it finishes.",
		Example: "  swarmiji job ls --store jobs.db --state FAILED\n" +
			"  SWARMIJI_JOBS=postgres://user:password@host/database swarmiji job show 17",
		Args:        cobra.NoArgs,
		Annotations: map[string]string{offline: "yes"}, // only shows its help
		RunE: func(cmd *cobra.Command, _ []string) error {
			return errors.Join(cmd.Help(), fmt.Errorf("%w: job what? ls, show, create, retry, cancel, rm, complete, waiting or why", errUsage))
		},
	}
	cmd.PersistentFlags().StringVar(&o.name, "store", "", "`name` of a SQLite file, or URL of a database, that holds the jobs; default: $SWARMIJI_JOBS, or else jobs.db")
	cmd.AddCommand(a.jobListCmd(&o), a.jobShowCmd(&o), a.jobCreateCmd(&o), a.jobRetryCmd(&o), a.jobCancelCmd(&o), a.jobRemoveCmd(&o),
		a.jobCompleteCmd(&o), a.jobWaitingCmd(&o), a.jobWhyCmd(&o))
	for _, sub := range cmd.Commands() {
		sub.Annotations = map[string]string{offline: "yes"} // no broker
	}
	return cmd
}

// withJobs opens the jobs, calls do within --timeout, and closes them. If fresh is true, a missing
// SQLite file is created.
func (a *app) withJobs(ctx context.Context, o *jobStore, fresh bool, c jobs.Config, do func(ctx context.Context, s *jobs.Service) error) (err error) {
	name := cmp.Or(o.name, a.jobs, a.getenv("SWARMIJI_JOBS"), "jobs.db")
	if name == "mem" || strings.HasPrefix(name, "mem:") || strings.TrimPrefix(name, "sqlite:") == ":memory:" {
		return fmt.Errorf("%w: jobs in memory have no use here: nobody can reach the memory of another process", errUsage)
	}
	if file := liteFile(name); file != "" && !fresh {
		if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%w: there is no file %s; --store or SWARMIJI_JOBS names the file or database of the jobs", errNotFound, visible(file))
		}
	}
	ctx, cancel := a.limited(ctx)
	defer cancel()
	c.Logger = slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	if c.Store, _, err = a.openJobs(ctx, name, c.Logger); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err) // no I/O was done
	}
	service, err := jobs.New(c)
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
		defer cancel()
		if service != nil {
			err = errors.Join(err, service.Close(closing))
		}
		err = errors.Join(err, c.Store.Close(closing))
	}()
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	return do(ctx, service)
}

// liteFile returns the file of a SQLite store. It returns "" for other stores and for invalid
// names.
func liteFile(name string) string {
	if !strings.Contains(name, "://") && !strings.HasPrefix(name, "sqlite:") {
		name = "sqlite:" + name
	}
	u, err := url.Parse(name)
	if err != nil || u.Scheme != "sqlite" {
		return ""
	}
	if u.Opaque == "" {
		return u.Path
	}
	file, _ := url.PathUnescape(u.Opaque)
	return file
}

// jobIDs parses ids.
func jobIDs(texts []string) ([]jobs.ID, error) {
	ids := make([]jobs.ID, len(texts))
	for i, text := range texts {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%w: %q is no id of a job, which is a number", errUsage, visible(text))
		}
		ids[i] = jobs.ID(n)
	}
	return ids, nil
}

// jobOutput is the output for one job, without fields that may be large or secret.
type jobOutput struct {
	ID       jobs.ID    `json:"id"`
	Name     string     `json:"name"`
	State    jobs.State `json:"state"`
	Phase    jobs.Phase `json:"phase,omitempty"`
	Queue    string     `json:"queue,omitempty"`
	Priority int        `json:"priority"`
	Due      time.Time  `json:"due,omitzero"` // when the job changes by itself
	Changed  time.Time  `json:"changed,omitzero"`
	Reason   string     `json:"reason,omitempty"`
}

func jobRow(j *jobs.Row) jobOutput {
	return jobOutput{
		ID: j.ID, Name: j.Name, State: j.State, Phase: j.Phase, Queue: j.Queue, Priority: j.Priority, Due: utc(j.Due), Changed: utc(j.Changed), Reason: j.Reason,
	}
}

// stands returns the state of a job, with the phase of a running one. An ended job keeps the phase
// of its last attempt.
func stands(state, phase string) string {
	if phase == "" || jobs.State(state).Over() {
		return state
	}
	return state + "/" + phase
}

// utc returns t in UTC, and the zero time unchanged.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}
