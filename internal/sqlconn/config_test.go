package sqlconn

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

	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

func TestConfigIsChecked(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  Config
		part string // of the error
	}{
		"nothing":       {Config{}, "no URL"},
		"other scheme":  {Config{URL: "mysql://u:secret@h/d"}, "neither"},
		"negative":      {Config{URL: "sqlite:x.db", Readers: -1}, "Readers"},
		"sqlite host":   {Config{URL: "sqlite://dir/x.db"}, "three slashes"},
		"sqlite dir":    {Config{URL: "sqlite:///dir/"}, "no SQLite file"},
		"sqlite empty":  {Config{URL: "sqlite:"}, "no SQLite file"},
		"sqlite query":  {Config{URL: "sqlite:///x.db?_pragma=synchronous(0)"}, "no parameters"},
		"sqlite TLS":    {Config{URL: "sqlite:///x.db", TLS: &tls.Config{MinVersion: tls.VersionTLS12}}, "TLS"},
		"bad escape":    {Config{URL: "sqlite:///%zz.db"}, "cannot be read"},
		"bad port":      {Config{URL: "postgres://u:secret@h:port/d"}, "cannot be read"},
		"no parameter":  {Config{URL: "postgres://u:secret@h/d?connect_timeout=secret"}, "cannot read"},
		"prefer":        {Config{URL: "postgres://u:secret@h/d?sslmode=prefer"}, "verifies no certificate"},
		"require":       {Config{URL: "postgres://u:secret@h/d?sslmode=require"}, "verifies no certificate"},
		"contradiction": {Config{URL: "postgres://u:secret@h/d?sslmode=disable", TLS: &tls.Config{MinVersion: tls.VersionTLS12}}, "contradict"},
		"unverified":    {Config{URL: "postgres://u:secret@h/d", TLS: &tls.Config{InsecureSkipVerify: true}}, "always verified"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(c.cfg)
			if err == nil || !strings.Contains(err.Error(), c.part) {
				t.Errorf("%v, want something of %q", err, c.part)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error holds the password: %v", err)
			}
		})
	}
}

func TestPostgresDefaults(t *testing.T) {
	p, err := Config{URL: "postgres://u@h:1,i:2/d", TLS: &tls.Config{MinVersion: tls.VersionTLS10}}.check()
	if err != nil {
		t.Fatal(err)
	}
	cc := p.pool.ConnConfig
	if p.pool.MaxConns != DefaultConnections || cc.ConnectTimeout != DefaultDialTimeout || cc.RuntimeParams["application_name"] != "swarmiji" {
		t.Errorf("%d connections, dial %v, name %q", p.pool.MaxConns, cc.ConnectTimeout, cc.RuntimeParams["application_name"])
	}
	if len(cc.Fallbacks) != 1 || cc.TLSConfig.ServerName != "h" || cc.Fallbacks[0].TLSConfig.ServerName != "i" || cc.TLSConfig.MinVersion != tls.VersionTLS12 {
		t.Errorf("TLS %+v, further hosts %+v", cc.TLSConfig, cc.Fallbacks)
	}
	p, err = Config{URL: "postgres://u@h/d?pool_max_conns=3&application_name=me"}.check()
	if err != nil || p.pool.MaxConns != 3 || p.pool.ConnConfig.RuntimeParams["application_name"] != "me" || p.pool.ConnConfig.TLSConfig != nil || len(p.pool.ConnConfig.Fallbacks) != 0 {
		t.Errorf("what the URL says is not taken: %v", err)
	}
	for _, mode := range []string{"", "&sslmode=", "&sslmode=disable"} {
		p, err = Config{URL: "postgres://u@h/d?options=-c%20search_path%3Dx&application_name=a+b" + mode}.check()
		if err != nil {
			t.Fatal(err)
		}
		cc := p.pool.ConnConfig
		if r := cc.RuntimeParams; r["options"] != "-c search_path=x" || r["application_name"] != "a+b" || cc.TLSConfig != nil || len(cc.Fallbacks) != 0 {
			t.Errorf("with %q the parameters are %q, TLS %v", mode, r, cc.TLSConfig)
		}
	}
}

