package redisevents

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/naming"
)

// Defaults of [Config].
const (
	DefaultNamespace = "default"
	DefaultBuffer    = 8192
)

// maxNamespace is the longest namespace in bytes. It is the same for all adapters.
const maxNamespace = 64

// Config holds the settings of [New]. Redis is the only required field.
type Config struct {
	// Redis holds the addresses of the servers and how to connect to them, in the form of the client.
	// Addrs has one address, several of a cluster (or set IsClusterMode), or Sentinels with
	// MasterName. New copies it.
	//
	// The client never repeats a command. MinRetryBackoff and MaxRetryBackoff are the first and the
	// longest delay between attempts to reach a server, with full jitter. 0: 100 ms and 5 s.
	// ClientName is shown in the server's list of connections. "": "swarmiji".
	Redis *redis.UniversalOptions
	// Namespace is part of the channels' names: 1 to 64 letters, digits, '_' and '-', the first a
	// letter or a digit. All nodes must use the same one. "": [DefaultNamespace], "default".
	Namespace string
	// Batch configures how events are collected into messages and how many may wait. Zero: the
	// defaults of [events.BatcherConfig].
	Batch events.BatcherConfig
	// Buffer is the number of events that wait in this process for each slow subscription. Beyond it
	// the oldest are dropped and counted. 0: [DefaultBuffer], 8,192. A subscription of Replay has no
	// buffer: its unread events wait at the server.
	Buffer int
	// Retain selects the events that are kept for [Bus.Replay]. The zero value keeps none. Age counts
	// in whole milliseconds.
	Retain events.Retention
	// Logger receives a warning with the cause when a listener is interrupted. Nil: slog.Default().
	Logger *slog.Logger
}

// complete returns c with the default in each field that is 0, "" or a nil Logger, and with a copy
// of Retain.Types. The error joins all problems: a negative Buffer, an invalid Namespace, and those
// of Retain. It does not check Redis.
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
	// All adapters refuse a '.'. With a ':' or '}' two namespaces could share a name.
	if !naming.ValidName(c.Namespace) || len(c.Namespace) > maxNamespace || strings.Contains(c.Namespace, ".") {
		errs = append(errs, fmt.Errorf("redisevents: Namespace must be 1 to %d letters, digits, '_' and '-', first a letter or digit", maxNamespace))
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, errors.Join(errs...)
}
