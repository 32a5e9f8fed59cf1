package sqlconn_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

func TestConfigIsChecked(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  sqlconn.Config
		part string // of the error
	}{
		"nothing":       {sqlconn.Config{}, "begins with postgres://"},
		"other scheme":  {sqlconn.Config{URL: "mysql://u:secret@h/d"}, "begins with postgres://"},
		"negative":      {sqlconn.Config{URL: "sqlite:x.db", Readers: -1}, "Readers"},
		"sqlite host":   {sqlconn.Config{URL: "sqlite://dir/x.db"}, "three slashes"},
		"sqlite dir":    {sqlconn.Config{URL: "sqlite:///dir/"}, "no SQLite file"},
		"sqlite empty":  {sqlconn.Config{URL: "sqlite:"}, "no SQLite file"},
		"sqlite query":  {sqlconn.Config{URL: "sqlite:///x.db?_pragma=synchronous(0)"}, "no parameters"},
		"bad escape":    {sqlconn.Config{URL: "sqlite:///%zz.db"}, "cannot be read"},
		"bad port":      {sqlconn.Config{URL: "postgres://u:secret@h:port/d"}, "cannot be read"},
		"no parameter":  {sqlconn.Config{URL: "postgres://u:secret@h/d?connect_timeout=secret"}, "cannot read"},
		"schema":        {sqlconn.Config{URL: "postgres://u:secret@h/d?schema=a.b"}, "name of the schema"},
		"two schemas":   {sqlconn.Config{URL: "postgres://u:secret@h/d?schema=a", Schema: "b"}, "differ"},
		"pgbouncer":     {sqlconn.Config{URL: "postgres://u:secret@h/d?pgbouncer=perhaps"}, "true or false"},
		"options":       {sqlconn.Config{URL: "postgres://u:secret@h/d?pgbouncer=true&options=-c%20jit%3Doff"}, "refuses the parameter options"},
		"listen":        {sqlconn.Config{URL: "postgres://u:secret@h/d?listen_url=mysql://u:secret@h/d"}, "for notifications"},
		"prefer":        {sqlconn.Config{URL: "postgres://u:secret@h/d?sslmode=prefer"}, "verifies no certificate"},
		"require":       {sqlconn.Config{URL: "postgres://u:secret@h/d?sslmode=require"}, "verifies no certificate"},
		"contradiction": {sqlconn.Config{URL: "postgres://u:secret@h/d?sslmode=disable", TLS: &tls.Config{MinVersion: tls.VersionTLS12}}, "contradict"},
		"unverified":    {sqlconn.Config{URL: "postgres://u:secret@h/d", TLS: &tls.Config{InsecureSkipVerify: true}}, "always verified"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := connect(c.cfg)
			if err == nil || !strings.Contains(err.Error(), c.part) {
				t.Errorf("%v, want something of %q", err, c.part)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error holds the password: %v", err)
			}
		})
	}
}

// TestSSLModeOfTheEnvironment shows that all connections use TLS if the environment requires it.
func TestSSLModeOfTheEnvironment(t *testing.T) {
	u, err := url.Parse(pgURL(t, testserver.RequirePostgres(t)))
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Del("sslmode")
	u.RawQuery = q.Encode()
	ask := func(mode string, limit time.Duration) error {
		t.Setenv("PGSSLMODE", mode)
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		return tryExec(ctx, open(t, sqlconn.Config{URL: u.String()}), "SELECT 1")
	}
	if err := ask("verify-full", time.Second); !errors.Is(err, sqlconn.ErrUnavailable) {
		t.Errorf("PGSSLMODE=verify-full, and a server whose certificate nobody can verify: %v, want %v", err, sqlconn.ErrUnavailable)
	}
	for _, mode := range []string{"disable", ""} {
		if err := ask(mode, 20*time.Second); err != nil {
			t.Errorf("PGSSLMODE=%q: %v", mode, err)
		}
	}
}

// TestConnectionsAreBounded shows that a Conn has at most as many connections as its URL allows,
// and one that listens.
func TestConnectionsAreBounded(t *testing.T) {
	dsn := pgURL(t, testserver.RequirePostgres(t))
	const most = 3
	c, other := open(t, sqlconn.Config{URL: dsn + "&pool_max_conns=3", Name: "bounded"}), open(t, sqlconn.Config{URL: dsn})
	defer c.Watch(0).Close()
	over, group := make(chan struct{}), sync.WaitGroup{}
	for range 5 * most {
		group.Go(func() {
			if err := c.Update(testwait.Long(t), func(ctx context.Context, tx *sqlconn.Tx) error {
				_, err := tx.Now(ctx)
				<-over
				return err
			}); err != nil {
				t.Error(err)
			}
		})
	}
	sessions := func() int64 {
		return number(t, other, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'bounded'")
	}
	testwait.Until(t, "all connections are in use", func() bool { return sessions() >= most+1 })
	if n := sessions(); n != most+1 {
		t.Errorf("%d connections, want %d and the one that listens", n, most)
	}
	close(over)
	group.Wait()
	if n := sessions(); n != most+1 {
		t.Errorf("%d connections afterwards, want %d", n, most+1)
	}
}

// TestFile shows that the file belongs to its owner alone, whatever its name, and has the
// configured settings.
func TestFile(t *testing.T) {
	for _, name := range []string{"plain.db", "with blank.db", "50% ?.db", "a#b&c.db", "ä:ö"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			u := url.URL{Scheme: "sqlite", Path: filepath.Join(dir, name)}
			c := open(t, sqlconn.Config{URL: u.String()})
			run(t, c, "CREATE TABLE t (id bigint)")
			if n := number(t, c, "SELECT count(*) FROM t"); n != 0 {
				t.Error(n)
			}
			files, err := os.ReadDir(dir)
			if err != nil || len(files) != 3 {
				t.Fatalf("%v, %v: want the file, its log and the memory they share", files, err)
			}
			for _, f := range files {
				info, err := f.Info()
				if err != nil || info.Mode().Perm() != 0o600 || !strings.HasPrefix(f.Name(), name) {
					t.Errorf("%s has mode %v, %v", f.Name(), info.Mode(), err)
				}
			}
		})
	}
}