// TestSSLMode: what the URL says counts, then what the environment says. When neither says anything
// there is no TLS.
func TestSSLMode(t *testing.T) {
	service := filepath.Join(t.TempDir(), "services")
	if err := os.WriteFile(service, []byte("[full]\nsslmode=verify-full\n[require]\nsslmode=require\n[none]\nuser=u\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	own := &tls.Config{MinVersion: tls.VersionTLS13}
	for _, c := range []struct {
		env, query string
		tls        *tls.Config
		want       string // "": no TLS
	}{
		{"", "", nil, ""},
		{"", "?sslmode=", nil, ""},
		{"", "?sslmode=verify-full", nil, "verify-full"},
		{"", "?ssl=true", nil, "error"},
		{"verify-full", "", nil, "verify-full"},
		{"verify-full", "?sslmode=", nil, "verify-full"},
		{"verify-full", "?sslmode=disable", nil, ""},
		{"verify-ca", "?application_name=a+b", nil, "verify-ca"},
		{"disable", "", nil, ""},
		{"disable", "?sslmode=verify-full", nil, "verify-full"},
		{"disable", "", own, "own"},
		{"prefer", "", own, "own"},
		{"prefer", "", nil, "error"},
		{"require", "", nil, "error"},
		{"nonsense", "", nil, "error"},
		{"", "?service=full", nil, "verify-full"},
		{"", "?service=require", nil, "error"},
		{"", "?service=none", nil, ""},
		{"", "?sslrootcert=system", nil, "verify-full"},
	} {
		t.Run(c.env+c.query, func(t *testing.T) {
			t.Setenv("PGSSLMODE", c.env)
			t.Setenv("PGSERVICEFILE", service)
			p, err := Config{URL: "postgres://u:secret@h,i/d" + c.query, TLS: c.tls}.check()
			got := "error"
			if err == nil {
				got = modeOf(p.pool.ConnConfig.TLSConfig)
				for _, f := range p.pool.ConnConfig.Fallbacks {
					if other := modeOf(f.TLSConfig); other != got {
						t.Errorf("one host with %q, another with %q", got, other)
					}
				}
			} else if strings.Contains(err.Error(), "secret") {
				t.Errorf("the error holds the password: %v", err)
			}
			if got != c.want {
				t.Errorf("TLS is %q (%v), want %q", got, err, c.want)
			}
		})
	}
}

// modeOf is the sslmode that a configuration of TLS means.
func modeOf(t *tls.Config) string {
	switch {
	case t == nil:
		return ""
	case t.MinVersion == tls.VersionTLS13:
		return "own"
	case !t.InsecureSkipVerify:
		return "verify-full"
	case t.VerifyPeerCertificate != nil:
		return "verify-ca"
	}
	return "unverified"
}

// TestSSLModeOfTheEnvironment: no plain connection is made where the environment wants TLS.
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
		return tryExec(ctx, open(t, Config{URL: u.String()}), "SELECT 1")
	}
	if err := ask("verify-full", time.Second); !errors.Is(err, ErrUnavailable) {
		t.Errorf("PGSSLMODE=verify-full, and a server whose certificate nobody can verify: %v, want %v", err, ErrUnavailable)
	}
	for _, mode := range []string{"disable", ""} {
		if err := ask(mode, 20*time.Second); err != nil {
			t.Errorf("PGSSLMODE=%q: %v", mode, err)
		}
	}
}

