package redis

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/celery/wire"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// Defaults of [Config].
const (
	DefaultTTL       = task.DefaultResultTTL // also Celery's result_expires
	DefaultMaxResult = 16 << 20
	DefaultBuffer    = 4 << 10
)

// maxKeyPrefix is the longest KeyPrefix in bytes.
const maxKeyPrefix = 128

// Config holds the settings of [New]. Redis is the only required field.
type Config struct {
	// Redis holds the address of the server and how to connect to it, in the form of the client. Addrs
	// has one address, or those of Sentinels with MasterName. New copies it. The database must be that
	// of Celery's result_backend.
	Redis *goredis.UniversalOptions
	// KeyPrefix is Celery's global_keyprefix, before each key and channel: letters, digits and any of
	// "_-:.", at most 128 bytes. Default: none.
	KeyPrefix string
	// Content is the content type of the documents: [serializer.ContentJSON], or
	// [serializer.ContentMsgpack] if Celery's result_serializer is msgpack. Both are read. Default:
	// JSON.
	Content string
	// TTL is the retention of a record whose own TTL is 0, in whole milliseconds. 0: [DefaultTTL], 24
	// hours.
	TTL time.Duration
	// MaxResult is the largest Result in bytes. Save returns [resultstore.ErrTooLarge] for a larger
	// one. 0: [DefaultMaxResult], 16 MiB.
	MaxResult int
	// Buffer is the number of notifications that wait for a slow submitter, each a whole document.
	// Beyond it the oldest are lost, and the submitter finds those records with Load. 0:
	// [DefaultBuffer], 4,096.
	Buffer int
	// Logger receives a warning when a stream of notifications was interrupted. Nil: slog.Default().
	Logger *slog.Logger
}

// complete returns c with the default in each field that is 0, "" or a nil Logger. The error joins
// all problems. It does not check the addresses.
func (c Config) complete() (Config, error) {
	var errs []error
	for _, n := range []struct {
		field     string
		v         *int
		otherwise int
	}{{"MaxResult", &c.MaxResult, DefaultMaxResult}, {"Buffer", &c.Buffer, DefaultBuffer}} {
		if *n.v < 0 {
			errs = append(errs, fmt.Errorf("celery/redis: %s is negative", n.field))
		}
		if *n.v == 0 {
			*n.v = n.otherwise
		}
	}
	if c.TTL < 0 || c.TTL > 0 && c.TTL < time.Millisecond {
		errs = append(errs, errors.New("celery/redis: TTL is negative or shorter than 1ms"))
	}
	if c.TTL == 0 {
		c.TTL = DefaultTTL
	}
	switch c.Content {
	case "":
		c.Content = serializer.ContentJSON
	case wire.ContentMsgpack:
		c.Content = serializer.ContentMsgpack
	case serializer.ContentJSON, serializer.ContentMsgpack:
	default:
		errs = append(errs, fmt.Errorf("celery/redis: Content is %q, not JSON or msgpack", c.Content))
	}
	if len(c.KeyPrefix) > maxKeyPrefix || strings.ContainsFunc(c.KeyPrefix, notInPrefix) {
		errs = append(errs, fmt.Errorf("celery/redis: KeyPrefix must be at most %d letters, digits, '_', '-', ':' and '.'", maxKeyPrefix))
	}
	if o := c.Redis; o != nil && (o.IsClusterMode || len(o.Addrs) > 1 && o.MasterName == "") {
		errs = append(errs, errors.New("celery/redis: Redis Cluster is not supported"))
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, errors.Join(errs...)
}

// notInPrefix reports whether a KeyPrefix may not contain r.
func notInPrefix(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("_-:.", r)
}
