// Package sqliteconnect links the SQLite engine for the SQL adapters.
package sqliteconnect

import "github.com/swarmiji/swarmiji/internal/sqlconn/sqlite"

// Engine selects the SQLite library, for the field Engine of a configuration. The zero value is
// usable.
type Engine struct{}

// Schemes implements [sqlconnect.Engine]. It returns sqlite.
func (Engine) Schemes() []string { return []string{"sqlite"} }

// Unwrap implements [sqlconnect.Engine]. It returns the driver of package sqlconn.
func (Engine) Unwrap() any { return sqlite.Driver{} }