// TestConnectionsAreBounded: a Conn has as many connections as its URL allows, and one that
// listens.
func TestConnectionsAreBounded(t *testing.T) {
	dsn := pgURL(t, testserver.RequirePostgres(t))
	const most = 3
	c, other := open(t, Config{URL: dsn + "&pool_max_conns=3", Name: "bounded"}), open(t, Config{URL: dsn})
	defer c.Watch(0).Close()
	over, group := make(chan struct{}), sync.WaitGroup{}
	for range 5 * most {
		group.Go(func() {
			if err := c.Update(testwait.Long(t), func(ctx context.Context, tx *Tx) error {
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

// The file is its owner's alone, whatever its name, and is what the settings ask for.
func TestFile(t *testing.T) {
	for _, name := range []string{"plain.db", "with blank.db", "50% ?.db", "a#b&c.db", "ä:ö"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			u := url.URL{Scheme: "sqlite", Path: filepath.Join(dir, name)}
			c := open(t, Config{URL: u.String()})
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
	c := open(t, Config{URL: "sqlite:some%20file.db"})
	run(t, c, "CREATE TABLE t (id bigint)")
	if _, err := os.Stat("some file.db"); err != nil {
		t.Error(err)
	}
}

func TestPragmas(t *testing.T) {
	c := open(t, Config{URL: liteURL(t)})
	read := func(update bool, pragma string) (s string) {
		do := c.View
		if update {
			do = c.Update
		}
		if err := do(testwait.Long(t), func(ctx context.Context, tx *Tx) error { return tx.Row(ctx, "PRAGMA "+pragma).Scan(&s) }); err != nil {
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
	if err := c.View(testwait.Long(t), func(ctx context.Context, tx *Tx) error {
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
	for path, want := range map[string]error{text: ErrCorrupt, dir: ErrAccess, filepath.Join(dir, "no", "such"): ErrAccess} {
		c := open(t, Config{URL: (&url.URL{Scheme: "sqlite", Path: path}).String()})
		for range 2 {
			if err := tryExec(testwait.Long(t), c, "CREATE TABLE t (id bigint)"); !errors.Is(err, want) || strings.Contains(err.Error(), dir) {
				t.Errorf("%v, want %v, and no path", err, want)
			}
		}
	}
}

func TestMemory(t *testing.T) {
	c := open(t, Config{URL: "sqlite::memory:"})
	run(t, c, "CREATE TABLE t (id bigint)")
	run(t, c, "INSERT INTO t VALUES (1)")
	if n := number(t, c, "SELECT count(*) FROM t"); n != 1 || c.Shared() {
		t.Errorf("%d rows, shared: %v", n, c.Shared())
	}
	other := open(t, Config{URL: "sqlite::memory:"})
	if err := tryExec(testwait.Long(t), other, "SELECT * FROM t"); !errors.Is(err, ErrRefused) {
		t.Errorf("another Conn sees it: %v", err)
	}
}

func TestClasses(t *testing.T) {
	for code, want := range map[string]error{
		"08006": ErrUnavailable, "57P01": ErrUnavailable, "57P03": ErrUnavailable, "53300": ErrUnavailable, "25006": ErrUnavailable,
		"53100": ErrFull, "28P01": ErrAccess, "3D000": ErrAccess, "42501": ErrAccess, "40001": ErrConflict, "40P01": ErrConflict,
		"23505": ErrRefused, "42P01": ErrRefused, "57014": ErrRefused,
	} {
		if err := classify(&pgconn.PgError{Code: code}); !errors.Is(err, want) || !errors.Is(Class(err), want) {
			t.Errorf("%s is %v, want %v", code, err, want)
		}
	}
	for code, want := range map[int]error{5: ErrUnavailable, 261: ErrUnavailable, 13: ErrFull, 14: ErrAccess, 8: ErrAccess, 11: ErrCorrupt, 26: ErrCorrupt, 19: ErrRefused, 1: ErrRefused} {
		if got := classOfLite(code); !errors.Is(got, want) {
			t.Errorf("%d is %v, want %v", code, got, want)
		}
	}
	if classify(nil) != nil || Class(nil) != nil || Class(errors.New("x")) != nil {
		t.Error("what is no failure has a class")
	}
}
