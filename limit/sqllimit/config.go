package sqllimit

import (
	"cmp"
	"fmt"
	"log/slog"
	"strings"

	"github.com/swarmiji/swarmiji/internal/naming"
	"github.com/swarmiji/swarmiji/sqldb"
)

// DefaultNamespace is the namespace if Config.Namespace is "".
const DefaultNamespace = "default"

// maxNamespace is the maximum length of a namespace in bytes, the same for all adapters.
const maxNamespace = 64

// Config configures a [Limiter]. DB must be set.
type Config struct {
	// DB is the database, from Open of package sqldb/postgres or sqldb/sqlite. Adapters share it. The
	// Limiter does not close it. Required.
	DB sqldb.DB
	// Namespace separates programs that share a database: 1 to 64 letters, digits, '_' and '-', the
	// first a letter or a digit. All processes must use the same one. Default: "default".
	Namespace string
	// Logger gets a warning when expired rows cannot be deleted. Default: slog.Default().
	Logger *slog.Logger
}

// check replaces the unset fields of c by their defaults. Returns an error for an invalid
// Namespace. It does not check DB.
func (c *Config) check() error {
	c.Namespace = cmp.Or(c.Namespace, DefaultNamespace)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	// No adapter allows a '.' in a namespace, so that adapters can be exchanged.
	if !naming.ValidName(c.Namespace) || len(c.Namespace) > maxNamespace || strings.Contains(c.Namespace, ".") {
		return fmt.Errorf("sqllimit: Namespace must be 1 to %d letters, digits, '_' and '-', first a letter or digit", maxNamespace)
	}
	return nil
}
