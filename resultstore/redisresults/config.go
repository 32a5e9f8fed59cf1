package redisresults

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/internal/keyset"
	"github.com/swarmiji/swarmiji/task"
)

// Defaults of [Config].
const (
	DefaultNamespace = "default"
	DefaultTTL       = task.DefaultResultTTL
	DefaultMaxResult = 16 << 20
	DefaultMaxNotice = 16 << 10
	DefaultBuffer    = 16 << 10
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
	// Namespace is part of all keys and channels: 1 to 64 letters, digits, '_' and '-'. It has to be the same for submitters
	// and consumers. "": [DefaultNamespace], "default".
	Namespace string
	// TTL is how long a record is kept that names no time of its own, in whole milliseconds. 0: [DefaultTTL], 24 hours.
	TTL time.Duration
	// MaxResult is the largest Result in bytes; a larger one is refused with [resultstore.ErrTooLarge], as is a record of
	// which the rest is above 1 MiB. 0: [DefaultMaxResult], 16 MiB.
	MaxResult int
	// MaxNotice is the largest record in bytes that travels with its notification; of a larger one the submitter is told
	// the id, and loads it. 0: [DefaultMaxNotice], 16 KiB.
	MaxNotice int
	// Buffer is how many notifications wait for a submitter that does not read them, each of at most MaxNotice bytes;
	// beyond it the oldest are lost, and the submitter finds the records with Load. 0: [DefaultBuffer], 16,384.
	Buffer int
	// Logger is told when a stream of notifications was interrupted. Nil: slog.Default().
	Logger *slog.Logger
}

// maxRest is how much larger than its Result a record may be: texts of an error, names and the correlation.
const maxRest = 1 << 20

// complete returns c with its defaults, and all its problems but those of Redis.
func (c Config) complete() (Config, error) {
	var errs []error
	number := func(field string, v *int, otherwise int) {
		if *v < 0 {
			errs = append(errs, fmt.Errorf("redisresults: %s is negative", field))
		}
		if *v == 0 {
			*v = otherwise
		}
	}
	number("MaxResult", &c.MaxResult, DefaultMaxResult)
	number("MaxNotice", &c.MaxNotice, DefaultMaxNotice)
	number("Buffer", &c.Buffer, DefaultBuffer)
	if c.TTL < 0 {
		errs = append(errs, errors.New("redisresults: TTL is negative"))
	}
	if c.TTL > 0 && c.TTL < time.Millisecond {
		errs = append(errs, errors.New("redisresults: TTL is shorter than 1ms"))
	}
	if c.TTL == 0 {
		c.TTL = DefaultTTL
	}
	if c.Namespace == "" {
		c.Namespace = DefaultNamespace
	}
	// A '.' would let one namespace's names be another's.
	if !keyset.ValidName(c.Namespace) || len(c.Namespace) > maxNamespace || strings.Contains(c.Namespace, ".") {
		errs = append(errs, fmt.Errorf("redisresults: Namespace must be 1 to %d letters, digits, '_' and '-'", maxNamespace))
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, errors.Join(errs...)
}
