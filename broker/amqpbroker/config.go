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
	"github.com/swarmiji/swarmiji/internal/keyset"
)

// QueueType is how the server keeps a queue.
type QueueType string

// The types of queues.
const (
	Quorum  QueueType = "quorum"  // replicated; counts deliveries
	Classic QueueType = "classic" // on one node; of a delivery it only knows "first" or "not the first"
)

// The defaults of [Config].
const (
	DefaultNamespace     = "default"
	DefaultDeliveryLimit = 1000
	// DefaultMaxBody is what RabbitMQ 4 takes with its own default (16 MiB), less a margin for what the adapter adds.
	DefaultMaxBody = 16<<20 - 128<<10
)

// maxNamespace leaves room for a queue's name in the 255 bytes of an AMQP name.
const maxNamespace = 64

// Config says where RabbitMQ is and how queues are made. Connect is the only field that must be set.
type Config struct {
	// Connect says where RabbitMQ is and how to reach it.
	Connect amqpconnect.Config
	// Namespace keeps programs on one virtual host apart: all names on the server begin with "swj.<namespace>.". 1 to 64
	// letters, digits, '_' and '-'. Empty: "default".
	Namespace string
	// QueueType is the type of the queues that this Broker creates. Empty: Quorum. Existing queues are used as they are.
	QueueType QueueType
	// DeliveryLimit is after how many deliveries RabbitMQ itself dead-letters a message of a quorum queue. It is only a
	// backstop, since before RabbitMQ 4.3 also a message that was given back untouched counts. 0: 1,000.
	DeliveryLimit int
	// DeadTTL is how long RabbitMQ keeps a dead letter. 0: broker.DefaultDeadTTL; negative: for
	// ever. It holds for the dead queues that this Broker creates: existing ones are used as they
	// are, and Audit says how to bound them.
	DeadTTL time.Duration
	// DeadMax is how many dead letters of a queue RabbitMQ keeps; the oldest go first, without a
	// word. 0: broker.DefaultDeadMax; negative: no limit. It holds where DeadTTL does.
	DeadMax int
	// MaxBody is the largest body in bytes that is sent; a larger one is broker.ErrTooLarge. 0: 16 MiB less 128 KiB.
	MaxBody int
	// Logger is told of what no call returns: queues that exist with other settings, consumers that the server cancelled,
	// deliveries lost to consumer_timeout. Nil: slog.Default().
	Logger *slog.Logger
}

// check fills in the defaults and returns all problems.
func (c *Config) check() error {
	var errs []error
	if c.Namespace == "" {
		c.Namespace = DefaultNamespace
	}
	if !keyset.ValidName(c.Namespace) || strings.Contains(c.Namespace, ".") || len(c.Namespace) > maxNamespace {
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
		errs = append(errs, fmt.Errorf("amqpbroker: delivery limit %d is negative", c.DeliveryLimit))
	}
	if c.DeliveryLimit == 0 {
		c.DeliveryLimit = DefaultDeliveryLimit
	}
	c.DeadTTL, c.DeadMax = cmp.Or(c.DeadTTL, broker.DefaultDeadTTL), cmp.Or(c.DeadMax, broker.DefaultDeadMax)
	if c.MaxBody < 0 {
		errs = append(errs, fmt.Errorf("amqpbroker: largest body %d is negative", c.MaxBody))
	}
	if c.MaxBody == 0 {
		c.MaxBody = DefaultMaxBody
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return errors.Join(errs...)
}