func TestRelativeFile(t *testing.T) {
	t.Chdir(t.TempDir())
	c := open(t, sqlconn.Config{URL: "sqlite:some%20file.db"})
	run(t, c, "CREATE TABLE t (id bigint)")
	if _, err := os.Stat("some file.db"); err != nil {
		t.Error(err)
	}
}

func TestPragmas(t *testing.T) {
	c := open(t, sqlconn.Config{URL: liteURL(t)})
	read := func(update bool, pragma string) (s string) {
		do := c.View
		if update {
			do = c.Update
		}
		if err := do(testwait.Long(t), func(ctx context.Context, tx *sqlconn.Tx) error { return tx.Row(ctx, "PRAGMA "+pragma).Scan(&s) }); err != nil {
			t.Fatal(err)
		}
		return s
	}
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1", "busy_timeout": "250", "trusted_schema": "0"} {
		for _, update := range []bool{true, false} {
			if got := read(update, pragma); got != want {
				t.Errorf("%s is %s, want %s (writer: %v)", pragma, got, want, update)
			}
		}
	}
	if err := c.View(testwait.Long(t), func(ctx context.Context, tx *sqlconn.Tx) error {
		_, err := tx.Exec(ctx, "CREATE TABLE x (id bigint)")
		return err
	}); err == nil {
		t.Error("a reader wrote")
	}
}

func TestFilesThatAreNone(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("this is no database\n", 300)), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{text: sqlconn.ErrCorrupt, dir: sqlconn.ErrAccess, filepath.Join(dir, "no", "such"): sqlconn.ErrAccess} {
		c := open(t, sqlconn.Config{URL: (&url.URL{Scheme: "sqlite", Path: path}).String()})
		for range 2 {
			if err := tryExec(testwait.Long(t), c, "CREATE TABLE t (id bigint)"); !errors.Is(err, want) || strings.Contains(err.Error(), dir) {
				t.Errorf("%v, want %v, and no path", err, want)
			}
		}
	}
}

func TestMemory(t *testing.T) {
	c := open(t, sqlconn.Config{URL: "sqlite::memory:"})
	run(t, c, "CREATE TABLE t (id bigint)")
	run(t, c, "INSERT INTO t VALUES (1)")
	if n := number(t, c, "SELECT count(*) FROM t"); n != 1 || c.Shared() {
		t.Errorf("%d rows, shared: %v", n, c.Shared())
	}
	other := open(t, sqlconn.Config{URL: "sqlite::memory:"})
	if err := tryExec(testwait.Long(t), other, "SELECT * FROM t"); !errors.Is(err, sqlconn.ErrRefused) {
		t.Errorf("another Conn sees it: %v", err)
	}
}

func TestClasses(t *testing.T) {
	for code, want := range map[string]error{
		"08006": sqlconn.ErrUnavailable, "57P01": sqlconn.ErrUnavailable, "57P03": sqlconn.ErrUnavailable, "53300": sqlconn.ErrUnavailable, "25006": sqlconn.ErrUnavailable,
		"53100": sqlconn.ErrFull, "28P01": sqlconn.ErrAccess, "3D000": sqlconn.ErrAccess, "42501": sqlconn.ErrAccess, "40001": sqlconn.ErrConflict, "40P01": sqlconn.ErrConflict,
		"23505": sqlconn.ErrRefused, "42P01": sqlconn.ErrRefused, "57014": sqlconn.ErrConflict,
	} {
		if err := sqlconn.Classify(&pgconn.PgError{Code: code}); !errors.Is(err, want) || !errors.Is(sqlconn.Class(err), want) {
			t.Errorf("%s is %v, want %v", code, err, want)
		}
	}
	for code, want := range map[int]error{5: sqlconn.ErrUnavailable, 261: sqlconn.ErrUnavailable, 13: sqlconn.ErrFull, 14: sqlconn.ErrAccess, 8: sqlconn.ErrAccess, 11: sqlconn.ErrCorrupt, 26: sqlconn.ErrCorrupt, 19: sqlconn.ErrRefused, 1: sqlconn.ErrRefused} {
		if got := sqlconn.ClassOfLite(code); !errors.Is(got, want) {
			t.Errorf("%d is %v, want %v", code, got, want)
		}
	}
	for code, want := range map[string]bool{"22003": true, "22021": true, "23514": true, "54000": true, "53100": false, "42P01": false, "40001": false, "": false} {
		if got := sqlconn.IsData(sqlconn.Classify(&pgconn.PgError{Code: code})); got != want {
			t.Errorf("%s is about a value: %v, want %v", code, got, want)
		}
	}
	if sqlconn.Classify(nil) != nil || sqlconn.Class(nil) != nil || sqlconn.Class(errors.New("x")) != nil {
		t.Error("what is no failure has a class")
	}
}
