package sqlconn

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/swarmiji/swarmiji/task"
)

// The values that are used where a [Config] names none.
const (
	DefaultConnections = 16
	DefaultReaders     = 4
	DefaultDialTimeout = 5 * time.Second
	DefaultTimeout     = 30 * time.Second
)

// Config says where the database is. URL is the only field that must be set.
type Config struct {
	// URL names the database:
	//
	//   - sqlite:///var/lib/app.db is a file, sqlite:app.db one in the working directory. It is made when it is first used,
	//     readable by its owner alone; its directory must exist, and must not be on a network file system.
	//   - sqlite::memory: is a database of this Conn alone, which ends with it.
	//   - postgres://user:password@host:5432/database, with further hosts after commas, and the parameters that the client
	//     pgx knows. pool_max_conns is the most connections: 16. A Conn that has watchers has one
	//     more.
	//     sslmode is verify-full, verify-ca or disable. If the URL has none, PGSSLMODE counts,
	//     then the service file, then disable. require, prefer and allow verify no certificate, and
	//     are errors. In a service file, prefer and allow count as none.
	URL string
	// TLS is used for PostgreSQL in place of what the URL says of TLS; it is not changed. A missing ServerName is the URL's
	// host; the minimum is TLS 1.2. InsecureSkipVerify is an error. With SQLite it is an error.
	TLS *tls.Config
	// Name is shown in the server's list of sessions, if the URL has no application_name. Empty: swarmiji.
	Name string
	// Readers is how many connections read a SQLite file beside the one that writes. 0: 4.
	Readers int
	// Timeout bounds one attempt of a transaction on PostgreSQL, so that a server which has fallen silent is given up even
	// if ctx has no end. 0: 30 s.
	Timeout time.Duration
	// Settings are parameters of the server's sessions, such as plan_cache_mode, for PostgreSQL alone. What the URL sets counts more.
	Settings map[string]string
	// Backoff is between attempts. Zero: full jitter up to 100 ms at first and up to 5 s in the end.
	Backoff task.Backoff
	// Logger is told of lost connections of watchers, and of nothing else. Nil: slog.Default().
	Logger *slog.Logger
}

// plan is a checked configuration.
type plan struct {
	Config
	dialect Dialect
	file    string          // of SQLite; "" in memory
	pool    *pgxpool.Config // of PostgreSQL
}

// check returns all problems of the configuration.
func (c Config) check() (plan, error) {
	p := plan{Config: c}
	var errs []error
	for _, n := range []struct {
		value int64
		name  string
	}{{int64(c.Readers), "Readers"}, {int64(c.Timeout), "Timeout"}} {
		if n.value < 0 {
			errs = append(errs, fmt.Errorf("sql: %s is negative", n.name))
		}
	}
	if p.Readers == 0 {
		p.Readers = DefaultReaders
	}
	if p.Timeout == 0 {
		p.Timeout = DefaultTimeout
	}
	if p.Name == "" {
		p.Name = "swarmiji"
	}
	if p.Logger == nil {
		p.Logger = slog.Default()
	}
	scheme, rest, _ := strings.Cut(c.URL, ":")
	switch scheme {
	case "sqlite":
		p.dialect = SQLite
		errs = append(errs, p.checkLite(rest))
	case "postgres", "postgresql":
		p.dialect = Postgres
		errs = append(errs, p.checkPostgres())
	case "":
		errs = append(errs, errors.New("sql: no URL is given"))
	default:
		errs = append(errs, errors.New("sql: the URL begins with neither sqlite: nor postgres://"))
	}
	return p, errors.Join(errs...)
}

// checkLite finds the file's name.
func (p *plan) checkLite(rest string) error {
	if p.TLS != nil {
		return errors.New("sql: TLS is for PostgreSQL; a SQLite file has no connection to encrypt")
	}
	if rest == ":memory:" {
		return nil
	}
	u, err := url.Parse(p.URL)
	switch {
	case err != nil:
		return errors.New("sql: the URL of the SQLite file cannot be read; a % in its name is written %25")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return errors.New("sql: the URL of a SQLite file takes no parameters; a ? in its name is written %3F, a # %23")
	case u.Host != "" || u.User != nil:
		return errors.New("sql: sqlite:///absolute/path or sqlite:relative/path is the URL of a SQLite file, with three slashes or none")
	}
	p.file = u.Path
	if u.Opaque != "" {
		p.file, err = url.PathUnescape(u.Opaque)
	}
	if err != nil || p.file == "" || strings.HasSuffix(p.file, "/") || strings.ContainsRune(p.file, 0) {
		return errors.New("sql: the URL names no SQLite file")
	}
	return nil
}

