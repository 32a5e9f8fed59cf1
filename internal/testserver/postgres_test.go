package testserver_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// dialPostgres connects to a URL and closes the connection at the end of the test.
func dialPostgres(tb testing.TB, url string) *pgx.Conn {
	tb.Helper()
	conn, err := pgx.Connect(deadline(tb, 20*time.Second), url)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close(context.Background()) }) // a test may have killed the server
	return conn
}

func mustExec(tb testing.TB, c *pgx.Conn, sql string) {
	tb.Helper()
	if _, err := c.Exec(deadline(tb, 20*time.Second), sql); err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
}

func ownDatabase(tb testing.TB, p *testserver.Postgres) string {
	tb.Helper()
	url, err := p.Database(deadline(tb, 30*time.Second), testserver.Namespace())
	if err != nil {
		tb.Fatal(err)
	}
	return url
}

func TestPostgresNeedsItsPassword(t *testing.T) {
	p := testserver.RequirePostgres(t)
	_, err := pgx.Connect(deadline(t, 10*time.Second), "postgres://"+p.User()+":wrong@"+p.Addr()+"/postgres?sslmode=disable")
	if pe, ok := errors.AsType[*pgconn.PgError](err); !ok || pe.Code != "28P01" {
		t.Errorf("with another password: %v, want 28P01", err)
	}
	if !strings.Contains(p.URL(), p.User()+":"+p.Password()+"@"+p.Addr()) {
		t.Error("the URL lacks the user, the password or the address")
	}
	mustExec(t, dialPostgres(t, p.URL()), "SELECT 1")
	if p.TLSURL() != "" {
		t.Error("a server without TLS has an address for it")
	}
}

// Databases are separate: both can have a table with the same name.
func TestPostgresDatabases(t *testing.T) {
	p := testserver.RequirePostgres(t)
	for range 2 {
		mustExec(t, dialPostgres(t, ownDatabase(t, p)), "CREATE TABLE t (n int)")
	}
	if _, err := p.Database(deadline(t, 10*time.Second), "postgres"); err == nil {
		t.Error("a database was made a second time")
	}
}

// Committed data survives a restart in good order and SIGKILL, on the same URL, because a commit
// waits for the disk.
func TestPostgresRestartKeepsData(t *testing.T) {
	p := testserver.RequirePostgres(t)
	for name, down := range map[string]func(){
		"restart": func() {},
		"killed":  p.Kill,
	} {
		t.Run(name, func(t *testing.T) {
			url, pid := ownDatabase(t, p), p.PID()
			c := dialPostgres(t, url)
			mustExec(t, c, "CREATE TABLE t (n int)")
			mustExec(t, c, "INSERT INTO t VALUES (7)")
			down()
			if err := p.Restart(deadline(t, time.Minute)); err != nil {
				t.Fatal(err)
			}
			if p.PID() == pid {
				t.Error("the server has the same process id as before")
			}
			var n int
			var fsync, commit string
			err := dialPostgres(t, url).QueryRow(deadline(t, 20*time.Second),
				"SELECT n, current_setting('fsync'), current_setting('synchronous_commit') FROM t").Scan(&n, &fsync, &commit)
			if err != nil || n != 7 || fsync != "on" || commit != "on" {
				t.Errorf("after it: %d, fsync %s, synchronous_commit %s, %v", n, fsync, commit, err)
			}
		})
	}
}

// RequirePostgres returns a working server after a test killed, paused or stopped it.
func TestRequirePostgresMends(t *testing.T) {
	for name, breakIt := range map[string]func(*testserver.Postgres){
		"killed":  (*testserver.Postgres).Kill,
		"paused":  (*testserver.Postgres).Pause,
		"stopped": func(p *testserver.Postgres) { _ = p.Stop(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			breakIt(testserver.RequirePostgres(t))
			mustExec(t, dialPostgres(t, testserver.RequirePostgres(t).URL()), "SELECT 1")
		})
	}
}

// Pause also freezes the server's sessions, which are separate processes.
func TestPostgresPauseSilences(t *testing.T) {
	p := testserver.RequirePostgres(t)
	c := dialPostgres(t, p.URL())
	mustExec(t, c, "SELECT 1")
	p.Pause()
	reply := make(chan error, 1)
	go func() {
		_, err := c.Exec(context.Background(), "SELECT 1")
		reply <- err
	}()
	select {
	case err := <-reply:
		t.Errorf("a paused server answered within 300 ms: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	p.Resume()
	select {
	case err := <-reply:
		if err != nil {
			t.Errorf("after Resume: %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("no answer after Resume")
	}
}

// Kill also ends the server's sessions. A session that survived would continue to write beside the
// next server.
func TestPostgresKillEndsSessions(t *testing.T) {
	p := testserver.RequirePostgres(t)
	c := dialPostgres(t, p.URL())
	ended := make(chan error, 1)
	go func() {
		_, err := c.Exec(context.Background(), "SELECT pg_sleep(60)")
		ended <- err
	}()
	watch := dialPostgres(t, p.URL())
	testwait.UntilNil(t, "the statement runs", func() error {
		var n int
		err := watch.QueryRow(deadline(t, 10*time.Second), "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(60)' AND pid <> pg_backend_pid()").Scan(&n)
		if err == nil && n == 0 {
			err = errors.New("not yet")
		}
		return err
	})
	p.Kill()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("a killed server answered")
		}
	case <-time.After(20 * time.Second):
		t.Error("the session of a killed server lives")
	}
}

func TestPostgresCloseAllConnections(t *testing.T) {
	p := testserver.RequirePostgres(t)
	c := dialPostgres(t, p.URL())
	if err := p.CloseAllConnections(deadline(t, 20*time.Second)); err != nil {
		t.Fatal(err)
	}
	testwait.UntilNil(t, "the connection ends", func() error {
		if _, err := c.Exec(deadline(t, 10*time.Second), "SELECT 1"); err == nil {
			return errors.New("it lives")
		}
		return nil
	})
}

func TestPostgresTLS(t *testing.T) {
	files, err := testserver.NewTLSFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p := testserver.OwnPostgres(t, testserver.PostgresConfig{TLS: files, RequireClientCert: true, Conf: "work_mem = 5MB"})
	for _, cert := range []bool{true, false} {
		cfg, err := pgx.ParseConfig(p.TLSURL())
		if err != nil {
			t.Fatal(err)
		}
		if cfg.TLSConfig, err = files.ClientConfig(cert); err != nil {
			t.Fatal(err)
		}
		cfg.TLSConfig.ServerName = "127.0.0.1"
		conn, err := pgx.ConnectConfig(deadline(t, 20*time.Second), cfg)
		if (err == nil) != cert {
			t.Errorf("with client certificate %v: %v", cert, err)
		}
		if err == nil {
			var mem string
			if err := conn.QueryRow(t.Context(), "SHOW work_mem").Scan(&mem); err != nil || mem != "5MB" {
				t.Errorf("work_mem is %s, %v; the lines of Conf come last", mem, err)
			}
			_ = conn.Close(t.Context())
		}
	}
	mustExec(t, dialPostgres(t, p.URL()), "SELECT 1")
}
