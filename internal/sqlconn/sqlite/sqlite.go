// Package sqlite connects package sqlconn to SQLite files. It links the SQLite engine.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"modernc.org/sqlite" // also the driver "sqlite" of database/sql

	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

// Driver opens SQLite files. The zero value opens the file of the URL.
type Driver struct {
	pool *sql.DB // of the user
	file string
}

// Open implements [sqlconn.Driver]. It does not open the file. Returns an error if the user's pool
// allows too few connections.
func (d Driver) Open(cfg sqlconn.Config) (sqlconn.Database, error) {
	if d.pool != nil {
		own := cfg.Readers + 1
		if most := d.pool.Stats().MaxOpenConnections; most > 0 && most <= own {
			return nil, fmt.Errorf("sql: SetMaxOpenConns allows %d connections, of which this package keeps %d: raise it, or open the file by its path", most, own)
		}
	}
	return sqlconn.OpenSQLite(cfg, d.pool, d.file, watchLog)
}

// Pool returns a Driver for the file of the user's pool. It asks the pool for the name of the file.
// Returns an error if the pool uses another driver than modernc.org/sqlite, or has no file.
func Pool(ctx context.Context, pool *sql.DB) (Driver, error) {
	if _, ok := pool.Driver().(*sqlite.Driver); !ok {
		return Driver{}, fmt.Errorf("sql: the pool's driver is a %T, not that of modernc.org/sqlite", pool.Driver())
	}
	d := Driver{pool: pool}
	if err := pool.QueryRowContext(ctx, "SELECT file FROM pragma_database_list WHERE name = 'main'").Scan(&d.file); err != nil {
		return Driver{}, sqlconn.Classify(err)
	}
	if d.file == "" {
		return Driver{}, errors.New("sql: the pool has a database in memory, and each of its connections another: open a file, or sqlite::memory: without a pool")
	}
	return d, nil
}
