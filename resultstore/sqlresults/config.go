package sqlresults

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/internal/naming"
	"github.com/swarmiji/swarmiji/sqldb"
	"github.com/swarmiji/swarmiji/task"
)

// Defaults of [Config].
const (
	DefaultNamespace = "default"
	DefaultTTL       = task.DefaultResultTTL
	DefaultMaxResult = 16 << 20
	DefaultMaxNotice = 16 << 10
	DefaultSweep     = 30 * time.Second
)

const (
	maxNamespace = 64 // bytes; the same for all adapters
	// maxResult is the largest allowed MaxResult: the databases accept values of up to 1 GB.
	maxResult = 512 << 20
	// maxRest limits the bytes of a record beside its Result: error texts, names and the correlation.
	maxRest = 1 << 20
)

// Config holds the settings of [New]. DB is the only required field.
type Config struct {
	// DB is the database, from Open of package sqldb/postgres or sqldb/sqlite. Adapters share it. The
	// Store does not close it. Required.
	DB sqldb.DB
	// Namespace separates programs that share a database: 1 to 64 letters, digits, '_' and '-', the
	// first a letter or a digit. Submitters and consumers must use the same one. "":
	// [DefaultNamespace], "default".
	Namespace string
	// TTL is the retention of a record whose own TTL is 0, at least a millisecond. 0: [DefaultTTL], 24
	// hours.
	TTL time.Duration
	// MaxResult is the largest Result in bytes, up to 512 MiB. Save returns [resultstore.ErrTooLarge]
	// for a larger one, and for a record whose other fields exceed 1 MiB. 0: [DefaultMaxResult], 16
	// MiB.
	MaxResult int
	// MaxNotice is the largest record in bytes that a stream reads together with others. Receive loads
	// a larger one separately. A stream holds up to 256 records. 0: [DefaultMaxNotice], 16 KiB.
	MaxNotice int
	// Sweep is the interval at which a store that writes deletes expired rows of all namespaces. 0:
	// [DefaultSweep], 30 seconds.
	Sweep time.Duration
	// Logger receives a warning when expired rows cannot be deleted. Nil: slog.Default().
	Logger *slog.Logger
}

// complete returns c with the default in each field that is 0, "" or a nil Logger. The error joins
// all problems: numbers that are negative or above maxResult, a TTL or Sweep below 1 ms, an invalid
// Namespace. It does not check DB.
func (c Config) complete() (Config, error) {
	var errs []error
	number := func(field string, v *int, otherwise, most int) {
		switch {
		case *v < 0:
			errs = append(errs, fmt.Errorf("sqlresults: %s is negative", field))
		case *v > most:
			errs = append(errs, fmt.Errorf("sqlresults: %s is above %d", field, most))
		case *v == 0:
			*v = otherwise
		}
	}
	number("MaxResult", &c.MaxResult, DefaultMaxResult, maxResult)
	number("MaxNotice", &c.MaxNotice, DefaultMaxNotice, maxResult)
	span := func(field string, v *time.Duration, otherwise time.Duration) {
		switch {
		case *v < 0:
			errs = append(errs, fmt.Errorf("sqlresults: %s is negative", field))
		case *v == 0:
			*v = otherwise
		case *v < time.Millisecond:
			errs = append(errs, fmt.Errorf("sqlresults: %s is shorter than 1ms", field))
		}
	}
	span("TTL", &c.TTL, DefaultTTL)
	span("Sweep", &c.Sweep, DefaultSweep)
	if c.Namespace == "" {
		c.Namespace = DefaultNamespace
	}
	// No adapter allows a '.' in a namespace, so that adapters can be exchanged.
	if !naming.ValidName(c.Namespace) || len(c.Namespace) > maxNamespace || strings.Contains(c.Namespace, ".") {
		errs = append(errs, fmt.Errorf("sqlresults: Namespace must be 1 to %d letters, digits, '_' and '-', first a letter or digit", maxNamespace))
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, errors.Join(errs...)
}
