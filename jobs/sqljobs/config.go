package sqljobs

import (
	"fmt"
	"sync"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/sqldb"
)

// Config holds the settings of [New].
type Config struct {
	// DB is the database, from Open of package sqldb/postgres or sqldb/sqlite. Adapters share it. The
	// Store does not close it. Required.
	DB sqldb.DB
}

// New returns a store for c. It does not connect: the first call does, and creates or migrates the
// tables. It starts no goroutine. Returns a nil store and an error if c has no DB.
func New(c Config) (*Store, error) {
	conn, err := sqlconn.Of(c.DB, "jobs")
	if err != nil {
		return nil, fmt.Errorf("sqljobs: %w", err)
	}
	s := &Store{conn: conn, lite: conn.Dialect() == sqlconn.SQLite, text: newTexts(conn.Dialect()), closing: make(chan struct{})}
	s.end = sync.OnceFunc(func() { close(s.closing) })
	return s, nil
}
