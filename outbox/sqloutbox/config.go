package sqloutbox

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/swarmiji/swarmiji/connect/sqlconnect"
	"github.com/swarmiji/swarmiji/internal/naming"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/task"
)

// The defaults of [Config].
const (
	DefaultNamespace = "default"
	DefaultMaxBody   = 16 << 20
)

const (
	maxNamespace = 64
	// maxMaxBody is the limit of MaxBody. The databases accept values of up to 1 GB.
	maxMaxBody = 256 << 20
)

// Config holds the settings of [New]. Engine and URL are the only required fields.
type Config struct {
	// Engine is the client library of the database: pgconnect.Engine{} or sqliteconnect.Engine{}. A
	// program links only the engines that it names. Required.
	Engine sqlconnect.Engine
	// URL is the address of the database. Required. It has one of these forms:
	//
	//   - postgres://user:password@host/database for PostgreSQL
	//   - sqlite:///path/app.db for a file
	//   - sqlite:app.db for a file in the working directory
	//
	// The PostgreSQL parameter sslmode is verify-full, verify-ca or disable. If the URL does not
	// set it, the service file counts, then PGSSLMODE, then disable. The parameter pool_max_conns
	// limits the number of connections. Default: 16.
	URL string
	// TLS makes PostgreSQL connections use TLS with these settings, whatever the URL says. It is
	// not changed. Nil: the URL decides.
	TLS *tls.Config
	// Name is shown in PostgreSQL's list of sessions, if the URL has no application_name. Default:
	// swarmiji.
	Name string
	// Backoff is the delay between attempts to reach the database. Default: up to 100 ms at first,
	// growing to up to 5 s.
	Backoff task.Backoff
	// Namespace separates outboxes in one database, such as those of programs with different brokers:
	// 1 to 64 letters, digits, '_' and '-'. A writer and its relays must use the same one. Default:
	// "default".
	Namespace string
	// MaxBody limits the body of a message, in bytes. A larger body is broker.ErrTooLarge. Set it to
	// the limit of the broker, since a message that only the broker refuses becomes a dead message.
	// Default: 16 MiB. Maximum: 256 MiB.
	MaxBody int
	// Logger receives reports that no call returns, such as interrupted notifications. Default:
	// slog.Default().
	Logger *slog.Logger
}

// check replaces the unset fields of c by their defaults and returns all problems joined. It does
// not check the fields of the connection.
func (c *Config) check() error {
	var errs []error
	c.Namespace = cmp.Or(c.Namespace, DefaultNamespace)
	if !naming.ValidName(c.Namespace) || strings.Contains(c.Namespace, ".") || len(c.Namespace) > maxNamespace {
		errs = append(errs, fmt.Errorf("sqloutbox: Namespace must be 1 to %d letters, digits, '_' and '-'", maxNamespace))
	}
	if c.MaxBody < 0 || c.MaxBody > maxMaxBody {
		errs = append(errs, fmt.Errorf("sqloutbox: MaxBody %d is not 0 to %d", c.MaxBody, maxMaxBody))
	}
	c.MaxBody = cmp.Or(c.MaxBody, DefaultMaxBody)
	return errors.Join(errs...)
}

// connection returns the settings of the connection.
func (c *Config) connection() sqlconn.Config {
	return sqlconn.Config{
		Engine: c.Engine, URL: c.URL, TLS: c.TLS, Name: c.Name, Backoff: c.Backoff, Logger: c.Logger,
		// A plan that the server makes for an empty table would scan a full one.
		Settings: map[string]string{
			"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "enable_bitmapscan": "off", "jit": "off",
			"enable_hashjoin": "off", "enable_mergejoin": "off",
		},
	}
}
