// Package sqlite opens SQLite files for the SQL adapters.
//
//	db, err := sqlite.Open("/var/lib/app.db", sqlite.Config{})
//	b, err := sqlbroker.New(sqlbroker.Config{DB: db})
//
// A file needs a local disk, since SQLite shares memory between its processes. One process writes
// at a time. The writes of concurrent callers in a process share commits.
//
// A process must open a file with one SQLite library only. Two libraries, such as this one and a
// driver that uses cgo, break each other's locks. A program that reads and writes the file with
// database/sql uses modernc.org/sqlite, in its own pool or with [FromDB].
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqlite"
	"github.com/swarmiji/swarmiji/sqldb"
	"github.com/swarmiji/swarmiji/task"
)

// Config holds the settings of [Open] and [FromDB]. The zero value is usable.
type Config struct {
	// Readers is the number of connections that read the file, beside the one that writes. Default: 4.
	Readers int
	// Backoff is the wait between two attempts to use a locked file. Default: up to 100 ms at first,
	// up to 5 s later.
	Backoff task.Backoff
	// Logger receives messages that no call returns. Default: slog.Default().
	Logger *slog.Logger
}

// Open returns the database in a file. name is a path, or one of these URLs:
//
//   - sqlite:///path/app.db is a file. In a URL, % is written as %25, ? as %3F and # as %23.
//   - sqlite:app.db is a file in the working directory.
//   - sqlite::memory: is a database in memory, which ends with the DB.
//
// It opens nothing: the first call of an adapter creates the file if necessary, readable by its
// owner only. The directory must exist. Close the DB after its adapters. Returns all faults of the
// arguments, joined.
func Open(name string, c Config) (sqldb.DB, error) {
	if name == "" {
		return nil, errors.New("sql: no SQLite file is given")
	}
	if !strings.HasPrefix(name, "sqlite:") {
		u := url.URL{Scheme: "sqlite", Path: filepath.ToSlash(name)}
		if u.Path[0] != '/' {
			u = url.URL{Scheme: "sqlite", Opaque: url.PathEscape(u.Path)}
		}
		name = u.String()
	}
	return open(sqlite.Driver{}, name, c)
}

// FromDB returns the database in the file of a pool of the driver modernc.org/sqlite. It asks the
// pool for the file's name. The DB keeps up to Readers + 1 connections of the pool until its Close,
// which discards them and leaves the pool open. So SetMaxOpenConns must allow more than these.
//
// The file's journal becomes a write-ahead log, for all programs. Returns an error if the pool has
// another driver, too few connections, or a database in memory.
func FromDB(ctx context.Context, pool *sql.DB, c Config) (sqldb.DB, error) {
	d, err := sqlite.Pool(ctx, pool)
	if err != nil {
		return nil, err
	}
	return open(d, "", c)
}

func open(d sqlite.Driver, url string, c Config) (sqldb.DB, error) {
	db, err := sqlconn.Open(d, sqlconn.Config{URL: url, Readers: c.Readers, Backoff: c.Backoff, Logger: c.Logger})
	if err != nil {
		return nil, err // not a nil *sqlconn.DB in an interface
	}
	return db, nil
}
