package sqlschedule

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/task"
)

// DefaultName is the schedule's name if [Config] has none.
const DefaultName = "default"

// Config of [New]. URL must be set, and nothing else.
type Config struct {
	// URL names the database: sqlite:///path/app.db for a file, sqlite:app.db for one in the working directory,
	// postgres://user:password@host/database for PostgreSQL. sslmode is verify-full, verify-ca or
	// disable. If the URL has none, PGSSLMODE counts, then the service file, then disable.
	// pool_max_conns is how many connections there are at most. Default: 16. There is no default URL.
	// sqlite::memory: is a database of this store alone.
	URL string
	// Name is the schedule's name: entries of others are not seen. "": [DefaultName], "default".
	Name string
	// TLS insists on TLS with PostgreSQL, whatever the URL says; it is not changed. nil: what the URL says.
	TLS *tls.Config
	// Backoff is between two attempts to connect. Zero: up to 100 ms at first, up to 5 s in the end.
	Backoff task.Backoff
	// Logger is told when hearing of other processes' changes is interrupted. nil: slog.Default().
	Logger *slog.Logger
}

// New makes a store, or says all that is wrong with c. It does not connect.
func New(c Config) (*Store, error) {
	if c.Name == "" {
		c.Name = DefaultName
	}
	err := schedule.CheckName(c.Name)
	conn, cerr := sqlconn.New(sqlconn.Config{
		URL: c.URL, TLS: c.TLS, Backoff: c.Backoff, Logger: c.Logger,
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
