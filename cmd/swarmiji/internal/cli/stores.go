package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/open"
)

// HistoryFlag adds --store.
func HistoryFlag(cmd *cobra.Command, url *string) {
	cmd.PersistentFlags().StringVar(url, "store", "", "`URL` of the database that holds the history; default: $SWARMIJI_HISTORY")
}

// KnownHistory returns the URL of the history for a command that can do without one: that of the
// flag, or $SWARMIJI_HISTORY. It says so and returns "" if the variable names a SQLite file that
// does not exist. Returns ErrUsage for a flag beside --api, whose server has the history.
func (a *App) KnownHistory(flag string) (string, error) {
	switch url := a.Getenv("SWARMIJI_HISTORY"); {
	case flag != "" && a.API != "":
		return "", fmt.Errorf("%w: --store has no use over --api: the server has the history", ErrUsage)
	case flag != "" || url == "" || a.API != "":
		return flag, nil
	default:
		if file := missingFile(url); file != "" {
			a.Say("without the history: SWARMIJI_HISTORY names the file %s, which does not exist", Visible(file))
			return "", nil
		}
		return url, nil
	}
}

// WithHistory opens a history, calls do, and closes it. If fresh is true, a missing SQLite file is
// created.
func (a *App) WithHistory(ctx context.Context, url string, fresh bool, do func(ctx context.Context, s open.HistoryStore) error) (err error) {
	if url = cmp.Or(url, a.Getenv("SWARMIJI_HISTORY")); url == "" {
		return fmt.Errorf("%w: no history; give --store or set SWARMIJI_HISTORY, such as sqlite:///path/history.db", ErrUsage)
	}
	if !fresh {
		if err := Existing("--store or SWARMIJI_HISTORY names the database that swarmiji history record writes", url); err != nil {
			return err
		}
	}
	a.Hide(url, open.Redact(url))
	logger := slog.New(slog.NewTextHandler(a.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	s, err := open.History(ctx, url, open.HistoryOptions{Namespace: a.Namespace, Logger: logger})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUsage, err) // no I/O was done: the URL is wrong
	}
	defer CloseAfter(ctx, s.Close, &err)
	return do(ctx, s)
}

// WithOutbox opens an outbox, calls do, and closes it. It creates no SQLite file: flag or the
// variable names that of a program that submits.
func (a *App) WithOutbox(ctx context.Context, url, flag string, do func(ctx context.Context, s open.OutboxStore) error) (err error) {
	if url = cmp.Or(url, a.Getenv("SWARMIJI_OUTBOX")); url == "" {
		return fmt.Errorf("%w: no outbox; give %s or set SWARMIJI_OUTBOX, such as sqlite:///path/app.db", ErrUsage, flag)
	}
	if err := Existing(flag+" or SWARMIJI_OUTBOX names the database of the program that submits; correct it, or create the tables with swarmiji migrate --up", url); err != nil {
		return err
	}
	a.Hide(url, open.Redact(url))
	logger := slog.New(slog.NewTextHandler(a.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	s, err := open.Outbox(ctx, url, open.OutboxOptions{Namespace: a.Namespace, Logger: logger})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUsage, err) // no I/O was done: the URL is wrong
	}
	defer CloseAfter(ctx, s.Close, &err)
	return do(ctx, s)
}

// JobStore holds the flag that names the store.
type JobStore struct{ Name string }

// WithJobs opens the jobs, calls do within --timeout, and closes them. If fresh is true, a missing
// SQLite file is created.
func (a *App) WithJobs(ctx context.Context, o *JobStore, fresh bool, c jobs.Config, do func(ctx context.Context, s *jobs.Service) error) (err error) {
	name := cmp.Or(o.Name, a.Jobs, a.Getenv("SWARMIJI_JOBS"), "jobs.db")
	if name == "mem" || strings.HasPrefix(name, "mem:") || strings.TrimPrefix(name, "sqlite:") == ":memory:" {
		return fmt.Errorf("%w: jobs in memory have no use here: nobody can reach the memory of another process", ErrUsage)
	}
	if !fresh {
		if err := Existing("--store or SWARMIJI_JOBS names the file or database of the jobs", jobsURL(name)); err != nil {
			return err
		}
	}
	ctx, cancel := a.Limited(ctx)
	defer cancel()
	c.Logger = slog.New(slog.NewTextHandler(a.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	if c.Store, _, err = a.OpenJobs(ctx, name, c.Logger); err != nil {
		return fmt.Errorf("%w: %w", ErrUsage, err) // no I/O was done
	}
	service, err := jobs.New(c)
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), CloseTime)
		defer cancel()
		if service != nil {
			err = errors.Join(err, service.Close(closing))
		}
		err = errors.Join(err, c.Store.Close(closing))
	}()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUsage, err)
	}
	return do(ctx, service)
}

// OpenJobs makes the store for a name or a URL and returns its location for messages. It does no
// I/O.
func (a *App) OpenJobs(ctx context.Context, name string, logger *slog.Logger) (store jobs.Store, place string, err error) {
	name = jobsURL(name)
	place = open.RedactSchedule(name)
	a.Hide(name, place)
	store, err = open.Jobs(ctx, name, open.JobsOptions{Logger: logger})
	return store, place, err
}

// jobsURL returns the URL of jobs, which may be given as the name of a file.
func jobsURL(name string) string {
	switch {
	case name == "mem":
		return "mem://"
	case !strings.Contains(name, "://") && !strings.HasPrefix(name, "sqlite:"):
		return "sqlite:" + name
	}
	return name
}
