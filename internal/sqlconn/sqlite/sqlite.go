// Package sqlite connects package sqlconn to SQLite files. It links the SQLite engine.
package sqlite

import (
	_ "modernc.org/sqlite" // the driver "sqlite" of database/sql

	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

// Driver opens SQLite files.
type Driver struct{}

// Open implements [sqlconn.Driver]. It does not open the file.
func (Driver) Open(cfg sqlconn.Config) (sqlconn.Database, error) { return sqlconn.OpenSQLite(cfg) }
