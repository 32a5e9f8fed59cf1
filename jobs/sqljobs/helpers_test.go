package sqljobs_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/jobs/jobstest"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/jobs/sqljobs"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		child()
		return
	}
	// Each history costs many statements on three databases. The store in memory runs more and longer
	// ones.
	flag.Parse()
	asked := testserver.IsThorough()
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "rapid.checks" })
	if !asked {
		_ = flag.Set("rapid.checks", "40")
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(testserver.Reaper))
}

func open(t testing.TB, dsn string) *sqljobs.Store {
	t.Helper()
	s, err := sqljobs.New(sqljobs.Config{DB: sqltest.Open(t, dsn)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// openAlone returns a store, and a function that closes it and its database. PostgreSQL counts the
// reads of a session when the session ends.
func openAlone(t testing.TB, dsn string) (s *sqljobs.Store, end func()) {
	t.Helper()
	db := sqltest.Open(t, dsn)
	s, err := sqljobs.New(sqljobs.Config{DB: db})
	if err != nil {
		t.Fatal(err)
	}
	return s, func() {
		t.Helper()
		if err := errors.Join(s.Close(bound(t)), db.Close(bound(t))); err != nil {
			t.Fatal(err)
		}
	}
}

func bound(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func fileURL(t testing.TB) string {
	u := url.URL{Scheme: "sqlite", Path: filepath.Join(t.TempDir(), "jobs.db")}
	return u.String()
}

// postgresURL creates a schema in the package's server and returns its URL. One database for each
// test would make restarts of the server slow.
func postgresURL(t testing.TB) string {
	t.Helper()
	p, schema := testserver.RequirePostgres(t), testserver.Namespace()
	if err := p.Exec(bound(t), "postgres", "CREATE SCHEMA "+schema); err != nil {
		t.Fatal(err)
	}
	return p.URL() + "&schema=" + schema
}

// each runs a test with a new database of each kind.
func each(t *testing.T, test func(t *testing.T, dsn string)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { test(t, fileURL(t)) })
	t.Run("postgres", func(t *testing.T) { test(t, postgresURL(t)) })
}

// job returns a queued job that is due at the given time.
func job(name string, priority int, due time.Time) *jobstore.Row {
	return &jobstore.Row{Job: jobstore.Job{Name: name, State: jobstore.Queued, Priority: priority, Data: []byte("{}"), Created: due, Changed: due, NextRun: due}, Due: due}
}

func save(t testing.TB, s *sqljobs.Store, all ...*jobstore.Row) {
	t.Helper()
	for len(all) > 0 {
		n := min(len(all), 5000)
		err := s.Update(bound(t), func(ctx context.Context, tx jobstore.Tx) error {
			for _, j := range all[:n] {
				j.ID = 0
			}
			return tx.Save(ctx, all[:n]...)
		})
		if err != nil {
			t.Fatal(err)
		}
		all = all[n:]
	}
}

// taken claims at most limit due jobs.
func taken(ctx context.Context, s *sqljobs.Store, d jobstore.Due, limit int, lease time.Duration) (got []jobstore.Row, rest bool, err error) {
	err = s.Single(ctx, func(ctx context.Context, tx jobstore.Tx) (err error) {
		got, rest, err = tx.(jobstore.Taker).Take(ctx, d, limit, lease)
		return err
	})
	return got, rest, err
}

func pattern(p string) jobstore.Due { return jobstore.Due{Selector: jobstore.Selector{Pattern: p}} }

func found(t testing.TB, s *sqljobs.Store, q jobstest.Query) (got []jobstore.Row) {
	t.Helper()
	err := s.View(bound(t), func(ctx context.Context, tx jobstore.Tx) (err error) {
		got, err = q.Find(ctx, tx)
		return err
	})
	if err != nil {
		t.Fatalf("Find: %v", err)
	}
	return got
}

// until waits up to 30 seconds for a condition, and fails the test after that.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatal("not in time: " + what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

func names(all []jobstore.Row) (list []string) {
	for i := range all {
		list = append(list, fmt.Sprint(all[i].Name, " ", all[i].ID))
	}
	return list
}
