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

func postgresHarness(t testing.TB) *jobstest.Harness {
	p, dsn := testserver.RequirePostgres(t), ""
	if kills := strings.HasSuffix(t.Name(), "/a_restart") || strings.HasSuffix(t.Name(), "/a_server_that_is_away"); kills {
		// When a killed server starts again, it syncs all its files. The shared one has thousands.
		p = testserver.OwnPostgres(t, testserver.PostgresConfig{})
		dsn = p.URL()
	} else {
		dsn = postgresURL(t)
	}
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
		Report:   "../../docs/capabilities/jobs-postgres.json",
	}
}

// Promises: Q43.
func TestStore(t *testing.T)         { jobstest.Run(t, liteHarness) }
func TestStorePostgres(t *testing.T) { jobstest.Run(t, postgresHarness) }

func TestNewRefuses(t *testing.T) {
	if _, err := sqljobs.New(sqljobs.Config{}); err == nil || !strings.Contains(err.Error(), "DB must come from") || errors.Is(err, jobstore.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}
