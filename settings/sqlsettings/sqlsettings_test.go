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
			Open:     func(t testing.TB) settings.Store { return open(t, url, "") },
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
			Secret:   srv.Password(),
			Promises: settingstest.Promises{Exact: true, Durable: true},
			Report:   "../../docs/capabilities/settings-postgres.json",
		}
	})
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
