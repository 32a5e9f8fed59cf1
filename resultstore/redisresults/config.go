package redisresults

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/internal/naming"
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
	// Namespace is part of all keys and channels: 1 to 64 letters, digits, '_' and '-', the first a
	// letter or a digit. Submitters and consumers must use the same one. "": [DefaultNamespace],
	// "default".
	Namespace string
	// TTL is the retention of a record whose own TTL is 0, in whole milliseconds. 0: [DefaultTTL], 24
	// hours.
	TTL time.Duration
	// MaxResult is the largest Result in bytes. Save returns [resultstore.ErrTooLarge] for a larger
	// one, and for a record whose other fields exceed 1 MiB. 0: [DefaultMaxResult], 16 MiB.
	MaxResult int
	// MaxNotice is the largest record in bytes that is sent inside its notification. The notification
	// of a larger record holds only its id, and the submitter loads the record. 0: [DefaultMaxNotice],
	// 16 KiB.
	MaxNotice int
	// Buffer is the number of notifications that wait for a slow submitter, each of at most MaxNotice
	// bytes. Beyond it the oldest are lost, and the submitter finds those records with Load. 0:
	// [DefaultBuffer], 16,384.
	Buffer int
	// Logger receives a warning when a stream of notifications was interrupted. Nil: slog.Default().
	Logger *slog.Logger
}

// maxRest limits the bytes of a record beside its Result: error texts, names and the correlation.
const maxRest = 1 << 20

// complete returns c with the default in each field that is 0, "" or a nil Logger. The error joins
// all problems: negative numbers, a TTL below 1 ms, an invalid Namespace. It does not check Redis.
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
	// With a '.' two namespaces could share a name.
	if !naming.ValidName(c.Namespace) || len(c.Namespace) > maxNamespace || strings.Contains(c.Namespace, ".") {
		errs = append(errs, fmt.Errorf("redisresults: Namespace must be 1 to %d letters, digits, '_' and '-', first a letter or digit", maxNamespace))
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, errors.Join(errs...)
}
