package amqpresults

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/internal/keyset"
)

// Defaults of [Config].
const (
	DefaultNamespace = "default"
	DefaultExpires   = 30 * time.Minute
	DefaultMaxLength = 1_000_000
	DefaultMaxResult = 15 << 20
	DefaultPrefetch  = 256
)

// QueueType is a RabbitMQ queue type (x-queue-type).
type QueueType string

// The types of reply queues.
const (
	Classic QueueType = "classic" // lives on one node; while that is down, its results wait with the consumers
	Quorum  QueueType = "quorum"  // lives on several nodes of a cluster and outlives the loss of a minority of them
)

// maxNamespace keeps the longest queue name below the 255 bytes of AMQP.
const maxNamespace = 64

// Config of [New]. Connect is the only field that must be set.
type Config struct {
	// Connect says where RabbitMQ is and how to reach it.
	Connect amqpconnect.Config
	// Namespace is part of the queues' names: 1 to 64 letters, digits, '_' and '-'. It has to be the same for submitters and
	// consumers. "": [DefaultNamespace], "default".
	Namespace string
	// Expires is how long a reply queue outlives the last connection of its submitter, in whole milliseconds. 0:
	// [DefaultExpires], 30 minutes.
	Expires time.Duration
	// MaxLength is how many records a reply queue holds for a submitter that does not read; beyond it the oldest are
	// dropped, and their futures never resolve. 0: [DefaultMaxLength], 1,000,000.
	MaxLength int
	// MaxResult is the largest Result in bytes; a larger one is refused with [resultstore.ErrTooLarge], as is a record of
	// which the rest is above 1 MiB. 0: [DefaultMaxResult], 15 MiB, so that every record fits into the 16 MiB that RabbitMQ
	// 4 takes unless configured otherwise.
	MaxResult int
	// Prefetch is how many records the broker sends ahead of the reading. 0: [DefaultPrefetch], 256.
	Prefetch int
	// QueueType is of the reply queues that Replies declares. "": quorum where Connect names several nodes, classic where it
	// names one.
	QueueType QueueType
	// Logger is told when a stream of replies is interrupted, and why. Nil: slog.Default().
	Logger *slog.Logger
}

// maxRest is how much larger than its Result a record may be: texts of an error, names and the correlation.
const maxRest = 1 << 20

// complete returns c with its defaults, and all its problems.
func (c Config) complete() (Config, error) {
	var errs []error
	negative := func(field string, v int64) {
		if v < 0 {
			errs = append(errs, fmt.Errorf("amqpresults: %s is negative", field))
		}
	}
	negative("Expires", int64(c.Expires))
	negative("MaxLength", int64(c.MaxLength))
	negative("MaxResult", int64(c.MaxResult))
	negative("Prefetch", int64(c.Prefetch))
	if c.Expires > 0 && c.Expires < time.Second {
		errs = append(errs, errors.New("amqpresults: Expires is shorter than 1s: no reconnect would be in time"))
	}
	if c.Prefetch > 1<<16-1 {
		errs = append(errs, errors.New("amqpresults: Prefetch is above 65535"))
	}
	if c.Namespace == "" {
		c.Namespace = DefaultNamespace
	}
	// A '.' would let one namespace's names be another's.
	if !keyset.ValidName(c.Namespace) || len(c.Namespace) > maxNamespace || strings.Contains(c.Namespace, ".") {
		errs = append(errs, fmt.Errorf("amqpresults: Namespace must be 1 to %d letters, digits, '_' and '-'", maxNamespace))
	}
	switch c.QueueType {
	case Classic, Quorum:
	case "":
		if c.QueueType = Classic; len(c.Connect.URLs) > 1 {
			c.QueueType = Quorum
		}
	default:
		errs = append(errs, fmt.Errorf("amqpresults: QueueType %q is neither %q nor %q", c.QueueType, Classic, Quorum))
	}
	if c.Expires == 0 {
		c.Expires = DefaultExpires
	}
	if c.MaxLength == 0 {
		c.MaxLength = DefaultMaxLength
	}
	if c.MaxResult == 0 {
		c.MaxResult = DefaultMaxResult
	}
	if c.Prefetch == 0 {
		c.Prefetch = DefaultPrefetch
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, errors.Join(errs...)
}
