package sqlschedule_test

import (
	"context"
	"errors"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/schedule/scheduletest"
	"github.com/swarmiji/swarmiji/schedule/sqlschedule"
	"github.com/swarmiji/swarmiji/sqldb"
)

func TestMain(m *testing.M) {
	if scheduletest.Child(child) {
		return
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(testserver.Reaper))
}

func open(t testing.TB, cfg sqlschedule.Config) *sqlschedule.Store {
	t.Helper()
	s, err := sqlschedule.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func fileURL(t testing.TB) string {
	u := url.URL{Scheme: "sqlite", Path: filepath.Join(t.TempDir(), "schedule.db")}
	return u.String()
}

var promises = scheduletest.Promises{List: true, Pause: true, Watch: true, Repair: true, Change: true, Durable: true, Transactions: true}

// begin returns a function that begins transactions on the database of a URL.
func begin(url string) func(t testing.TB) scheduletest.Transaction {
	return func(t testing.TB) scheduletest.Transaction { return scheduletest.Transaction(sqltest.Begin(t, url)) }
}

// foreign returns transactions of other databases.
func foreign(t testing.TB) map[string]func(t testing.TB) scheduletest.Transaction {
	if !strings.Contains(t.Name(), "/transaction/") {
		return nil
	}
	database, err := testserver.RequirePostgres(t).Database(testwait.Long(t), testserver.Namespace())
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]func(t testing.TB) scheduletest.Transaction)
	for name, url := range map[string]string{"another file": fileURL(t), "another database of the server": database} {
		s := open(t, sqlschedule.Config{DB: sqltest.Open(t, url)})
		if _, err := s.Due(t.Context(), 0); err != nil { // makes the tables
			t.Fatal(err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		all[name] = begin(url)
	}
	return all
}

func liteHarness(t testing.TB) *scheduletest.Harness {
	at := fileURL(t)
	return &scheduletest.Harness{
		Open:     func(t testing.TB) scheduletest.Store { return open(t, sqlschedule.Config{DB: sqltest.Open(t, at)}) },
		Restart:  func(testing.TB) {}, // SQLite has no server; TestKilled covers killed processes
		Begin:    begin(at),
		Foreign:  foreign(t),
		Promises: promises,
		Report:   "../../docs/capabilities/schedules-sqlite.json",
	}
}

// postgresHarness returns a harness whose stores reach the server p at a URL.
func postgresHarness(t testing.TB, p *testserver.Postgres, at string) *scheduletest.Harness {
	name := testserver.Namespace() // one database for many schedules
	return &scheduletest.Harness{
		Open: func(t testing.TB) scheduletest.Store {
			return open(t, sqlschedule.Config{DB: sqltest.Open(t, at+"&pool_max_conns=4"), Name: name})
		},
		Sever: func(t testing.TB, _ scheduletest.Store) {
			if err := p.CloseAllConnections(testwait.Long(t)); err != nil {
				t.Fatal(err)
			}
		},
		Restart: func(t testing.TB) {
			p.Kill()
			if err := p.Restart(testwait.Long(t)); err != nil {
				t.Fatal(err)
			}
		},
		Down: func(t testing.TB) func() {
			p.Kill()
			return func() {
				if err := p.Restart(testwait.Long(t)); err != nil {
					t.Fatal(err)
				}
			}
		},
		Secret:   p.Password(),
		Begin:    begin(at),
		Foreign:  foreign(t),
		Promises: promises,
	}
}

func TestStore(t *testing.T) { scheduletest.Run(t, liteHarness) }

func TestStorePostgres(t *testing.T) {
	scheduletest.Run(t, func(t testing.TB) *scheduletest.Harness {
		p := testserver.RequirePostgres(t)
		h := postgresHarness(t, p, p.URL())
		h.Report = "../../docs/capabilities/schedules-postgres.json"
		return h
	})
}

// TestStorePgBouncer runs the suite through PgBouncer: with polling, and with a direct connection
// for notifications.
func TestStorePgBouncer(t *testing.T) {
	testserver.Thorough(t)
	p := testserver.OwnPostgres(t, testserver.PostgresConfig{})
	pooler := testserver.OwnPgBouncer(t, p)
	for name, at := range map[string]string{"polled": pooler.Polled(p.URL()), "listened": pooler.Listened(p.URL())} {
		t.Run(name, func(t *testing.T) {
			scheduletest.Run(t, func(t testing.TB) *scheduletest.Harness { return postgresHarness(t, p, at) })
		})
	}
}

// child opens a store in the processes of TestKilled.
func child(url, name string) (scheduletest.Store, error) {
	db, err := sqltest.New(url)
	if err != nil {
		return nil, err
	}
	s, err := sqlschedule.New(sqlschedule.Config{DB: db, Name: name})
	return owner{s, db}, err
}

// owner is a store that closes its database.
type owner struct {
	*sqlschedule.Store
	db sqldb.DB
}

func (o owner) Close(ctx context.Context) error {
	return errors.Join(o.Store.Close(ctx), o.db.Close(ctx))
}

func TestKilled(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		scheduletest.Killed(t, fileURL(t), "killed", child)
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		scheduletest.Killed(t, testserver.RequirePostgres(t).URL(), testserver.Namespace(), child)
	})
}

// TestMemory shows that a store in memory works.
func TestMemory(t *testing.T) {
	s := open(t, sqlschedule.Config{DB: sqltest.Open(t, "sqlite::memory:")})
	defer func() { _ = s.Close(context.Background()) }()
	ctx := testwait.Long(t)
	payload := []byte(`{"args":[],"cron":"* * * * 0 0 0","job":"x"}`)
	e := schedule.Entry{ID: schedule.ID(payload), Payload: payload, Next: time.Now().Add(-time.Second)}
	if added, err := s.Add(ctx, []schedule.Entry{e}); err != nil || !added[0] {
		t.Fatal(added, err)
	}
	b, err := s.Due(ctx, 1)
	if err != nil || len(b.Ticks) != 1 || string(b.Ticks[0].Payload) != string(payload) {
		t.Fatal(b, err)
	}
}

// TestNamesAreApart shows that schedules in one database do not see each other's entries.
// Promises: W1.
func TestNamesAreApart(t *testing.T) {
	dsn := fileURL(t)
	a, b := open(t, sqlschedule.Config{DB: sqltest.Open(t, dsn), Name: "a"}), open(t, sqlschedule.Config{DB: sqltest.Open(t, dsn)})
	defer func() { _, _ = a.Close(context.Background()), b.Close(context.Background()) }()
	ctx := testwait.Long(t)
	e := schedule.Entry{ID: "one", Payload: []byte("{}"), Next: time.Now().Add(-time.Second)}
	for _, s := range []*sqlschedule.Store{a, b} {
		if added, err := s.Add(ctx, []schedule.Entry{e}); err != nil || !added[0] {
			t.Fatalf("%s: %v, %v", s.Name(), added, err)
		}
	}
	if there, err := a.Remove(ctx, "one"); err != nil || !there {
		t.Fatal(there, err)
	}
	if got, err := b.Due(ctx, 10); err != nil || len(got.Ticks) != 1 || b.Name() != sqlschedule.DefaultName {
		t.Errorf("%v, %v", got.Ticks, err)
	}
}

func TestNewRefuses(t *testing.T) {
	_, err := sqlschedule.New(sqlschedule.Config{Name: "a\nb"})
	if !errors.Is(err, schedule.ErrBadEntry) || !strings.Contains(err.Error(), "DB must come from") {
		t.Errorf("%v", err)
	}
}
