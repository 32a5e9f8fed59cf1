package amqpevents

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/naming"
)

// Defaults of [Config].
const (
	DefaultNamespace   = "default"
	DefaultQueueLength = 10_000
	DefaultBuffer      = 8192
)

// maxNamespace keeps the exchange's name and names made of it below the 255 bytes of AMQP.
const maxNamespace = 64

// Config holds the settings of [New]. Connect is the only required field.
type Config struct {
	// Connect holds the addresses of RabbitMQ and how to connect to them.
	Connect amqpconnect.Config
	// Namespace is part of the exchange's name: 1 to 64 letters, digits, '_' and '-', the first a
	// letter or a digit. All nodes must use the same one. "": [DefaultNamespace], "default".
	Namespace string
	// Batch configures how events are collected into messages and how many may wait. Zero: the
	// defaults of [events.BatcherConfig].
	Batch events.BatcherConfig
	// QueueLength is the number of messages, each of up to 100 events, that the broker holds for a
	// slow listener. Beyond it the oldest are dropped. 0: [DefaultQueueLength], 10,000.
	QueueLength int
	// Buffer is the number of events that wait in this process for each slow subscription. Beyond it
	// the oldest are dropped and counted. 0: [DefaultBuffer], 8,192.
	Buffer int
	// Retain selects the events that are kept for [Bus.Replay] in a stream queue. The zero value keeps
	// none. Age is rounded up to seconds.
	//
	// RabbitMQ limits bytes, not events: the queue has space for Max events of 1 KiB each, so it holds
	// more smaller or fewer larger ones. It removes whole segments, each a quarter of that size.
	Retain events.Retention
	// Logger receives a warning with the cause when a listener is interrupted. Nil: slog.Default().
	Logger *slog.Logger
}

// complete returns c with the default in each field that is 0, "" or a nil Logger, and with a copy
// of Retain.Types. The error joins all problems: negative numbers, an invalid Namespace, and those
// of Retain. It does not check Connect.
func (c Config) complete() (Config, error) {
	var errs []error
	if c.QueueLength < 0 {
		errs = append(errs, errors.New("amqpevents: QueueLength is negative"))
	}
	if c.Buffer < 0 {
		errs = append(errs, errors.New("amqpevents: Buffer is negative"))
	}
	if c.Namespace == "" {
		c.Namespace = DefaultNamespace
	}
	// With a '.' two namespaces could share a name.
	if !naming.ValidName(c.Namespace) || len(c.Namespace) > maxNamespace || strings.Contains(c.Namespace, ".") {
		errs = append(errs, fmt.Errorf("amqpevents: Namespace must be 1 to %d letters, digits, '_' and '-', first a letter or digit", maxNamespace))
	}
	if c.QueueLength == 0 {
		c.QueueLength = DefaultQueueLength
	}
	if c.Buffer == 0 {
		c.Buffer = DefaultBuffer
	}
	var err error
	if c.Retain, err = c.Retain.Complete(); err != nil {
		errs = append(errs, fmt.Errorf("amqpevents: Retain: %w", err))
	}
	c.Retain.Types = slices.Clone(c.Retain.Types)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, errors.Join(errs...)
}
