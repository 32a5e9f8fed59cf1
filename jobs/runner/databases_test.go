package runner_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
	"github.com/swarmiji/swarmiji/jobs/sqljobs"
	"github.com/swarmiji/swarmiji/when"
)

func openMem(t *testing.T) jobs.Store {
	t.Helper()
	store, err := memjobs.New(memjobs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func mustWindows(t *testing.T, text string, loc *time.Location) *when.Windows {
	t.Helper()
	w, err := when.ParseWindows(text, loc)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// onDatabases runs a test with new databases. join returns a service of a further process.
func onDatabases(t *testing.T, test func(t *testing.T, join func() *jobs.Service)) {
	t.Helper()
	run := func(name string, url func(t *testing.T) string) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := url(t)
			test(t, func() *jobs.Service { return serviceOn(t, dsn) })
		})
	}
	run("sqlite", func(t *testing.T) string { return "sqlite://" + filepath.Join(t.TempDir(), "jobs.db") })
	run("postgres", func(t *testing.T) string {
		p, schema := testserver.RequirePostgres(t), testserver.Namespace()
		if err := p.Exec(t.Context(), "postgres", "CREATE SCHEMA "+schema); err != nil {
			t.Fatal(err)
		}
		return p.URL() + "&schema=" + schema
	})
}

func serviceOn(t *testing.T, dsn string) *jobs.Service {
	t.Helper()
	store, err := sqljobs.New(sqljobs.Config{DB: sqltest.Open(t, dsn)})
	if err != nil {
		t.Fatal(err)
	}
	s, err := jobs.New(jobs.Config{Store: store, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if err := errors.Join(s.Close(ctx), store.Close(ctx)); err != nil {
			t.Error(err)
		}
	})
	return s
}
