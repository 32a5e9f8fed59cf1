// Package redislimit stores limits in Redis, for all processes with the same namespace.
//
// # Layout
//
// All keys of a namespace are in one slot of a cluster, so that one script can acquire permits of
// several limits:
//
//	swj:limit:{NAMESPACE}:ends:KEY     sorted set: holders by the end of their lease, in
//	                                   microseconds of the server's clock
//	swj:limit:{NAMESPACE}:weights:KEY  hash: the weight of each holder; their sum under the
//	                                   empty name
//	swj:limit:{NAMESPACE}:rate:KEY     string: the time up to which the rate is used, in
//	                                   microseconds
//
// Each key expires when it is no longer needed.
package redislimit

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/internal/naming"
	"github.com/swarmiji/swarmiji/internal/redisconn"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/limit"
)

//go:embed limit.lua
var source string

// DefaultNamespace is the namespace if Config.Namespace is "".
const DefaultNamespace = "default"

// maxNamespace is the maximum length of a namespace in bytes, the same for all adapters.
const maxNamespace = 64

// Config configures a [Limiter]. Only Redis must be set.
type Config struct {
	// Redis holds the addresses and settings of the client: one server, several of a cluster (or
	// IsClusterMode), or Sentinels with MasterName. It is copied.
	//
	// The client never repeats a command. MinRetryBackoff and MaxRetryBackoff are the shortest and the
	// longest delay between attempts to reach a server, with full jitter. Default: 100 ms and 5 s.
	// ClientName is shown in the server's list of connections. Default: "swarmiji".
	Redis *redis.UniversalOptions
	// Namespace is part of all keys: 1 to 64 letters, digits, '_' and '-', the first a letter or a
	// digit. All processes must use the same one. Default: [DefaultNamespace], "default".
	Namespace string
	// Logger gets warnings about server settings that weaken the guarantees. Default: slog.Default().
	Logger *slog.Logger
}

// Limiter is a [limit.Limiter] that stores limits in Redis. Make one with [New]. Safe for
// concurrent use. Each method makes one call to the server.
type Limiter struct {
	conn   *redisconn.Conn
	script *redisconn.Script
	usage  *redisconn.Script
	prefix string
}

var (
	_ limit.Limiter = (*Limiter)(nil)
	_ limit.Closer  = (*Limiter)(nil)
)

// New returns a Limiter. Its error joins all problems of the configuration. It does no I/O and
// starts nothing.
func New(c Config) (*Limiter, error) {
	var errs []error
	if c.Namespace == "" {
		c.Namespace = DefaultNamespace
	}
	if !naming.ValidName(c.Namespace) || len(c.Namespace) > maxNamespace || strings.Contains(c.Namespace, ".") {
		errs = append(errs, fmt.Errorf("redislimit: Namespace must be 1 to %d letters, digits, '_' and '-', first a letter or digit", maxNamespace))
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	conn, err := redisconn.New(redisconn.Config{Redis: c.Redis, Logger: c.Logger})
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	return &Limiter{conn: conn, script: redisconn.NewScript(source), usage: redisconn.NewScript(usageSource), prefix: "swj:limit:{" + c.Namespace + "}:"}, nil
}

// Acquire implements [limit.Limiter]: it grants all permits to holder, or none, in one script. It
// does not wait for permits. It waits for the server, and repeats a call of unknown outcome, until
// ctx ends. Without permits it grants and asks no server.
//
// Returns [limit.ErrBadPermit] for invalid arguments. After [limit.ErrUnavailable], which it also
// returns after Close, the permits may be held. They become free when the lease ends.
func (l *Limiter) Acquire(ctx context.Context, holder string, lease time.Duration, ps ...limit.Permit) (limit.Decision, error) {
	answer, err := l.eval(ctx, "acquire", holder, lease, ps)
	switch {
	case err != nil:
		return limit.Decision{}, err
	case answer < 0:
		return limit.Decision{Granted: true}, nil
	}
	return limit.Decision{RetryAfter: time.Duration(answer) * time.Microsecond}, nil
}

// Renew implements [limit.Limiter]: it makes the leases of all permits with a Max end after lease
// from now, in one script. Without permits it returns nil and asks no server. It waits for the
// server, and repeats a call of unknown outcome, until ctx ends.
//
// Returns [limit.ErrLost], with no lease changed, if the holder does not hold one of the permits.
// Returns [limit.ErrBadPermit] for invalid arguments. After [limit.ErrUnavailable], also returned
// after Close, the leases may be extended or not.
func (l *Limiter) Renew(ctx context.Context, holder string, lease time.Duration, ps ...limit.Permit) error {
	answer, err := l.eval(ctx, "renew", holder, lease, ps)
	if err == nil && answer == 0 {
		err = limit.ErrLost
	}
	return err
}

// Release implements [limit.Limiter]: it removes holder and its weight from the permits that it
// holds. It waits for the server, and repeats a call of unknown outcome, until ctx ends. Returns
// [limit.ErrBadPermit] for invalid arguments. After [limit.ErrUnavailable], also returned after
// Close, the permits may still be held. They become free when the lease ends.
func (l *Limiter) Release(ctx context.Context, holder string, ps ...limit.Permit) error {
	_, err := l.eval(ctx, "release", holder, limit.MinLease, ps)
	return err
}

// Close closes the connections and ends waiting calls. Held permits stay until their leases end. It
// returns ctx's error if ctx ends first. Close is idempotent.
func (l *Limiter) Close(ctx context.Context) error { return l.conn.Close(ctx) }

// eval runs the operation op of the script, "acquire", "renew" or "release", and returns its
// answer. Without permits it returns -1, which means granted, and asks no server. While the outcome
// is unknown, it repeats the call until ctx ends or Close. Repeating is harmless, except that a
// rate may be counted twice.
//
// Returns [limit.ErrBadPermit] for invalid arguments, and [limit.ErrUnavailable] for errors of the
// server.
func (l *Limiter) eval(ctx context.Context, op, holder string, lease time.Duration, ps []limit.Permit) (int64, error) {
	asks, err := limit.Check(holder, lease, ps)
	if err != nil || len(asks) == 0 {
		return -1, err // no permits: granted
	}
	keys, args := make([]string, 0, 3*len(asks)), make([]any, 0, 3+4*len(asks))
	args = append(args, op, holder, lease.Microseconds())
	for _, a := range asks {
		keys = append(keys, l.prefix+"ends:"+a.Key, l.prefix+"weights:"+a.Key, l.prefix+"rate:"+a.Key)
		args = append(args, a.Weight, a.Max, a.Interval, a.Slack)
	}
	for attempt := 0; ; attempt++ {
		v, err := l.conn.Eval(ctx, l.script, keys, args...)
		if err == nil {
			n, ok := v.(int64)
			if !ok {
				return 0, fmt.Errorf("redislimit %s: %w: the answer is a %T", op, limit.ErrUnavailable, v)
			}
			return n, nil
		}
		if !errors.Is(err, redisconn.ErrIndeterminate) || !wake.SleepOr(ctx, l.conn.Done(), l.conn.Backoff().Interval(attempt)) {
			return 0, fmt.Errorf("redislimit %s: %w: %w", op, limit.ErrUnavailable, err)
		}
	}
}
