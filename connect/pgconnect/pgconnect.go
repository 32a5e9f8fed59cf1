// Package pgconnect links the client of PostgreSQL for the SQL adapters.
package pgconnect

import "github.com/swarmiji/swarmiji/internal/sqlconn/postgres"

// Engine selects the client library of PostgreSQL, for the field Engine of a configuration. The
// zero value is usable.
type Engine struct{}

// Schemes implements [sqlconnect.Engine]. It returns postgres and postgresql.
func (Engine) Schemes() []string { return []string{"postgres", "postgresql"} }

// Unwrap implements [sqlconnect.Engine]. It returns the driver of package sqlconn.
func (Engine) Unwrap() any { return postgres.Driver{} }
