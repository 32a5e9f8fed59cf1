// Package sqltest links both SQL engines, for tests with either kind of URL.
package sqltest

import (
	"strings"

	"github.com/swarmiji/swarmiji/connect/pgconnect"
	"github.com/swarmiji/swarmiji/connect/sqlconnect"
	"github.com/swarmiji/swarmiji/connect/sqliteconnect"
)

// Engine returns the engine for the scheme of a URL.
func Engine(url string) sqlconnect.Engine {
	if strings.HasPrefix(url, "sqlite:") {
		return sqliteconnect.Engine{}
	}
	return pgconnect.Engine{}
}