// checkPostgres reads the URL as the client does. The client's errors quote it, and so are not shown.
func (p *plan) checkPostgres() error {
	u, err := url.Parse(p.URL)
	if err != nil {
		return errors.New("sql: the URL of PostgreSQL cannot be read")
	}
	q := u.Query()
	mode := q.Get("sslmode")
	switch {
	case p.TLS != nil && mode != "" && mode != "verify-full":
		return fmt.Errorf("sql: sslmode=%s and a TLS configuration contradict each other", mode)
	case p.TLS != nil && p.TLS.InsecureSkipVerify:
		return errors.New("sql: InsecureSkipVerify: the server's certificate is always verified; trust a private authority with RootCAs")
	}
	pool, err := p.parsePool(u, mode)
	if err != nil {
		return err
	}
	if !q.Has("pool_max_conns") {
		pool.MaxConns = DefaultConnections
	}
	cc := &pool.ConnConfig.Config
	if cc.ConnectTimeout == 0 {
		cc.ConnectTimeout = DefaultDialTimeout
	}
	if cc.RuntimeParams["application_name"] == "" {
		cc.RuntimeParams["application_name"] = p.Name
	}
	if _, ok := cc.RuntimeParams["idle_in_transaction_session_timeout"]; !ok {
		// A process that is frozen in the middle of a transaction must let go of its locks.
		cc.RuntimeParams["idle_in_transaction_session_timeout"] = "30000"
	}
	for name, value := range p.Settings {
		if _, ok := cc.RuntimeParams[name]; !ok {
			cc.RuntimeParams[name] = value
		}
	}
	p.pool = pool
	p.setTLS()
	return nil
}

// parsePool lets the client parse the URL, the environment and the service file. mode is the
// sslmode of the URL. It returns an error if a server's certificate would not be verified.
func (p *plan) parsePool(u *url.URL, mode string) (*pgxpool.Config, error) {
	parse := func(add string) (*pgxpool.Config, error) {
		if add != "" {
			u.RawQuery = strings.TrimPrefix(u.RawQuery+"&sslmode="+url.QueryEscape(add), "&")
		}
		pool, err := pgxpool.ParseConfig(u.String())
		if err != nil {
			return nil, errors.New("sql: the client cannot read the URL of PostgreSQL, or the variables PG... of the environment: a host, a port or a parameter is wrong")
		}
		return pool, nil
	}
	said, add := "sslmode="+mode, ""
	if mode == "" {
		add = os.Getenv("PGSSLMODE")
		said = "PGSSLMODE=" + add
		if p.TLS != nil {
			add = "disable" // setTLS puts p.TLS in its place
		}
	}
	pool, err := parse(add)
	if err != nil || !unverified(pool) {
		return pool, err
	}
	if mode == "" && add == "" {
		if said = "the service file's sslmode"; optional(pool) { // nothing sets sslmode
			return parse("disable") // else the client would try TLS, and do without if it is refused
		}
	}
	return nil, fmt.Errorf("sql: %s verifies no certificate; verify-full does, disable says that there is no TLS", said)
}

// unverified reports whether a host's certificate would be taken without being verified.
func unverified(pool *pgxpool.Config) bool {
	return anyTLS(pool, func(t *tls.Config) bool { return t != nil && t.InsecureSkipVerify && t.VerifyPeerCertificate == nil })
}

// optional reports whether the client would do without TLS where the server has none.
func optional(pool *pgxpool.Config) bool {
	return anyTLS(pool, func(t *tls.Config) bool { return t == nil })
}

// anyTLS reports whether is holds for the TLS configuration of any host.
func anyTLS(pool *pgxpool.Config, is func(t *tls.Config) bool) bool {
	cc := &pool.ConnConfig.Config
	return is(cc.TLSConfig) || slices.ContainsFunc(cc.Fallbacks, func(f *pgconn.FallbackConfig) bool { return is(f.TLSConfig) })
}

// setTLS puts the configuration of TLS to all hosts, and the minimum to what the URL says.
func (p *plan) setTLS() {
	cc := &p.pool.ConnConfig.Config
	set := func(host string, t *tls.Config) *tls.Config {
		if p.TLS != nil {
			t = p.TLS.Clone()
			if t.ServerName == "" {
				t.ServerName = host
			}
		}
		if t != nil {
			t.MinVersion = max(t.MinVersion, tls.VersionTLS12)
		}
		return t
	}
	cc.TLSConfig = set(cc.Host, cc.TLSConfig)
	for _, f := range cc.Fallbacks {
		f.TLSConfig = set(f.Host, f.TLSConfig)
	}
}
