package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/open"
)

func (a *app) historyCmd() *cobra.Command {
	var url string
	cmd := &cobra.Command{
		Use:   "history record",
		Short: "Record what happens to tasks",
		Long: "History records events in a SQL database, so that swarmiji task can tell what happened to a task; see\n" +
			"docs/history.md. --store names the database: sqlite:///path/history.db or\n" +
			"postgres://user:password@host/database.",
		Example: "  swarmiji history record --broker redis://host:6379 --store sqlite:///var/lib/history.db\n" +
			"  SWARMIJI_BROKER=amqp://host SWARMIJI_HISTORY=postgres://host/app swarmiji history record",
		Args:        cobra.NoArgs,
		Annotations: map[string]string{cli.Offline: "yes"}, // only shows its help
		RunE: func(cmd *cobra.Command, _ []string) error {
			return errors.Join(cmd.Help(), fmt.Errorf("%w: history what? record", cli.ErrUsage))
		},
	}
	cli.HistoryFlag(cmd, &url)
	cmd.AddCommand(a.historyRecordCmd(&url))
	return cmd
}

// recordOptions holds the flags of history record.
type recordOptions struct {
	age     time.Duration
	records int
}

func (a *app) historyRecordCmd(url *string) *cobra.Command {
	var o recordOptions
	cmd := &cobra.Command{
		Use:   "record",
		Short: "Record the events of tasks in a database",
		Long: "Record listens to the events of producers and consumers and writes a record for each task, with its timeline.\n" +
			"It runs until it is interrupted, and then ends with status 0. No task waits for it. Any number of recorders\n" +
			"may run at once. It deletes records that are older than --max-age, and the oldest beyond --max-records.\n\n" +
			"If it cannot keep up, it drops events, logs that, and marks the time as a gap; swarmiji task ls shows gaps.\n" +
			"After a restart it continues: it replays events if the bus retains them (parameter retain of the broker's\n" +
			"URL), and marks a gap otherwise. --namespace is that of the events and of the history. --timeout limits only\n" +
			"the first connection.",
		Example: "  swarmiji history record --broker nats://host:4222 --store sqlite:///var/lib/history.db\n" +
			"  swarmiji history record --store postgres://host/app --max-age 720h --max-records 5000000",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.age <= 0 || o.records <= 0 {
				return fmt.Errorf("%w: --max-age is %v and --max-records %d; they must be positive", cli.ErrUsage, o.age, o.records)
			}
			return a.WithHistory(cmd.Context(), *url, true, func(ctx context.Context, s open.HistoryStore) error { return a.recordHistory(ctx, s, &o) })
		},
	}
	f := cmd.Flags()
	f.DurationVar(&o.age, "max-age", history.DefaultMaxAge, "how long a record is kept after its last change")
	f.IntVar(&o.records, "max-records", history.DefaultMaxRecords, "number of records that are kept")
	return cmd
}

// recordHistory runs a recorder until ctx ends.
func (a *app) recordHistory(ctx context.Context, to open.HistoryStore, o *recordOptions) error {
	logger := slog.New(slog.NewTextHandler(a.Stderr, nil))
	return a.WithSwarm(ctx, true, open.Options{}, func(ctx context.Context, s *open.Swarm) error {
		preparing, cancel := a.Limited(ctx)
		defer cancel()
		if err := to.Prepare(preparing); err != nil {
			return err
		}
		r, err := history.NewRecorder(history.RecorderConfig{Bus: s.Events, Store: to, MaxAge: o.age, MaxRecords: o.records, Logger: logger})
		if err != nil {
			return err
		}
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		select {
		case <-r.Listening():
		case err := <-ended:
			return err
		}
		a.Say("the recorder runs until it is interrupted")
		return <-ended
	})
}
