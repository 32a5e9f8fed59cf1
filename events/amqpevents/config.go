package amqpevents

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/keyset"
)

// Defaults of [Config].
const (
	DefaultNamespace   = "default"
	DefaultQueueLength = 10_000
	DefaultBuffer      = 8192
)

// maxNamespace keeps the exchange's name below the 255 bytes of AMQP, with room for other names made of it.
const maxNamespace = 64

// Config of [New]. Connect is the only field that must be set.
type Config struct {
	// Connect says where RabbitMQ is and how to reach it.
	Connect amqpconnect.Config
	// Namespace is part of the exchange's name: 1 to 64 letters, digits, '_' and '-'. It has to be the same for all nodes.
	// "": [DefaultNamespace], "default".
	Namespace string
	// Batch tunes how events are collected into messages and how many wait. Zero: the defaults of [events.BatcherConfig].
	Batch events.BatcherConfig
	// QueueLength is how many messages, each of up to 100 events, the broker holds for a listener that does not keep up;
	// beyond it the oldest are dropped. 0: [DefaultQueueLength], 10,000.
	QueueLength int
	// Buffer is how many events wait inside this process for each subscription that does not read them; beyond it the
	// oldest are dropped and counted. 0: [DefaultBuffer], 8,192.
	Buffer int
	// Retain says which events are kept for [Bus.Replay], in a stream queue beside the exchange, and how long. RabbitMQ
	// counts bytes, not events: room is made for Max events of 1 KiB each, in which more smaller ones, or fewer larger
	// ones, find a place; and it forgets whole segments, of which Max fills four. Age is rounded up to seconds. Zero:
	// nothing is kept.
	Retain events.Retention
	// Logger is told when a listener is interrupted, and why. Nil: slog.Default().
	Logger *slog.Logger
}

// complete returns c with its defaults, and all its problems.
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
	// A '.' would let one namespace's names be another's.
	if !keyset.ValidName(c.Namespace) || len(c.Namespace) > maxNamespace || strings.Contains(c.Namespace, ".") {
		errs = append(errs, fmt.Errorf("amqpevents: Namespace must be 1 to %d letters, digits, '_' and '-'", maxNamespace))
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
