package sqlschedule

import (
	"errors"
	"fmt"
	"sync"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/sqldb"
)

// DefaultName is the schedule's name if Config.Name is "".
const DefaultName = "default"

// Config configures a [Store]. Only DB must be set.
type Config struct {
	// DB is the database, from Open of package sqldb/postgres or sqldb/sqlite. Adapters share it. The
	// Store does not close it. Required.
	DB sqldb.DB
	// Name is the schedule's name. The store sees only entries of this schedule. Default:
	// [DefaultName].
	Name string
}

// New returns a Store. It does not connect and creates no tables: the first call does so. An empty
// Name becomes [DefaultName]. Its error joins all problems of the configuration: an invalid name
// or a missing DB.
func New(c Config) (*Store, error) {
	if c.Name == "" {
		c.Name = DefaultName
	}
	err := schedule.CheckName(c.Name)
	conn, cerr := sqlconn.Of(c.DB, "schedule")
	if err := errors.Join(err, cerr); err != nil {
		return nil, fmt.Errorf("sqlschedule: %w", err)
	}
	s := &Store{
		conn: conn, name: c.Name, topic: "schedule " + c.Name, text: newTexts(conn.Dialect()), closing: make(chan struct{}),
	}
	s.end = sync.OnceFunc(func() { close(s.closing) })
	return s, nil
}
