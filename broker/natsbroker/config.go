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
	"github.com/swarmiji/swarmiji/internal/keyset"
)

// Storage is where the server keeps a stream.
type Storage string

// The storages.
const (
	File   Storage = "file"   // survives a restart
	Memory Storage = "memory" // does not
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

// Config says where NATS is and how the stream is made. Connect is the only field that must be set.
type Config struct {
	// Connect says where NATS is and how to reach it.
	Connect natsconnect.Config
	// Namespace keeps programs in one account apart: the stream is SWJ_<namespace>, subjects begin with "swj.<namespace>.". 1
	// to 64 letters, digits, '_' and '-'. Empty: "default".
	Namespace string
	// Replicas is on how many servers of a cluster the stream is kept, 1, 3 or 5. 0: 1. A stream that exists is used as it is.
	Replicas int
	// Storage is where the stream is kept. Empty: File. A stream that exists is used as it is.
	Storage Storage
	// MaxBody is the largest body in bytes that is sent; a larger one is broker.ErrTooLarge. 0: what the server's max_payload
	// (1 MiB unless configured) leaves beside the headers.
	MaxBody int
	// Lease is how long the server waits for a sign of life of a consumer before it hands a message to somebody else, where
	// SubscribeOptions.Lease is 0. 0: 30 s; the least is 100 ms.
	Lease time.Duration
	// Dedupe is for how long the server remembers which messages were published, so that one that is published again is
	// dropped also when it has been handled already. It costs the server some 150 bytes a message for that time. While a
	// message is in its queue a second one is always dropped. 0: 30 s; the least is 100 ms. A stream that exists is used as it is.
	Dedupe time.Duration
	// DeadTTL is how long a dead letter is kept, to the second: by the server since NATS 2.11;
	// before it letters that are too old go when they are read. 0: broker.DefaultDeadTTL; negative:
	// for ever.
	DeadTTL time.Duration
	// DeadMax is how many dead letters a queue keeps; the oldest go first. A process that puts
	// letters looks how many there are after each hundredth part of it, so that there may be a few
	// more. 0: broker.DefaultDeadMax; negative: no limit.
	DeadMax int
	// Logger is told of what no call returns: streams and queues that exist with other settings, servers that are too old for
	// something, streams and consumers that were deleted. Nil: slog.Default().
	Logger *slog.Logger
}

// check fills in the defaults and returns all problems.
func (c *Config) check() error {
	var errs []error
	if c.Namespace == "" {
		c.Namespace = DefaultNamespace
	}
	if !keyset.ValidName(c.Namespace) || strings.Contains(c.Namespace, ".") || len(c.Namespace) > maxNamespace {
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
		errs = append(errs, fmt.Errorf("natsbroker: largest body %d is negative", c.MaxBody))
	}
	errs = append(errs, atLeast("lease", &c.Lease, DefaultLease, minLease), atLeast("dedupe window", &c.Dedupe, DefaultDedupe, minDedupe))
	c.DeadTTL, c.DeadMax = cmp.Or(c.DeadTTL, broker.DefaultDeadTTL), cmp.Or(c.DeadMax, broker.DefaultDeadMax)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return errors.Join(errs...)
}

func atLeast(what string, d *time.Duration, standard, least time.Duration) error {
	if *d == 0 {
		*d = standard
	}
	if *d < least {
		return fmt.Errorf("natsbroker: %s %v is shorter than %v", what, *d, least)
	}
	return nil
}
