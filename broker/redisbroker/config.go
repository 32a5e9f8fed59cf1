package redisbroker

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/keyset"
	"github.com/swarmiji/swarmiji/internal/redisconn"
)

// The defaults of [Config].
const (
	DefaultNamespace   = "default"
	DefaultMaxBody     = 16 << 20
	DefaultLease       = 30 * time.Second
	DefaultPoll        = time.Second
	DefaultWaitTimeout = time.Second
)

const (
	maxNamespace = 64
	minLease     = 100 * time.Millisecond
	// maxMaxBody is what a Redis string can hold at most, less ample room for headers.
	maxMaxBody = 256 << 20
)

// Config says where Redis is and how queues are kept. Redis is the only field that must be set.
type Config struct {
	// Redis says where the servers are and how to reach them, as the client has it: one address,
	// several of a cluster (or IsClusterMode), or Sentinels with MasterName. It is copied. The client
	// never repeats a command; MinRetryBackoff and MaxRetryBackoff are the first and the longest time
	// between attempts to reach a server, with full jitter. 0: 100 ms and 5 s. ClientName is shown in
	// the server's list of connections. "": "swarmiji".
	Redis *redis.UniversalOptions
	// Namespace keeps programs on one server apart: all keys begin with "swj:{<namespace>.". 1 to 64 letters, digits, '_' and
	// '-'. Empty: "default".
	Namespace string
	// MaxBody is the largest body in bytes that is sent; a larger one is broker.ErrTooLarge. 0: 16 MiB. The most is 256 MiB.
	MaxBody int
	// Lease is how long a consumer that gives no sign of life keeps its messages, where SubscribeOptions say nothing. 0: 30 s;
	// the least is 100 ms.
	Lease time.Duration
	// Poll is how often waiting consumers look by themselves, those of one Broker together. They
	// are notified of what comes; Poll is for the rest: messages pushed by other programs, a lost
	// notification, another consumer's end. 0: 1 s.
	Poll time.Duration
	// WaitReplicas is to how many replicas a message must have been copied before it is confirmed, each time for at most
	// WaitTimeout; else the error is [ErrNotReplicated]. Without it a failover to a replica may lose what was confirmed in the
	// moments before. 0: none.
	WaitReplicas int
	// WaitTimeout bounds the wait for replicas. 0: 1 s.
	WaitTimeout time.Duration
	// DeadTTL is how long a dead letter is kept. Letters that are too old go when the next one
	// comes, or when they are read. 0: broker.DefaultDeadTTL; negative: for ever.
	DeadTTL time.Duration
	// DeadMax is how many dead letters a queue keeps; the oldest go first. 0:
	// broker.DefaultDeadMax; negative: no limit.
	DeadMax int
	// Logger is told of what no call returns: settings of the server that weaken the promise, queues that exist with other
	// levels. Nil: slog.Default().
	Logger *slog.Logger
}

// check fills in the defaults and returns all problems.
func (c *Config) check() error {
	var errs []error
	if c.Namespace == "" {
		c.Namespace = DefaultNamespace
	}
	if !keyset.ValidName(c.Namespace) || strings.Contains(c.Namespace, ".") || len(c.Namespace) > maxNamespace {
		errs = append(errs, fmt.Errorf("redisbroker: namespace %q is not 1 to %d letters, digits, '_' and '-'", c.Namespace, maxNamespace))
	}
	if c.MaxBody < 0 || c.MaxBody > maxMaxBody {
		errs = append(errs, fmt.Errorf("redisbroker: largest body %d is not 0 to %d", c.MaxBody, maxMaxBody))
	}
	if c.MaxBody == 0 {
		c.MaxBody = DefaultMaxBody
	}
	if c.Lease == 0 {
		c.Lease = DefaultLease
	}
	if c.Lease < minLease {
		errs = append(errs, fmt.Errorf("redisbroker: lease %v is shorter than %v", c.Lease, minLease))
	}
	if c.Poll < 0 {
		errs = append(errs, fmt.Errorf("redisbroker: poll %v is negative", c.Poll))
	}
	if c.Poll == 0 {
		c.Poll = DefaultPoll
	}
	if c.WaitReplicas < 0 || c.WaitTimeout < 0 {
		errs = append(errs, fmt.Errorf("redisbroker: a wait of %v for %d replicas is negative", c.WaitTimeout, c.WaitReplicas))
	}
	if c.WaitTimeout == 0 {
		c.WaitTimeout = DefaultWaitTimeout
	}
	c.DeadTTL, c.DeadMax = cmp.Or(c.DeadTTL, broker.DefaultDeadTTL), cmp.Or(c.DeadMax, broker.DefaultDeadMax)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return errors.Join(errs...)
}

func (c *Config) conn() redisconn.Config {
	return redisconn.Config{Redis: c.Redis, Logger: c.Logger}
}
