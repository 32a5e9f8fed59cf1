// Package jobcmd has the commands swarmiji job: they create, show, change and answer jobs.
package jobcmd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/jobs"
)

// app is the program, with the commands of this package as methods.
type app struct{ *cli.App }

// Command makes the command job.
func Command(a *cli.App) *cobra.Command { return (&app{a}).jobCmd() }

func (a *app) jobCmd() *cobra.Command {
	var o cli.JobStore
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
		Annotations: map[string]string{cli.Offline: "yes"}, // only shows its help
		RunE: func(cmd *cobra.Command, _ []string) error {
			return errors.Join(cmd.Help(), fmt.Errorf("%w: job what? ls, show, create, retry, cancel, rm, complete, waiting or why", cli.ErrUsage))
		},
	}
	cmd.PersistentFlags().StringVar(&o.Name, "store", "", "`name` of a SQLite file, or URL of a database, that holds the jobs; default: $SWARMIJI_JOBS, or else jobs.db")
	cmd.AddCommand(a.jobListCmd(&o), a.jobShowCmd(&o), a.jobCreateCmd(&o), a.jobRetryCmd(&o), a.jobCancelCmd(&o), a.jobRemoveCmd(&o),
		a.jobCompleteCmd(&o), a.jobWaitingCmd(&o), a.jobWhyCmd(&o))
	for _, sub := range cmd.Commands() {
		sub.Annotations = map[string]string{cli.Offline: "yes"} // no broker
	}
	return cmd
}

// jobIDs parses ids.
func jobIDs(texts []string) ([]jobs.ID, error) {
	ids := make([]jobs.ID, len(texts))
	for i, text := range texts {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%w: %q is no id of a job, which is a number", cli.ErrUsage, cli.Visible(text))
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

// withJobAPI calls do with the inspection API over jobs.
func (a *app) withJobAPI(ctx context.Context, o *cli.JobStore, do func(ctx context.Context, api inspect.API) error) error {
	if a.API != "" {
		return a.Remote(ctx, &cli.Inspection{}, do)
	}
	return a.WithJobs(ctx, o, false, jobs.Config{}, func(ctx context.Context, s *jobs.Service) error {
		return a.WithAudited(ctx, inspect.Config{Jobs: s}, func(api inspect.API) error { return do(ctx, api) })
	})
}
