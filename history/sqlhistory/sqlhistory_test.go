package sqlhistory_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/history/historytest"
	"github.com/swarmiji/swarmiji/history/sqlhistory"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/sqldb"
)

// TestMain runs the model less often than in memory, unless the command line says how often. In a
// process of a test it runs a recorder.
func TestMain(m *testing.M) {
	if suite.ProcessNode() != "" {
		if err := recorderProcess(); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	asked := testserver.IsThorough()
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "rapid.checks" })
	if !asked {
		_ = flag.Set("rapid.checks", "20")
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(testserver.Reaper))
}

// databases returns the URL of a database of each kind.
func databases() map[string]func(t testing.TB) string {
	return map[string]func(t testing.TB) string{
		"sqlite":   func(t testing.TB) string { return "sqlite://" + filepath.Join(t.TempDir(), "history.db") },
		"postgres": func(t testing.TB) string { return testserver.RequirePostgres(t).URL() + "&pool_max_conns=8" },
	}
}

func openStore(t testing.TB, db sqldb.DB, namespace string) *sqlhistory.Store {
	t.Helper()
	s, err := sqlhistory.New(sqlhistory.Config{DB: db, Namespace: namespace})
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

func TestStore(t *testing.T) {
	for name, url := range databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := sqltest.Open(t, url(t))
			historytest.Run(t, func(*testing.T) func(*testing.T) history.Store {
				ns := testserver.Namespace()
				return func(t *testing.T) history.Store { return openStore(t, db, ns) }
			})
		})
	}
}

func TestBadConfig(t *testing.T) {
	if _, err := sqlhistory.New(sqlhistory.Config{Namespace: "a.b"}); err == nil {
		t.Error("no error")
	}
}
