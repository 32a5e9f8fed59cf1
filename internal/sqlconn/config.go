package sqlconn

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

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

// Config holds the settings of a [DB]. The packages sqldb/postgres and sqldb/sqlite describe those
// that users have.
type Config struct {
	// URL names the database, unless the driver got connections from the user.
	URL string
	// TLS, Name, Schema, PgBouncer and ListenURL are for PostgreSQL.
	TLS       *tls.Config
	Name      string // default: swarmiji
	Schema    string
	PgBouncer bool
	ListenURL string
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
	// Backoff is the wait between two attempts. Default: full jitter, up to 100 ms at first, up to 5 s
	// later.
	Backoff task.Backoff
	// Logger receives messages about lost connections of watchers and about migrations that wait.
	// Default: slog.Default().
	Logger *slog.Logger
}

// complete returns c with its defaults. Its error lists all faults except those that the driver
// finds.
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

// checkLite checks the URL of a SQLite database and sets l.file, which stays "" for a database in
// memory. It opens nothing. Returns an error, which never holds the URL, for a URL that names no
// file, for parameters, and for a TLS configuration.
func (l *lite) checkLite() error {
	scheme, rest, _ := strings.Cut(l.URL, ":")
	if scheme != "sqlite" {
		return errors.New("sql: the URL of a SQLite file begins with sqlite:")
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
