package natsbroker

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/connect/natsconnect"
	"github.com/swarmiji/swarmiji/internal/naming"
)

// Storage is the server's storage of a stream.
type Storage string

// The storages.
const (
	File   Storage = "file"   // survives a restart
	Memory Storage = "memory" // does not survive a restart
)

// The defaults of [Config].
const (
	DefaultNamespace = "default"
	DefaultLease     = 30 * time.Second
	DefaultDedupe    = 30 * time.Second
)

const (
	maxNamespace = 64
	maxReplicas  = 5
	minLease     = 100 * time.Millisecond
	minDedupe    = 100 * time.Millisecond
)

// Config holds the address of NATS and the settings of the stream. Only Connect must be set.
type Config struct {
	// Connect holds the address of NATS and the settings of the connection.
	Connect natsconnect.Config
	// Namespace separates programs in one account: the stream is SWJ_<namespace>, and subjects begin
	// with "swj.<namespace>.". It has 1 to 64 letters, digits, '_' and '-', the first a letter or a
	// digit. Default: "default".
	Namespace string
	// Replicas is the number of servers of a cluster that store the stream: 1, 3 or 5. Default: 1. An
	// existing stream is used as it is.
	Replicas int
	// Storage is the storage of the stream. Default: File. An existing stream is used as it is.
	Storage Storage
	// MaxBody limits the body of a message, in bytes. A larger body is broker.ErrTooLarge. Default:
	// the server's max_payload (1 MiB unless configured) minus the headers.
	MaxBody int
	// Lease is the time after which the server delivers a message again if the consumer does not renew
	// the lease. SubscribeOptions.Lease may set another. Default: 30 s. Minimum: 100 ms.
	Lease time.Duration
	// Dedupe is the time for which the server remembers published messages. A message that is
	// published again within it is dropped, even if the first was handled already. It costs the server
	// about 150 bytes a message for that time. While a message is in its queue, a second one is always
	// dropped. Default: 30 s. Minimum: 100 ms. An existing stream is used as it is.
	Dedupe time.Duration
	// DeadTTL is the retention of a dead letter, to the second. NATS 2.11 and later remove the
	// letters. With earlier servers, letters that are too old are removed when they are read. Default:
	// broker.DefaultDeadTTL. Negative: no limit.
	DeadTTL time.Duration
	// DeadMax limits the dead letters of a queue. The oldest are removed first. A process counts the
	// letters after each hundredth part of the limit that it adds, so there may be a few more.
	// Default: broker.DefaultDeadMax. Negative: no limit.
	DeadMax int
	// Logger receives reports that no call returns: streams and queues that exist with other settings,
	// servers that are too old for a feature, streams and consumers that were deleted. Default:
	// slog.Default().
	Logger *slog.Logger
}

// check sets the defaults in c. It returns all problems joined, nil if c is valid: an invalid
// Namespace, Replicas out of range, an unknown Storage, a negative MaxBody, a Lease or Dedupe that
// is too short. It does not check Connect.
func (c *Config) check() error {
	var errs []error
	if c.Namespace == "" {
		c.Namespace = DefaultNamespace
	}
	if !naming.ValidName(c.Namespace) || strings.Contains(c.Namespace, ".") || len(c.Namespace) > maxNamespace {
		errs = append(errs, fmt.Errorf("natsbroker: namespace %q is not 1 to %d letters, digits, '_' and '-'", c.Namespace, maxNamespace))
	}
	if c.Replicas == 0 {
		c.Replicas = 1
	}
	if c.Replicas < 1 || c.Replicas > maxReplicas {
		errs = append(errs, fmt.Errorf("natsbroker: %d replicas, not 1 to %d", c.Replicas, maxReplicas))
	}
	switch c.Storage {
	case "":
		c.Storage = File
	case File, Memory:
	default:
		errs = append(errs, fmt.Errorf("natsbroker: unknown storage %q", c.Storage))
	}
	if c.MaxBody < 0 {
		errs = append(errs, fmt.Errorf("natsbroker: MaxBody %d is negative", c.MaxBody))
	}
	errs = append(errs, atLeast("lease", &c.Lease, DefaultLease, minLease), atLeast("dedupe window", &c.Dedupe, DefaultDedupe, minDedupe))
	c.DeadTTL, c.DeadMax = cmp.Or(c.DeadTTL, broker.DefaultDeadTTL), cmp.Or(c.DeadMax, broker.DefaultDeadMax)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return errors.Join(errs...)
}

// atLeast sets *d to standard if it is 0. It returns an error that names the setting what if *d is
// shorter than least.
func atLeast(what string, d *time.Duration, standard, least time.Duration) error {
	if *d == 0 {
		*d = standard
	}
	if *d < least {
		return fmt.Errorf("natsbroker: %s %v is shorter than %v", what, *d, least)
	}
	return nil
}
