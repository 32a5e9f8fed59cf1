package redisevents

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/keyset"
)

// Defaults of [Config].
const (
	DefaultNamespace = "default"
	DefaultBuffer    = 8192
)

// maxNamespace is the longest namespace in bytes, the same for all adapters.
const maxNamespace = 64

// Config of [New]. Redis is the only field that must be set.
type Config struct {
	// Redis says where the servers are and how to reach them, as the client has it: one address,
	// several of a cluster (or IsClusterMode), or Sentinels with MasterName. It is copied. The client
	// never repeats a command; MinRetryBackoff and MaxRetryBackoff are the first and the longest time
	// between attempts to reach a server, with full jitter. 0: 100 ms and 5 s. ClientName is shown in
	// the server's list of connections. "": "swarmiji".
	Redis *redis.UniversalOptions
	// Namespace is part of the channels' names: 1 to 64 letters, digits, '_' and '-'. It has to be the same for all nodes.
	// "": [DefaultNamespace], "default".
	Namespace string
	// Batch tunes how events are collected into messages and how many wait. Zero: the defaults of [events.BatcherConfig].
	Batch events.BatcherConfig
	// Buffer is how many events wait inside this process for each subscription that does not read them; beyond it the
	// oldest are dropped and counted. 0: [DefaultBuffer], 8,192. A subscription of Replay needs none: what it has not read
	// waits at the server.
	Buffer int
	// Retain says which events are kept for [Bus.Replay]. The zero value keeps none. Age counts in whole milliseconds.
	Retain events.Retention
	// Logger is told when a listener is interrupted, and why. Nil: slog.Default().
	Logger *slog.Logger
}

// complete returns c with its defaults, and all its problems but those of Redis.
func (c Config) complete() (Config, error) {
	var errs []error
	if c.Buffer < 0 {
		errs = append(errs, errors.New("redisevents: Buffer is negative"))
	}
	if c.Buffer == 0 {
		c.Buffer = DefaultBuffer
	}
	retain, err := c.Retain.Complete()
	if err != nil {
		errs = append(errs, fmt.Errorf("redisevents: Retain: %w", err))
	}
	c.Retain = retain
	c.Retain.Types = slices.Clone(retain.Types)
	if c.Namespace == "" {
		c.Namespace = DefaultNamespace
	}
	// A '.' is refused as by all other adapters; ':' and '}' would let one namespace's names be another's.
	if !keyset.ValidName(c.Namespace) || len(c.Namespace) > maxNamespace || strings.Contains(c.Namespace, ".") {
		errs = append(errs, fmt.Errorf("redisevents: Namespace must be 1 to %d letters, digits, '_' and '-'", maxNamespace))
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, errors.Join(errs...)
}
