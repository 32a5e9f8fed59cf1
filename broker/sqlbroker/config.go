package sqlbroker

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/connect/sqlconnect"
	"github.com/swarmiji/swarmiji/internal/naming"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/task"
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

// Config holds the settings of [New]. Engine and URL are the only required fields.
type Config struct {
	// Engine is the client library of the database: pgconnect.Engine{} or sqliteconnect.Engine{}. A
	// program links only the engines that it names. Required.
	Engine sqlconnect.Engine
	// URL is the address of the database. Required. It has one of these forms:
	//
	//   - postgres://user:password@host/database for PostgreSQL
	//   - sqlite:///path/app.db for a file
	//   - sqlite:app.db for a file in the working directory
	//   - sqlite::memory: for a database of this Broker alone, which ends with it
	//
	// The PostgreSQL parameter sslmode is verify-full, verify-ca or disable. If the URL does not
	// set it, the service file counts, then PGSSLMODE, then disable. The parameter pool_max_conns
	// limits the number of connections. Default: 16.
	URL string
	// TLS makes PostgreSQL connections use TLS with these settings, whatever the URL says. It is
	// not changed. Nil: the URL decides.
	TLS *tls.Config
	// Name is shown in PostgreSQL's list of sessions, if the URL has no application_name. Default:
	// swarmiji.
	Name string
	// Backoff is the delay between attempts to reach the database. Default: up to 100 ms at first,
	// growing to up to 5 s.
	Backoff task.Backoff
	// Namespace separates programs that share a database: 1 to 64 letters, digits, '_' and '-'.
	// Producers and consumers must use the same one. Default: "default".
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
	// Logger receives reports that no call returns: interrupted notifications, claims that the
	// database refuses, and queues that exist with other levels. Default: slog.Default().
	Logger *slog.Logger
}

// check replaces the unset fields of c by their defaults and returns all problems joined. It does
// not check the fields of the connection.
func (c *Config) check() error {
	var errs []error
	if c.Namespace == "" {
		c.Namespace = DefaultNamespace
	}
	if !naming.ValidName(c.Namespace) || strings.Contains(c.Namespace, ".") || len(c.Namespace) > maxNamespace {
		errs = append(errs, fmt.Errorf("sqlbroker: Namespace must be 1 to %d letters, digits, '_' and '-'", maxNamespace))
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

// connection returns the settings of the connection. For PostgreSQL they include planner settings
// that make each statement use its indexes.
func (c *Config) connection() sqlconn.Config {
	return sqlconn.Config{
		Engine: c.Engine, URL: c.URL, TLS: c.TLS, Name: c.Name, Backoff: c.Backoff, Logger: c.Logger,
		// The statements rely on their indexes. A plan that the server makes for an empty table
		// would scan a full table. Planning at each call would cost more than the call.
		Settings: map[string]string{
			"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "enable_bitmapscan": "off", "jit": "off",
			"enable_hashjoin": "off", "enable_mergejoin": "off",
		},
	}
}
