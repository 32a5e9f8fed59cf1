package sqlconn

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/connect/sqlconnect"
	"github.com/swarmiji/swarmiji/task"
)

// The defaults of [Config].
const (
	DefaultConnections = 16
	DefaultReaders     = 4
	DefaultDialTimeout = 5 * time.Second
	DefaultTimeout     = 30 * time.Second
	DefaultLockWait    = 2 * time.Second
)

// Config holds the settings of a [Conn]. Engine and URL are required.
type Config struct {
	// Engine is the client library. It must support the scheme of URL.
	Engine sqlconnect.Engine
	// URL names the database. The forms are:
	//
	//   - sqlite:///var/lib/app.db is a file. sqlite:app.db is a file in the working directory. The
	//     file is created at first use, readable by its owner only. Its directory must exist, and must
	//     not be on a network file system.
	//   - sqlite::memory: is a database in memory for this Conn alone. It ends with the Conn.
	//   - postgres://user:password@host:5432/database, with further hosts after commas. It takes the
	//     parameters of the client pgx.
	//
	// For PostgreSQL, pool_max_conns is the largest number of connections. Default: 16. A Conn with
	// watchers uses one more.
	//
	// sslmode is verify-full, verify-ca or disable. If the URL has no sslmode, the service file
	// decides, then PGSSLMODE, then disable. require, prefer and allow do not verify certificates, and
	// are errors. In a service file, prefer and allow are ignored.
	URL string
	// TLS replaces the URL's settings about TLS, for PostgreSQL. It is not changed. A missing
	// ServerName is the URL's host. The minimum is TLS 1.2. InsecureSkipVerify is an error. TLS is an
	// error with SQLite.
	TLS *tls.Config
	// Name is shown in the server's list of sessions, unless the URL has an application_name. Default:
	// swarmiji.
	Name string
	// Readers is the number of connections that read a SQLite file, beside the writing connection.
	// Default: 4.
	Readers int
	// Timeout limits one attempt of a transaction on PostgreSQL. If no statement has succeeded by
	// then, as with a silent server, the call makes another attempt. Otherwise it returns
	// [ErrUnavailable], since a large transaction would take as long again. Default: 30s.
	Timeout time.Duration
	// LockWait limits how long a migration on PostgreSQL waits for a lock. Statements of other
	// sessions wait behind the migration. Default: 2s.
	LockWait time.Duration
	// Settings holds parameters for the server's sessions, such as plan_cache_mode. Only PostgreSQL
	// uses them. The URL has precedence.
	Settings map[string]string
	// Backoff is the wait between two attempts. Default: full jitter, up to 100 ms at first, up to 5 s
	// later.
	Backoff task.Backoff
	// Logger receives messages about lost connections of watchers and about migrations that wait.
	// Default: slog.Default().
	Logger *slog.Logger
}

// complete returns c with its defaults. Its error joins all faults: negative values of Readers,
// Timeout and LockWait. It does not check the URL.
func (c Config) complete() (Config, error) {
	var errs []error
	for _, n := range []struct {
		value int64
		name  string
	}{{int64(c.Readers), "Readers"}, {int64(c.Timeout), "Timeout"}, {int64(c.LockWait), "LockWait"}} {
		if n.value < 0 {
			errs = append(errs, fmt.Errorf("sql: %s is negative", n.name))
		}
	}
	if c.Readers <= 0 {
		c.Readers = DefaultReaders
	}
	if c.Timeout <= 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Name == "" {
		c.Name = "swarmiji"
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.LockWait <= 0 {
		c.LockWait = DefaultLockWait
	}
	return c, errors.Join(errs...)
}

// driver returns the driver for the scheme of the URL. Returns an error if the scheme is unknown or
// Engine does not support it.
func (c Config) driver() (Driver, error) {
	scheme, _, _ := strings.Cut(c.URL, ":")
	switch scheme {
	case "":
		return nil, errors.New("sql: no URL is given")
	case "sqlite", "postgres", "postgresql":
	default:
		return nil, errors.New("sql: the URL begins with neither sqlite: nor postgres://")
	}
	d, ok := capability.As[Driver](c.Engine)
	if !ok || !slices.Contains(c.Engine.Schemes(), scheme) {
		pkg := "sqliteconnect"
		if scheme != "sqlite" {
			pkg = "pgconnect"
		}
		return nil, fmt.Errorf("sql: Engine must be %s.Engine{} of github.com/swarmiji/swarmiji/connect/%s for a URL with the scheme %s", pkg, pkg, scheme)
	}
	return d, nil
}

// checkLite checks the URL of a SQLite database and sets l.file, which stays "" for a database in
// memory. It opens nothing. Returns an error, which never holds the URL, for a URL that names no
// file, for parameters, and for a TLS configuration.
func (l *lite) checkLite() error {
	_, rest, _ := strings.Cut(l.URL, ":")
	if l.TLS != nil {
		return errors.New("sql: TLS is for PostgreSQL; a SQLite file has no connection to encrypt")
	}
	if rest == ":memory:" {
		return nil
	}
	u, err := url.Parse(l.URL)
	switch {
	case err != nil:
		return errors.New("sql: the URL of the SQLite file cannot be read; a % in its name is written %25")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return errors.New("sql: the URL of a SQLite file takes no parameters; a ? in its name is written %3F, a # %23")
	case u.Host != "" || u.User != nil:
		return errors.New("sql: sqlite:///absolute/path or sqlite:relative/path is the URL of a SQLite file, with three slashes or none")
	}
	l.file = u.Path
	if u.Opaque != "" {
		l.file, err = url.PathUnescape(u.Opaque)
	}
	if err != nil || l.file == "" || strings.HasSuffix(l.file, "/") || strings.ContainsRune(l.file, 0) {
		return errors.New("sql: the URL names no SQLite file; write sqlite:app.db or sqlite:///path/app.db")
	}
	return nil
}
