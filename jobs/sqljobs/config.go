package sqljobs

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"sync"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/task"
)

// Config of [New]. URL must be set, and nothing else.
type Config struct {
	// URL names the database: sqlite:///path/jobs.db for a file, sqlite:jobs.db for one in the working directory,
	// postgres://user:password@host/database for PostgreSQL. sslmode is verify-full, verify-ca or
	// disable. If the URL has none, PGSSLMODE counts, then the service file, then disable.
	// pool_max_conns is how many connections there are at most. Default: 16. There is no default URL.
	// sqlite::memory: is a database of this store alone.
	URL string
	// TLS insists on TLS with PostgreSQL, whatever the URL says; it is not changed. nil: what the URL says.
	TLS *tls.Config
	// Readers is how many connections read a SQLite file, beside the one that writes. 0: 4.
	Readers int
	// Backoff is between two attempts to connect. Zero: up to 100 ms at first, up to 5 s in the end.
	Backoff task.Backoff
	// Logger is told when hearing of other processes' changes is interrupted. nil: slog.Default().
	Logger *slog.Logger
}

// New makes a store, or says all that is wrong with c. It does not connect.
func New(c Config) (*Store, error) {
	conn, err := sqlconn.New(sqlconn.Config{
		URL: c.URL, TLS: c.TLS, Readers: c.Readers, Backoff: c.Backoff, Logger: c.Logger,
		// The statements are written for their indexes. A plan that the server makes for an empty table would read all of a full one, and
		// one that it makes at each call would cost more than the call.
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
