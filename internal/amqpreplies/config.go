// Package amqpreplies sends records to reply queues on RabbitMQ. Every submitter has a reply queue,
// and nothing is stored. The adapters that use it choose the names of the queues and the form of
// the messages.
package amqpreplies

import (
	"log/slog"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/resultstore"
)

// Defaults of the fields of [Config] with these names.
const (
	DefaultExpires   = 30 * time.Minute
	DefaultMaxLength = 1_000_000
	DefaultMaxResult = 15 << 20
	DefaultPrefetch  = 256
)

// maxRest limits the bytes of a record beside its Result: error texts, names and the correlation.
const maxRest = 1 << 20

// Config holds the settings of [New]. All fields are required, except Prefix and Purpose.
type Config struct {
	Connect amqpconnect.Config
	// Purpose begins the names of the connections.
	Purpose string
	// Prefix begins the name of a reply queue; the node's id follows.
	Prefix string
	// Expires is the time after which the server removes the queue of a disconnected submitter.
	Expires time.Duration
	// MaxLength is the number of records that a queue holds for a slow submitter. Beyond it the server
	// drops the oldest.
	MaxLength int
	MaxResult int    // the largest Result in bytes
	Prefetch  int    // the number of records that the server sends before they are read
	QueueType string // x-queue-type: classic or quorum
	Logger    *slog.Logger
	// Shared says that reply queues share their names with other queues. Then Replies refuses a queue
	// of that name with another purpose, because it would consume and delete it. A queue that has an
	// x-expires passes for a reply queue.
	Shared bool
	// Sends reports whether Save sends a record.
	Sends func(r *resultstore.Record) bool
	// Encode returns the message for a record. Its errors are those of Save.
	Encode func(r *resultstore.Record) (*amqp.Publishing, error)
	// Decode returns the record in a message for node. Receive returns its errors.
	Decode func(node string, d *amqp.Delivery) (resultstore.Record, error)
}
