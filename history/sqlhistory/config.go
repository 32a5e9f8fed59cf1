package sqlhistory

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/swarmiji/swarmiji/internal/naming"
	"github.com/swarmiji/swarmiji/sqldb"
)

// DefaultNamespace is the default of Config.Namespace.
const DefaultNamespace = "default"

const maxNamespace = 64 // bytes; the same for all adapters

// Config holds the settings of [New]. DB is the only required field.
type Config struct {
	// DB is the database, from Open of package sqldb/postgres or sqldb/sqlite. Adapters share it. The
	// Store does not close it. Required.
	DB sqldb.DB
	// Namespace separates histories in one database: 1 to 64 letters, digits, '_' and '-', the first
	// a letter or a digit. Default: "default".
	Namespace string
}

// check sets the default of c.Namespace and returns an error if it is invalid. It does not check
// DB.
func (c *Config) check() error {
	c.Namespace = cmp.Or(c.Namespace, DefaultNamespace)
	if !naming.ValidName(c.Namespace) || strings.Contains(c.Namespace, ".") || len(c.Namespace) > maxNamespace {
		return fmt.Errorf("sqlhistory: Namespace must be 1 to %d letters, digits, '_' and '-', first a letter or digit", maxNamespace)
	}
	return nil
}
