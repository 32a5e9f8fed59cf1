package amqpresults

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/internal/amqpreplies"
	"github.com/swarmiji/swarmiji/internal/naming"
)

// Defaults of [Config].
const (
	DefaultNamespace = "default"
	DefaultExpires   = amqpreplies.DefaultExpires
	DefaultMaxLength = amqpreplies.DefaultMaxLength
	DefaultMaxResult = amqpreplies.DefaultMaxResult
	DefaultPrefetch  = amqpreplies.DefaultPrefetch
)

// QueueType is a RabbitMQ queue type (x-queue-type).
type QueueType string

// Types of reply queues.
const (
	// lives on one node; while that node is down, consumers keep its results
	Classic QueueType = "classic"
	// lives on several nodes of a cluster and survives the loss of a minority of them
	Quorum QueueType = "quorum"
)

// maxNamespace keeps the longest queue name below the 255 bytes of AMQP.
const maxNamespace = 64

// Config holds the settings of [New]. Connect is the only required field.
type Config struct {
	// Connect holds the addresses of RabbitMQ and how to connect to them.
	Connect amqpconnect.Config
	// Namespace is part of the queues' names: 1 to 64 letters, digits, '_' and '-', the first a
	// letter or a digit. Submitters and consumers must use the same one. "": [DefaultNamespace],
	// "default".
	Namespace string
	// Expires is the time after which the broker removes the reply queue of a disconnected submitter,
	// in whole milliseconds. 0: [DefaultExpires], 30 minutes.
	Expires time.Duration
	// MaxLength is the number of records that a reply queue holds for a slow submitter. Beyond it the
	// broker drops the oldest, and their futures never resolve. 0: [DefaultMaxLength], 1,000,000.
	MaxLength int
	// MaxResult is the largest Result in bytes. Save returns [resultstore.ErrTooLarge] for a larger
	// one, and for a record whose other fields exceed 1 MiB. 0: [DefaultMaxResult], 15 MiB, so that
	// every record fits into the default limit of RabbitMQ 4, 16 MiB.
	MaxResult int
	// Prefetch is the number of records that the broker sends before they are read. 0:
	// [DefaultPrefetch], 256.
	Prefetch int
	// QueueType is the type of the reply queues that Replies declares. "": [Quorum] if Connect has
	// several URLs, otherwise [Classic].
	QueueType QueueType
	// Logger receives a warning with the cause when a stream of replies is interrupted. Nil:
	// slog.Default().
	Logger *slog.Logger
}

// complete returns c with the default in each field that is 0, "" or a nil Logger. The default of
// QueueType is Quorum with several URLs, otherwise Classic. It does not check Connect.
//
// The error joins all problems: negative numbers, a Prefetch above 65,535, an Expires below 1 s, an
// invalid Namespace, an unknown QueueType.
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
	// With a '.' two namespaces could share a queue name.
	if !naming.ValidName(c.Namespace) || len(c.Namespace) > maxNamespace || strings.Contains(c.Namespace, ".") {
		errs = append(errs, fmt.Errorf("amqpresults: Namespace must be 1 to %d letters, digits, '_' and '-', first a letter or digit", maxNamespace))
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
