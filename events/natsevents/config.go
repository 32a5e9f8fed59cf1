package natsevents

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/swarmiji/swarmiji/connect/natsconnect"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/naming"
)

// Defaults of [Config].
const (
	DefaultNamespace = "default"
	DefaultBuffer    = 8192
)

const (
	maxNamespace = 64
	maxReplicas  = 5
)

// Config holds the settings of [New]. Connect is the only required field.
type Config struct {
	// Connect holds the addresses of NATS and how to connect to them.
	Connect natsconnect.Config
	// Namespace is part of the names of subjects and stream: 1 to 64 letters, digits, '_' and '-',
	// the first a letter or a digit. All nodes must use the same one. "": [DefaultNamespace],
	// "default".
	Namespace string
	// Batch configures how events are collected into messages and how many may wait. Zero: the
	// defaults of [events.BatcherConfig].
	Batch events.BatcherConfig
	// Buffer is the number of events that wait in this process for each slow subscription. Beyond it
	// the oldest are dropped and counted. 0: [DefaultBuffer], 8,192.
	Buffer int
	// Retain selects the events that are kept for [Bus.Replay]. It must be the same for all nodes. The
	// zero value keeps none, and the server needs no JetStream.
	Retain events.Retention
	// Replicas is the number of servers of a cluster that store kept events, if this bus creates the
	// stream: 1 to 5. 0: 1.
	Replicas int
	// Logger is told when storing kept events begins to fail and when it works again. Nil:
	// slog.Default().
	Logger *slog.Logger
}

// complete returns c with the default in each field that is 0, "" or a nil Logger, and with a copy
// of Retain.Types. The error joins all problems: a negative Buffer, Replicas out of range, an
// invalid Namespace, and those of Retain. It does not check Connect.
func (c Config) complete() (Config, error) {
	var errs []error
	if c.Buffer < 0 {
		errs = append(errs, errors.New("natsevents: Buffer is negative"))
	}
	if c.Replicas < 0 || c.Replicas > maxReplicas {
		errs = append(errs, fmt.Errorf("natsevents: Replicas must be 0 to %d", maxReplicas))
	}
	if c.Namespace == "" {
		c.Namespace = DefaultNamespace
	}
	// With a '.' two namespaces could share a subject.
	if !naming.ValidName(c.Namespace) || len(c.Namespace) > maxNamespace || strings.Contains(c.Namespace, ".") {
		errs = append(errs, fmt.Errorf("natsevents: Namespace must be 1 to %d letters, digits, '_' and '-', first a letter or digit", maxNamespace))
	}
	retain, err := c.Retain.Complete()
	errs = append(errs, err)
	c.Retain = retain
	c.Retain.Types = slices.Clone(retain.Types)
	if c.Buffer == 0 {
		c.Buffer = DefaultBuffer
	}
	if c.Replicas == 0 {
		c.Replicas = 1
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, errors.Join(errs...)
}
