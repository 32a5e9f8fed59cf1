package amqpbroker

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/internal/naming"
)

// QueueType selects the server's implementation of a queue.
type QueueType string

// The types of queues.
const (
	Quorum  QueueType = "quorum"  // replicated; counts deliveries
	Classic QueueType = "classic" // on one node; knows only whether a delivery is the first
)

// The defaults of [Config].
const (
	DefaultNamespace     = "default"
	DefaultDeliveryLimit = 1000
	// DefaultMaxBody is the limit of RabbitMQ 4 with its default settings (16 MiB), minus a margin for
	// the parts that the adapter adds.
	DefaultMaxBody = 16<<20 - 128<<10
)

// maxNamespace limits a namespace, in bytes, so that the queue's name fits into the 255 bytes of an
// AMQP name.
const maxNamespace = 64

// Config holds the address of RabbitMQ and the settings of queues. Only Connect must be set.
type Config struct {
	// Connect holds the address of RabbitMQ and the settings of the connections.
	Connect amqpconnect.Config
	// Namespace separates programs on one virtual host: all names on the server begin with
	// "swj.<namespace>.". It has 1 to 64 letters, digits, '_' and '-', the first a letter or a digit.
	// Default: "default".
	Namespace string
	// QueueType is the type of the queues that this Broker creates. Default: Quorum. Existing queues
	// are used as they are.
	QueueType QueueType
	// DeliveryLimit is the number of deliveries after which RabbitMQ itself dead-letters a message of
	// a quorum queue. It is only a backstop: before RabbitMQ 4.3, a message that was returned
	// untouched counts too. Default: 1,000.
	DeliveryLimit int
	// DeadTTL is the retention of a dead letter. Default: broker.DefaultDeadTTL. Negative: no limit.
	// It applies to the dead queues that this Broker creates. Existing dead queues are used as they
	// are, and Audit returns the command that limits them.
	DeadTTL time.Duration
	// DeadMax limits the dead letters of a queue. RabbitMQ drops the oldest without a report. Default:
	// broker.DefaultDeadMax. Negative: no limit. It applies to the same queues as DeadTTL.
	DeadMax int
	// MaxBody limits the body of a message, in bytes. A larger body is broker.ErrTooLarge. Default: 16
	// MiB minus 128 KiB.
	MaxBody int
	// Logger receives reports that no call returns: queues that exist with other settings, consumers
	// that the server cancelled, deliveries lost to consumer_timeout. Default: slog.Default().
	Logger *slog.Logger
}

// check sets the defaults in c. It returns all problems joined, nil if c is valid: an invalid
// Namespace, an unknown QueueType, a negative DeliveryLimit or MaxBody. It does not check Connect.
func (c *Config) check() error {
	var errs []error
	if c.Namespace == "" {
		c.Namespace = DefaultNamespace
	}
	if !naming.ValidName(c.Namespace) || strings.Contains(c.Namespace, ".") || len(c.Namespace) > maxNamespace {
		errs = append(errs, fmt.Errorf("amqpbroker: namespace %q is not 1 to %d letters, digits, '_' and '-'", c.Namespace, maxNamespace))
	}
	switch c.QueueType {
	case "":
		c.QueueType = Quorum
	case Quorum, Classic:
	default:
		errs = append(errs, fmt.Errorf("amqpbroker: unknown queue type %q", c.QueueType))
	}
	if c.DeliveryLimit < 0 {
		errs = append(errs, fmt.Errorf("amqpbroker: DeliveryLimit %d is negative", c.DeliveryLimit))
	}
	if c.DeliveryLimit == 0 {
		c.DeliveryLimit = DefaultDeliveryLimit
	}
	c.DeadTTL, c.DeadMax = cmp.Or(c.DeadTTL, broker.DefaultDeadTTL), cmp.Or(c.DeadMax, broker.DefaultDeadMax)
	if c.MaxBody < 0 {
		errs = append(errs, fmt.Errorf("amqpbroker: MaxBody %d is negative", c.MaxBody))
	}
	if c.MaxBody == 0 {
		c.MaxBody = DefaultMaxBody
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return errors.Join(errs...)
}
