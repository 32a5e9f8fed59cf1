package sqljobs

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"sync"

	"github.com/swarmiji/swarmiji/connect/sqlconnect"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/task"
)

// Config holds the settings of [New]. Engine and URL are required.
type Config struct {
	// Engine is the client library of the database: pgconnect.Engine{} or sqliteconnect.Engine{}. The
	// program links only the library that it names. Required.
	Engine sqlconnect.Engine
	// URL names the database. Required. The forms are:
	//
	//   - sqlite:///path/jobs.db: a SQLite file.
	//   - sqlite:jobs.db: a SQLite file in the working directory.
	//   - sqlite::memory: a database in memory that only this store uses.
	//   - postgres://user:password@host/database: a PostgreSQL database.
	//
	// sslmode is verify-full, verify-ca or disable. If the URL has no sslmode, the service file
	// decides, then PGSSLMODE, then disable. pool_max_conns limits the number of connections. Default:
	// 16.
	URL string
	// TLS makes TLS mandatory for PostgreSQL, whatever the URL says. The store does not change it. If
	// nil, the URL decides.
	TLS *tls.Config
	// Readers is the number of connections that read a SQLite file, beside the writing connection.
	// Default: 4.
	Readers int
	// Backoff is the wait between two attempts to connect. Default: up to 100 ms at first, up to 5 s
	// later.
	Backoff task.Backoff
	// Logger receives a message when the stream of other processes' changes is interrupted. Default:
	// slog.Default().
	Logger *slog.Logger
}

// New returns a store for c. It does not connect: the first call does, and creates or migrates the
// tables. It starts no goroutine. Returns a nil store and all problems of c, joined.
func New(c Config) (*Store, error) {
	conn, err := sqlconn.New(sqlconn.Config{
		Engine: c.Engine, URL: c.URL, TLS: c.TLS, Readers: c.Readers, Backoff: c.Backoff, Logger: c.Logger,
		// The statements rely on their indexes. A plan that the server makes for an empty table would
		// scan a full table. Planning at each call would cost more than the call.
		Settings: map[string]string{
			"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "enable_bitmapscan": "off", "jit": "off",
		},
	})
	if err != nil {
		return nil, fmt.Errorf("sqljobs: %w", err)
	}
	s := &Store{conn: conn, lite: conn.Dialect() == sqlconn.SQLite, text: newTexts(conn.Dialect()), closing: make(chan struct{})}
	s.end = sync.OnceFunc(func() { close(s.closing) })
	return s, nil
}
