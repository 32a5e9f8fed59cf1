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
	"github.com/swarmiji/swarmiji/internal/naming"
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
	// maxMaxBody is the limit of MaxBody: the size of a Redis string, minus an ample margin for
	// headers.
	maxMaxBody = 256 << 20
)

// Config holds the address of Redis and the settings of queues. Only Redis must be set.
type Config struct {
	// Redis holds the addresses of the servers and the client's options: one address, several of a
	// cluster (or IsClusterMode), or Sentinels with MasterName. It is copied.
	//
	// The client never repeats a command. MinRetryBackoff and MaxRetryBackoff are the first and the
	// longest time between attempts to reach a server, with full jitter. Default: 100 ms and 5 s.
	// ClientName is shown in the server's list of connections. Default: "swarmiji".
	Redis *redis.UniversalOptions
	// Namespace separates programs on one server: all keys begin with "swj:{<namespace>.". It has 1 to
	// 64 letters, digits, '_' and '-'. Default: "default".
	Namespace string
	// MaxBody limits the body of a message, in bytes. A larger body is broker.ErrTooLarge. Default: 16
	// MiB. Maximum: 256 MiB.
	MaxBody int
	// Lease is the time after which the messages of a consumer that does not renew its lease go back.
	// SubscribeOptions may set another. Default: 30 s. Minimum: 100 ms.
	Lease time.Duration
	// Poll is the interval at which the waiting consumers of a Broker check their queues without a
	// notification. It covers messages pushed by other programs, lost notifications, and the end of
	// another consumer. Default: 1 s.
	Poll time.Duration
	// WaitReplicas is the number of replicas to which a message must be copied before it is confirmed.
	// Each publish waits at most WaitTimeout and then returns [ErrNotReplicated]. Without it, a
	// failover to a replica may lose messages that were confirmed shortly before. 0: no wait.
	WaitReplicas int
	// WaitTimeout limits the wait for replicas. Default: 1 s.
	WaitTimeout time.Duration
	// DeadTTL is the retention of a dead letter. Older letters are removed when another one arrives or
	// when they are read. Default: broker.DefaultDeadTTL. Negative: no limit.
	DeadTTL time.Duration
	// DeadMax limits the dead letters of a queue. The oldest are removed first. Default:
	// broker.DefaultDeadMax. Negative: no limit.
	DeadMax int
	// Logger receives reports that no call returns: settings of the server that weaken the promises,
	// and queues that exist with other levels. Default: slog.Default().
	Logger *slog.Logger
}

// check replaces the unset fields of c by their defaults and returns all problems joined. It
// returns nil if c is valid. It does not check c.Redis.
func (c *Config) check() error {
	var errs []error
	if c.Namespace == "" {
		c.Namespace = DefaultNamespace
	}
	if !naming.ValidName(c.Namespace) || strings.Contains(c.Namespace, ".") || len(c.Namespace) > maxNamespace {
		errs = append(errs, fmt.Errorf("redisbroker: namespace %q is not 1 to %d letters, digits, '_' and '-'", c.Namespace, maxNamespace))
	}
	if c.MaxBody < 0 || c.MaxBody > maxMaxBody {
		errs = append(errs, fmt.Errorf("redisbroker: MaxBody %d is not 0 to %d", c.MaxBody, maxMaxBody))
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
		errs = append(errs, fmt.Errorf("redisbroker: WaitTimeout %v or WaitReplicas %d is negative", c.WaitTimeout, c.WaitReplicas))
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

// conn returns the settings of the connection.
func (c *Config) conn() redisconn.Config {
	return redisconn.Config{Redis: c.Redis, Logger: c.Logger}
}
