package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/open"
)

func (a *app) migrateCmd() *cobra.Command {
	var up, text bool
	cmd := &cobra.Command{
		Use:   "migrate [URL]",
		Short: "Create or update the tables in a SQL database",
		Long: "Migrate creates the tables of all adapters in PostgreSQL or a SQLite file, or updates\n" +
			"them to the version of this program. Without it, programs do so at first use. So a program may have a role that\n" +
			"cannot create tables. The URL is that of --broker by default; its parameter schema names the schema of the tables.\n\n" +
			"--print prints the SQL text that creates all tables, without a connection. Each version has a heading: to update\n" +
			"by hand, run the versions above those in the table swarmiji_schema. Exit status: 4 if the database cannot be\n" +
			"reached or refuses access.",
		Example: "  swarmiji migrate --up postgres://owner:password@host/database\n" +
			"  swarmiji migrate --print 'postgres://host/database?schema=swarm' | psql database",
		Args:        cobra.MaximumNArgs(1),
		Annotations: map[string]string{cli.Offline: "yes"},
		RunE: func(cmd *cobra.Command, args []string) error {
			url := a.Broker
			if len(args) == 1 {
				url = args[0]
				a.Hide(url, open.Redact(url))
			}
			if up == text || url == "" {
				return fmt.Errorf("%w: give a URL and one of --up and --print", cli.ErrUsage)
			}
			return a.migrate(cmd.Context(), url, text)
		},
	}
	cmd.Flags().BoolVar(&up, "up", false, "create or update the tables")
	cmd.Flags().BoolVar(&text, "print", false, "print the SQL text and change nothing")
	return cmd
}

// migrate migrates the tables of the database of a URL, or prints their text.
func (a *app) migrate(ctx context.Context, url string, text bool) (err error) {
	ctx, cancel := a.Limited(ctx)
	defer cancel()
	db, err := open.Database(ctx, url, open.Options{})
	if err != nil {
		return fmt.Errorf("%w: %w", cli.ErrUsage, err)
	}
	defer func() { err = errors.Join(err, db.Close(context.WithoutCancel(ctx))) }()
	if !text {
		if err := db.Migrate(ctx); err != nil {
			return fmt.Errorf("%w: %w", broker.ErrUnavailable, err)
		}
		_, err = fmt.Fprintln(a.Stdout, "the tables are up to date")
		return err
	}
	script, err := db.Migrations()
	if err == nil {
		_, err = io.WriteString(a.Stdout, script)
	}
	return err
}
