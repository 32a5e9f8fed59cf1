package sqlsettings_test

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/settings"
	"github.com/swarmiji/swarmiji/settings/settingstest"
	"github.com/swarmiji/swarmiji/settings/sqlsettings"
	"github.com/swarmiji/swarmiji/sqldb"
)

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(testserver.Reaper))
}

// owner is a Store that closes its database.
type owner struct {
	*sqlsettings.Store
	db sqldb.DB
}

func (o owner) Close(ctx context.Context) error {
	return errors.Join(o.Store.Close(ctx), o.db.Close(ctx))
}

func open(t testing.TB, url, namespace string) settings.Store {
	t.Helper()
	db := sqltest.Open(t, url)
	s, err := sqlsettings.New(sqlsettings.Config{DB: db, Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	return owner{s, db}
}

func TestSQLite(t *testing.T) {
	settingstest.Run(t, func(t testing.TB) *settingstest.Harness {
		dir, err := os.MkdirTemp("/dev/shm", "sqlsettings") //nolint:usetesting // that one is on the disk
		if err != nil {
			dir = t.TempDir()
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		url := "sqlite://" + filepath.Join(dir, "app.db")
		return &settingstest.Harness{
			Open: func(t testing.TB) settings.Store { return open(t, url, "") },
			Foreign: func(t testing.TB) {
				foreign(t, url)
				insert(t, url, "queue/q/pause", "'seven'")
			},
			Promises: settingstest.Promises{Exact: true, Durable: true},
			Report:   "../../docs/capabilities/settings-sqlite.json",
		}
	})
}

func TestPostgres(t *testing.T) {
	settingstest.Run(t, func(t testing.TB) *settingstest.Harness {
		srv := testserver.RequirePostgres(t)
		line := testserver.NewRelay(t, srv.Addr())
		url, err := srv.Database(t.Context(), testserver.Namespace())
		if err != nil {
			t.Fatal(err)
		}
		url = line.URL(url) + "&pool_max_conns=4"
		return &settingstest.Harness{
			Open:  func(t testing.TB) settings.Store { return open(t, url, "") },
			Sever: func(testing.TB) { line.Sever() },
			Restart: func(t testing.TB) {
				if err := srv.Restart(testwait.Long(t)); err != nil {
					t.Fatal(err)
				}
			},
			Down: func(testing.TB) func() {
				line.SetDown(true)
				return func() { line.SetDown(false) }
			},
			Foreign:  func(t testing.TB) { foreign(t, url) },
			Secret:   srv.Password(),
			Promises: settingstest.Promises{Exact: true, Durable: true},
			Report:   "../../docs/capabilities/settings-postgres.json",
		}
	})
}

// insert adds a row of the default namespace, as another program would.
func insert(t testing.TB, url, key, revision string) {
	t.Helper()
	err := sqltest.Conn(t, url).Update(testwait.Long(t), func(ctx context.Context, tx *sqlconn.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO swarmiji_setting (namespace, key, revision, value) VALUES ($1, $2, "+revision+", '{}')", sqlsettings.DefaultNamespace, key)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// foreign adds rows that no store can read.
func foreign(t testing.TB, url string) {
	t.Helper()
	insert(t, url, "not a key", "7")
	insert(t, url, "queue/r/pause", "0")
}

// TestForeignRow shows that Get returns an error that names a row of another program. A change of
// this value does not repeat for ever.
func TestForeignRow(t *testing.T) {
	url := "sqlite://" + filepath.Join(t.TempDir(), "app.db")
	s, ctx := open(t, url, ""), testwait.Long(t)
	defer s.Close(ctx)
	if _, err := s.List(ctx, ""); err != nil { // it makes the tables
		t.Fatal(err)
	}
	insert(t, url, "queue/q/pause", "'seven'")
	err := settings.PauseQueue(ctx, s, "q", settings.Pause{})
	if !errors.Is(err, settings.ErrBad) || !strings.Contains(err.Error(), "queue/q/pause") {
		t.Errorf("%v", err)
	}
}

// TestNamespaces shows that programs with different namespaces share no values.
func TestNamespaces(t *testing.T) {
	url := "sqlite://" + filepath.Join(t.TempDir(), "app.db")
	a, b := open(t, url, "a"), open(t, url, "b")
	ctx := testwait.Long(t)
	defer a.Close(ctx)
	defer b.Close(ctx)
	if _, err := a.Put(ctx, "x", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	if all, err := b.List(ctx, ""); err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
}

func TestNewRefuses(t *testing.T) {
	_, err := sqlsettings.New(sqlsettings.Config{Namespace: "a.b"})
	if err == nil || !strings.Contains(err.Error(), "Namespace") || !strings.Contains(err.Error(), "DB") {
		t.Errorf("%v", err)
	}
}
