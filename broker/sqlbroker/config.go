package sqlbroker

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/naming"
	"github.com/swarmiji/swarmiji/sqldb"
)

// The defaults of [Config].
const (
	DefaultNamespace = "default"
	DefaultMaxBody   = 16 << 20
	DefaultLease     = 30 * time.Second
	DefaultPoll      = time.Second
)

const (
	maxNamespace = 64
	minLease     = 100 * time.Millisecond
	// maxMaxBody is the limit of MaxBody. The databases accept values of up to 1 GB.
	maxMaxBody = 256 << 20
)

// Config holds the settings of [New]. DB is the only required field.
type Config struct {
	// DB is the database, from Open of package sqldb/postgres or sqldb/sqlite. Adapters share it. The
	// Broker does not close it. Required.
	DB sqldb.DB
	// Namespace separates programs that share a database: 1 to 64 letters, digits, '_' and '-', the
	// first a letter or a digit. Producers and consumers must use the same one. Default: "default".
	Namespace string
	// MaxBody limits the body of a message, in bytes. A larger body is broker.ErrTooLarge. Default:
	// 16 MiB. Maximum: 256 MiB.
	MaxBody int
	// Lease is the time after which the messages of a consumer that does not renew them are
	// delivered again. SubscribeOptions may set another. Default: 30 s. Minimum: 100 ms.
	Lease time.Duration
	// Poll is the interval at which a waiting consumer checks its queue without a notification. It
	// covers lost notifications and the end of another consumer. Default: 1 s.
	Poll time.Duration
	// DeadTTL is the retention of a dead letter. Default: broker.DefaultDeadTTL. Negative: no
	// limit.
	DeadTTL time.Duration
	// DeadMax limits the dead letters of a queue. The oldest are removed first. Default:
	// broker.DefaultDeadMax. Negative: no limit.
	DeadMax int
	// Logger receives reports that no call returns: claims that the database refuses, and queues that
	// exist with other levels. Default: slog.Default().
	Logger *slog.Logger
}

// check replaces the unset fields of c by their defaults and returns all problems joined. It does
// not check DB.
func (c *Config) check() error {
	var errs []error
	if c.Namespace == "" {
		c.Namespace = DefaultNamespace
	}
	if !naming.ValidName(c.Namespace) || strings.Contains(c.Namespace, ".") || len(c.Namespace) > maxNamespace {
		errs = append(errs, fmt.Errorf("sqlbroker: Namespace must be 1 to %d letters, digits, '_' and '-', first a letter or digit", maxNamespace))
	}
	if c.MaxBody < 0 || c.MaxBody > maxMaxBody {
		errs = append(errs, fmt.Errorf("sqlbroker: MaxBody %d is not 0 to %d", c.MaxBody, maxMaxBody))
	}
	c.MaxBody = cmp.Or(c.MaxBody, DefaultMaxBody)
	if c.Lease = cmp.Or(c.Lease, DefaultLease); c.Lease < minLease {
		errs = append(errs, fmt.Errorf("sqlbroker: Lease %v is shorter than %v", c.Lease, minLease))
	}
	if c.Poll < 0 {
		errs = append(errs, fmt.Errorf("sqlbroker: Poll %v is negative", c.Poll))
	}
	c.Poll = cmp.Or(c.Poll, DefaultPoll)
	c.DeadTTL, c.DeadMax = cmp.Or(c.DeadTTL, broker.DefaultDeadTTL), cmp.Or(c.DeadMax, broker.DefaultDeadMax)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return errors.Join(errs...)
}
