package sqljobs_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/jobs/jobstest"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/jobs/sqljobs"
)

// unclosed returns a store that the suite closes.
func unclosed(t testing.TB, c sqljobs.Config) *sqljobs.Store {
	t.Helper()
	s, err := sqljobs.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func liteHarness(t testing.TB) *jobstest.Harness {
	dsn := fileURL(t)
	return &jobstest.Harness{
		Open: func(t testing.TB) jobstore.Store {
			return unclosed(t, sqljobs.Config{DB: sqltest.Open(t, dsn)})
		},
		Restart:  func(testing.TB) {}, // no server to restart; TestKilled covers killed processes
		Promises: jobstest.Promises{Take: true, Drop: true, Weigh: true, Durable: true},
		Slack:    100 * time.Millisecond,
		Report:   "../../docs/capabilities/jobs-sqlite.json",
	}
}

// postgresHarness returns a harness whose stores reach a server at the URL that at returns for a
// direct one.
func postgresHarness(t testing.TB, at func(t testing.TB, p *testserver.Postgres, direct string) string) *jobstest.Harness {
	p, dsn := testserver.RequirePostgres(t), ""
	if kills := strings.HasSuffix(t.Name(), "/a_restart") || strings.HasSuffix(t.Name(), "/a_server_that_is_away"); kills {
		// When a killed server starts again, it syncs all its files. The shared one has thousands.
		p = testserver.OwnPostgres(t, testserver.PostgresConfig{})
		dsn = p.URL()
	} else {
		dsn = postgresURL(t)
	}
	dsn = at(t, p, dsn)
	restart := func() {
		if err := p.Restart(bound(t)); err != nil {
			t.Fatal(err)
		}
	}
	return &jobstest.Harness{
		Open: func(t testing.TB) jobstore.Store {
			return unclosed(t, sqljobs.Config{DB: sqltest.Open(t, dsn+"&pool_max_conns=6")})
		},
		Sever: func(t testing.TB, _ jobstore.Store) {
			if err := p.CloseAllConnections(bound(t)); err != nil {
				t.Fatal(err)
			}
		},
		Restart: func(testing.TB) {
			p.Kill()
			restart()
		},
		Down: func(testing.TB) func() {
			p.Kill()
			return restart
		},
		Secret:   p.Password(),
		Promises: jobstest.Promises{Parallel: true, Take: true, Drop: true, Weigh: true, Durable: true},
		Slack:    100 * time.Millisecond,
	}
}

// Promises: Q43.
func TestStore(t *testing.T) { jobstest.Run(t, liteHarness) }

// Promises: Q43.
func TestStorePostgres(t *testing.T) {
	jobstest.Run(t, func(t testing.TB) *jobstest.Harness {
		h := postgresHarness(t, func(_ testing.TB, _ *testserver.Postgres, direct string) string { return direct })
		h.Report = "../../docs/capabilities/jobs-postgres.json"
		return h
	})
}

// TestStorePgBouncer runs the suite through PgBouncer: with polling, and with a direct connection
// for notifications.
func TestStorePgBouncer(t *testing.T) {
	pooler := func(t testing.TB, p *testserver.Postgres) *testserver.PgBouncer {
		if p == testserver.RequirePostgres(t) {
			return testserver.RequirePgBouncer(t)
		}
		return testserver.OwnPgBouncer(t, p)
	}
	t.Run("polled", func(t *testing.T) {
		testserver.Thorough(t)
		jobstest.Run(t, func(t testing.TB) *jobstest.Harness {
			return postgresHarness(t, func(t testing.TB, p *testserver.Postgres, direct string) string { return pooler(t, p).Polled(direct) })
		})
	})
	t.Run("listened", func(t *testing.T) {
		jobstest.Run(t, func(t testing.TB) *jobstest.Harness {
			if area := strings.Split(t.Name(), "/")[2]; area != "lock" && area != "take" && area != "update" {
				testserver.Thorough(t) // these have all kinds of statements and locks
			}
			return postgresHarness(t, func(t testing.TB, p *testserver.Postgres, direct string) string { return pooler(t, p).Listened(direct) })
		})
	})
}

func TestNewRefuses(t *testing.T) {
	if _, err := sqljobs.New(sqljobs.Config{}); err == nil || !strings.Contains(err.Error(), "DB must come from") || errors.Is(err, jobstore.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}
