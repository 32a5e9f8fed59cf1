package sqlschedule

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/swarmiji/swarmiji/connect/sqlconnect"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/task"
)

// DefaultName is the schedule's name if Config.Name is "".
const DefaultName = "default"

// Config configures a [Store]. Only Engine and URL must be set.
type Config struct {
	// Engine is the client library of the database: pgconnect.Engine{} or sqliteconnect.Engine{}. A
	// program links only the libraries that it names. It must be set.
	Engine sqlconnect.Engine
	// URL names the database. It has one of these forms:
	//
	//   - sqlite:///path/app.db for a SQLite file with an absolute path
	//   - sqlite:app.db for a SQLite file in the working directory
	//   - sqlite::memory: for a database in memory, which only this store uses
	//   - postgres://user:password@host/database for PostgreSQL
	//
	// For PostgreSQL, sslmode is verify-full, verify-ca or disable. Without it, the service file is
	// used, then PGSSLMODE, then disable. pool_max_conns is the maximum number of connections.
	// Default: 16.
	URL string
	// Name is the schedule's name. The store sees only entries of this schedule. Default:
	// [DefaultName].
	Name string
	// TLS requires TLS for PostgreSQL, regardless of the URL. It is not modified. nil: the URL
	// decides.
	TLS *tls.Config
	// Backoff is the delay between attempts to connect. Default: up to 100 ms at first, up to 5 s
	// later.
	Backoff task.Backoff
	// Logger gets a warning when notifications of other processes' changes are interrupted. Default:
	// slog.Default().
	Logger *slog.Logger
}

// New returns a Store. It does not connect and creates no tables: the first call does so. An empty
// Name becomes [DefaultName]. Its error joins all problems of the configuration: an invalid name,
// engine or URL.
func New(c Config) (*Store, error) {
	if c.Name == "" {
		c.Name = DefaultName
	}
	err := schedule.CheckName(c.Name)
	conn, cerr := sqlconn.New(sqlconn.Config{
		Engine: c.Engine, URL: c.URL, TLS: c.TLS, Backoff: c.Backoff, Logger: c.Logger,
	})
	if err := errors.Join(err, cerr); err != nil {
		return nil, fmt.Errorf("sqlschedule: %w", err)
	}
	s := &Store{
		conn: conn, name: c.Name, topic: "schedule " + c.Name, text: newTexts(conn.Dialect()), closing: make(chan struct{}),
	}
	s.end = sync.OnceFunc(func() { close(s.closing) })
	return s, nil
}
