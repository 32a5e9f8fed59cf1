package amqp

import (
	"cmp"
	"errors"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/connect/amqpconnect"
)

// DefaultMaxBody is the limit of RabbitMQ 4 with its default settings (16 MiB), minus a margin for
// the parts that the adapter adds.
const DefaultMaxBody = 16<<20 - 128<<10

// Config holds the address of RabbitMQ and the settings of queues. Only Connect must be set.
type Config struct {
	// Connect holds the address of RabbitMQ and the settings of the connections.
	Connect amqpconnect.Config
	// DeadTTL is the retention of a dead letter. Default: broker.DefaultDeadTTL. Negative: no limit.
	// An existing queue of dead letters is used as it is.
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

// complete returns c with its defaults, and an error for a negative MaxBody. It does not check
// Connect.
func (c Config) complete() (Config, error) {
	var err error
	if c.MaxBody < 0 {
		err = errors.New("celery/amqp: MaxBody is negative")
	}
	c.DeadTTL, c.DeadMax = cmp.Or(c.DeadTTL, broker.DefaultDeadTTL), cmp.Or(c.DeadMax, broker.DefaultDeadMax)
	c.MaxBody = cmp.Or(c.MaxBody, DefaultMaxBody)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, err
}
