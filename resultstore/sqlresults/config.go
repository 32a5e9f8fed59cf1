package sqlresults

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/internal/keyset"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/task"
)

// Defaults of [Config].
const (
	DefaultNamespace = "default"
	DefaultTTL       = task.DefaultResultTTL
	DefaultMaxResult = 16 << 20
	DefaultMaxNotice = 16 << 10
	DefaultSweep     = 30 * time.Second
)

const (
	maxNamespace = 64 // bytes, the same for all adapters
	// maxResult is what MaxResult may be: the databases take values of up to 1 GB.
	maxResult = 512 << 20
	// maxRest is how much larger than its Result a record may be: texts of an error, names and the correlation.
	maxRest = 1 << 20
)

// Config of [New]. URL must be set, and nothing else.
type Config struct {
	// URL names the database: sqlite:///path/app.db for a file, sqlite:app.db for one in the working directory,
	// postgres://user:password@host/database for PostgreSQL. sslmode is verify-full, verify-ca or
	// disable. If the URL has none, PGSSLMODE counts, then the service file, then disable.
	// pool_max_conns is how many connections there are at most. Default: 16. There is no default URL.
	// sqlite::memory: is a database of this store alone, which ends with it.
	URL string
	// TLS insists on TLS with PostgreSQL, whatever the URL says; it is not changed. nil: what the URL says.
	TLS *tls.Config
	// Name is shown in PostgreSQL's list of sessions, if the URL has no application_name. "": swarmiji.
	Name string
	// Backoff is between two attempts to reach the database. Zero: up to 100 ms at first, up to 5 s in the end.
	Backoff task.Backoff
	// Namespace keeps programs with one database apart: 1 to 64 letters, digits, '_' and '-'. It has to be the same for submitters
	// and consumers. "": [DefaultNamespace], "default".
	Namespace string
	// TTL is how long a record is kept that names no time of its own, at least a millisecond. 0: [DefaultTTL], 24 hours.
	TTL time.Duration
	// MaxResult is the largest Result in bytes, up to 512 MiB; a larger one is refused with [resultstore.ErrTooLarge], as is a
	// record of which the rest is above 1 MiB. 0: [DefaultMaxResult], 16 MiB.
	MaxResult int
	// MaxNotice is the largest record in bytes that a stream reads with others; a larger one is loaded when it is its turn. A
	// stream holds up to 256 records. 0: [DefaultMaxNotice], 16 KiB.
	MaxNotice int
	// Sweep is how often a store that is written to deletes the rows of what has expired, of all namespaces. 0:
	// [DefaultSweep], 30 seconds.
	Sweep time.Duration
	// Logger is told when hearing of other processes' changes is interrupted, and when expired rows cannot be deleted. nil:
	// slog.Default().
	Logger *slog.Logger
}

// complete returns c with its defaults, and all its problems but those of the database.
func (c Config) complete() (Config, error) {
	var errs []error
	number := func(field string, v *int, otherwise, most int) {
		switch {
		case *v < 0:
			errs = append(errs, fmt.Errorf("sqlresults: %s is negative", field))
		case *v > most:
			errs = append(errs, fmt.Errorf("sqlresults: %s is above %d", field, most))
		case *v == 0:
			*v = otherwise
		}
	}
	number("MaxResult", &c.MaxResult, DefaultMaxResult, maxResult)
	number("MaxNotice", &c.MaxNotice, DefaultMaxNotice, maxResult)
	span := func(field string, v *time.Duration, otherwise time.Duration) {
		switch {
		case *v < 0:
			errs = append(errs, fmt.Errorf("sqlresults: %s is negative", field))
		case *v == 0:
			*v = otherwise
		case *v < time.Millisecond:
			errs = append(errs, fmt.Errorf("sqlresults: %s is shorter than 1ms", field))
		}
	}
	span("TTL", &c.TTL, DefaultTTL)
	span("Sweep", &c.Sweep, DefaultSweep)
	if c.Namespace == "" {
		c.Namespace = DefaultNamespace
	}
	// A '.' is no part of a namespace in any adapter, so that one may be exchanged for another.
	if !keyset.ValidName(c.Namespace) || len(c.Namespace) > maxNamespace || strings.Contains(c.Namespace, ".") {
		errs = append(errs, fmt.Errorf("sqlresults: Namespace must be 1 to %d letters, digits, '_' and '-'", maxNamespace))
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, errors.Join(errs...)
}

// connection is the part of c that concerns it.
func (c Config) connection() sqlconn.Config {
	return sqlconn.Config{
		URL: c.URL, TLS: c.TLS, Name: c.Name, Backoff: c.Backoff, Logger: c.Logger,
	}
}
