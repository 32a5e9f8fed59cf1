package natsevents

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/swarmiji/swarmiji/connect/natsconnect"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/keyset"
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

// Config of [New]. Connect is the only field that must be set.
type Config struct {
	// Connect says where NATS is and how to reach it.
	Connect natsconnect.Config
	// Namespace is part of the names of subjects and stream: 1 to 64 letters, digits, '_' and '-'. It has to be the same for all
	// nodes. "": [DefaultNamespace], "default".
	Namespace string
	// Batch tunes how events are collected into messages and how many wait. Zero: the defaults of [events.BatcherConfig].
	Batch events.BatcherConfig
	// Buffer is how many events wait inside this process for each subscription that does not read them; beyond it the
	// oldest are dropped and counted. 0: [DefaultBuffer], 8,192.
	Buffer int
	// Retain says which events are kept, for [Bus.Replay]. It has to be the same for all nodes. Zero: none, and the server
	// needs no JetStream.
	Retain events.Retention
	// Replicas is on how many servers of a cluster kept events are stored when this bus creates the stream: 1 to 5. 0: 1.
	Replicas int
	// Logger is told when kept events cannot be stored, and when that is over. Nil: slog.Default().
	Logger *slog.Logger
}

// complete returns c with its defaults, and all its problems.
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
	// A '.' would let one namespace's subjects be another's.
	if !keyset.ValidName(c.Namespace) || len(c.Namespace) > maxNamespace || strings.Contains(c.Namespace, ".") {
		errs = append(errs, fmt.Errorf("natsevents: Namespace must be 1 to %d letters, digits, '_' and '-'", maxNamespace))
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
