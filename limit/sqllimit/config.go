package sqllimit

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"
	"strings"

	"github.com/swarmiji/swarmiji/connect/sqlconnect"
	"github.com/swarmiji/swarmiji/internal/naming"
	"github.com/swarmiji/swarmiji/task"
)

// DefaultNamespace is the namespace if Config.Namespace is "".
const DefaultNamespace = "default"

// maxNamespace is the maximum length of a namespace in bytes, the same for all adapters.
const maxNamespace = 64

// Config configures a [Limiter]. Engine and URL must be set.
type Config struct {
	// Engine is the client library of the database: pgconnect.Engine{} or sqliteconnect.Engine{}. A
	// program links only the engines that it names. Required.
	Engine sqlconnect.Engine
	// URL is the address of the database. Required. It has one of these forms:
	//
	//   - postgres://user:password@host/database for PostgreSQL
	//   - sqlite:///path/app.db for a file
	//   - sqlite:app.db for a file in the working directory
	//   - sqlite::memory: for a database of this Limiter alone, which ends with it
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
	// Namespace separates programs that share a database: 1 to 64 letters, digits, '_' and '-'. All
	// processes must use the same one. Default: "default".
	Namespace string
	// Logger gets a warning when expired rows cannot be deleted. Default: slog.Default().
	Logger *slog.Logger
}

// check replaces the unset fields of c by their defaults. Returns an error for an invalid
// Namespace. It does not check the fields of the connection.
func (c *Config) check() error {
	c.Namespace = cmp.Or(c.Namespace, DefaultNamespace)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	// No adapter allows a '.' in a namespace, so that adapters can be exchanged.
	if !naming.ValidName(c.Namespace) || len(c.Namespace) > maxNamespace || strings.Contains(c.Namespace, ".") {
		return fmt.Errorf("sqllimit: Namespace must be 1 to %d letters, digits, '_' and '-'", maxNamespace)
	}
	return nil
}
