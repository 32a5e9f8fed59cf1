package sqloutbox

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/swarmiji/swarmiji/internal/naming"
	"github.com/swarmiji/swarmiji/sqldb"
)

// The defaults of [Config].
const (
	DefaultNamespace = "default"
	DefaultMaxBody   = 16 << 20
)

const (
	maxNamespace = 64
	// maxMaxBody is the limit of MaxBody. The databases accept values of up to 1 GB.
	maxMaxBody = 256 << 20
)

// Config holds the settings of [New]. DB is the only required field.
type Config struct {
	// DB is the database, from Open of package sqldb/postgres or sqldb/sqlite. It must not be one in
	// memory. Adapters share it. The Store does not close it. Required.
	DB sqldb.DB
	// Namespace separates outboxes in one database, such as those of programs with different brokers:
	// 1 to 64 letters, digits, '_' and '-', the first a letter or a digit. A writer and its relays
	// must use the same one. Default: "default".
	Namespace string
	// MaxBody limits the body of a message, in bytes. A larger body is broker.ErrTooLarge. Set it to
	// the limit of the broker, since a message that only the broker refuses becomes a dead message.
	// Default: 16 MiB. Maximum: 256 MiB.
	MaxBody int
}

// check replaces the unset fields of c by their defaults and returns all problems joined. It does
// not check DB.
func (c *Config) check() error {
	var errs []error
	c.Namespace = cmp.Or(c.Namespace, DefaultNamespace)
	if !naming.ValidName(c.Namespace) || strings.Contains(c.Namespace, ".") || len(c.Namespace) > maxNamespace {
		errs = append(errs, fmt.Errorf("sqloutbox: Namespace must be 1 to %d letters, digits, '_' and '-', first a letter or digit", maxNamespace))
	}
	if c.MaxBody < 0 || c.MaxBody > maxMaxBody {
		errs = append(errs, fmt.Errorf("sqloutbox: MaxBody %d is not 0 to %d", c.MaxBody, maxMaxBody))
	}
	c.MaxBody = cmp.Or(c.MaxBody, DefaultMaxBody)
	return errors.Join(errs...)
}
