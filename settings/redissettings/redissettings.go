// Package redissettings stores settings in Redis, for all processes with the same namespace.
//
// # Layout
//
//	swj:settings:{NAMESPACE}           hash: a revision, a blank and the value, by key; under the
//	                                   empty name the newest revision
//	swj:settings:{NAMESPACE}:changed   channel: a message for each change
//
// The hash never expires. It lasts as long as Redis keeps its data: with a persistence of
// everysec, the changes of the last second may be lost with a crash of the server.
package redissettings

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/internal/naming"
	"github.com/swarmiji/swarmiji/internal/redisconn"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/settings"
)

//go:embed settings.lua
var source string

// DefaultNamespace is the namespace if Config.Namespace is "".
const DefaultNamespace = "default"

// maxNamespace is the maximum length of a namespace in bytes, the same for all adapters.
const maxNamespace = 64

// Config configures a [Store]. Only Redis must be set.
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
	// Logger gets warnings about server settings that weaken the guarantees, and about fields of the
	// hash that another program has written. Default: slog.Default().
	Logger *slog.Logger
}

// Store is a [settings.Store] in Redis. Make one with [New]. Safe for concurrent use.
type Store struct {
	conn         *redisconn.Conn
	script, list *redisconn.Script
	key, channel string
	logger       *slog.Logger
}

var _ settings.Store = (*Store)(nil)

// New returns a Store. Its error joins all problems of the configuration. It does no I/O and starts
// nothing.
func New(c Config) (*Store, error) {
	var errs []error
	if c.Namespace == "" {
		c.Namespace = DefaultNamespace
	}
	if !naming.ValidName(c.Namespace) || len(c.Namespace) > maxNamespace || strings.Contains(c.Namespace, ".") {
		errs = append(errs, fmt.Errorf("redissettings: Namespace must be 1 to %d letters, digits, '_' and '-', first a letter or digit", maxNamespace))
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	conn, err := redisconn.New(redisconn.Config{Redis: c.Redis, Logger: c.Logger})
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	key := "swj:settings:{" + c.Namespace + "}"
	return &Store{
		conn: conn, script: redisconn.NewScript(source), list: redisconn.NewScript(`return redis.call('HGETALL', KEYS[1])`),
		key: key, channel: key + ":changed", logger: c.Logger,
	}, nil
}

// Get implements [settings.Store]: it reads a field of the hash. It repeats a call of unknown
// outcome until ctx ends or Close. Returns [settings.ErrNotFound] if the key has no value,
// [settings.ErrBad] for an invalid key or a field that another program has written, otherwise
// [settings.ErrUnavailable].
func (s *Store) Get(ctx context.Context, key string) (settings.Value, error) {
	if err := settings.CheckKey(key); err != nil {
		return settings.Value{}, err
	}
	text, err := s.conn.Do(ctx, "HGET", s.key, key)
	for attempt := 0; s.again(ctx, err, attempt); attempt++ {
		text, err = s.conn.Do(ctx, "HGET", s.key, key)
	}
	switch {
	case errors.Is(err, redis.Nil):
		return settings.Value{}, settings.ErrNotFound
	case err != nil:
		return settings.Value{}, failed("get", err)
	}
	stored, _ := text.(string)
	return value(key, stored)
}

// Put implements [settings.Store]: one script stores data if the present revision is revision,
// notifies the watches and returns the new revision. It repeats a call of unknown outcome until ctx
// ends or Close. Returns [settings.ErrConflict], [settings.ErrFull] or [settings.ErrBad]. After
// [settings.ErrUnavailable] the value may have been stored.
func (s *Store) Put(ctx context.Context, key string, data []byte, revision uint64) (uint64, error) {
	if err := settings.CheckPut(key, data); err != nil {
		return 0, err
	}
	try := func() (uint64, error) { return s.change(ctx, "put", key, revision, data, settings.MaxKeys) }
	return settings.SettlePut(ctx, s, key, data, revision, try, s.repeats(ctx))
}

// Delete implements [settings.Store]: one script deletes the value of key if its revision is
// revision, and notifies the watches. It repeats a call of unknown outcome until ctx ends or Close.
// Returns [settings.ErrConflict] or [settings.ErrBad]. After [settings.ErrUnavailable] the value
// may have been deleted.
func (s *Store) Delete(ctx context.Context, key string, revision uint64) error {
	if err := settings.CheckKey(key); err != nil {
		return err
	}
	try := func() error {
		_, err := s.change(ctx, "delete", key, revision)
		return err
	}
	return settings.SettleDelete(ctx, s, key, try, s.repeats(ctx))
}

// List implements [settings.Store]: it reads all fields of the hash and returns those whose keys
// begin with prefix, sorted by key. It leaves out, and logs, a field that another program has
// written. It repeats a call of unknown outcome until ctx ends or Close. Then it returns
// [settings.ErrUnavailable].
func (s *Store) List(ctx context.Context, prefix string) ([]settings.Value, error) {
	answer, err := s.conn.Eval(ctx, s.list, []string{s.key})
	for attempt := 0; s.again(ctx, err, attempt); attempt++ {
		answer, err = s.conn.Eval(ctx, s.list, []string{s.key})
	}
	if err != nil {
		return nil, failed("list", err)
	}
	fields, _ := answer.([]any)
	stored := make(map[string]string, len(fields)/2)
	for i := 0; i+1 < len(fields); i += 2 {
		key, _ := fields[i].(string)
		stored[key], _ = fields[i+1].(string)
	}
	var all []settings.Value
	for _, key := range slices.Sorted(maps.Keys(stored)) {
		if key == "" || !strings.HasPrefix(key, prefix) {
			continue
		}
		if v, err := value(key, stored[key]); err == nil {
			all = append(all, v)
		} else {
			s.logger.LogAttrs(ctx, slog.LevelWarn, "a setting is left out", slog.Any("error", err))
		}
	}
	return all, nil
}

// Watch implements [settings.Store]: it opens a connection that subscribes to the channel of
// changes, and calls changed for each message and after each subscription. stop closes the
// connection. It does not wait for the server.
func (s *Store) Watch(changed func()) (stop func()) {
	l := s.conn.Listen(redisconn.ListenerConfig{
		Message:    func(string, string) { changed() },
		Subscribed: func(string) { changed() },
	})
	l.Add(s.channel)
	return l.Close
}

// Close implements [settings.Store]: it ends waiting calls and watches and closes the connections.
// Returns ctx's error if ctx ends first.
func (s *Store) Close(ctx context.Context) error { return s.conn.Close(ctx) }

// change runs the operation op of the script, "put" or "delete", once, and returns the new
// revision. more holds the further arguments of the script. Returns [settings.ErrConflict] or
// [settings.ErrFull] as the script decides, otherwise [settings.ErrUnavailable]. It waits for the
// server.
func (s *Store) change(ctx context.Context, op, key string, revision uint64, more ...any) (uint64, error) {
	args := append([]any{op, key, strconv.FormatUint(revision, 10), s.channel}, more...)
	answer, err := s.conn.Eval(ctx, s.script, []string{s.key}, args...)
	if err != nil {
		return 0, failed(op, err)
	}
	switch n, ok := answer.(int64); {
	case !ok:
		return 0, fmt.Errorf("redissettings %s: %w: the answer is a %T", op, settings.ErrUnavailable, answer)
	case n == -1:
		return 0, settings.ErrConflict
	case n == -2:
		return 0, settings.ErrFull
	default:
		return uint64(max(n, 0)), nil
	}
}

// again reports whether a call that returned err must be repeated: its outcome is unknown. Before
// it returns true it waits for the backoff of attempt. It returns false for another error or nil,
// and if ctx or the connection ends first.
func (s *Store) again(ctx context.Context, err error, attempt int) bool {
	return errors.Is(err, redisconn.ErrIndeterminate) && wake.SleepOr(ctx, s.conn.Done(), s.conn.Backoff().Interval(attempt))
}

// repeats returns the method again in the form that [settings.SettlePut] and
// [settings.SettleDelete] take.
func (s *Store) repeats(ctx context.Context) func(error, int) bool {
	return func(err error, attempt int) bool { return s.again(ctx, err, attempt) }
}

// failed wraps err, which must not be nil, with [settings.ErrUnavailable] and op, the name of the
// operation.
func failed(op string, err error) error {
	return fmt.Errorf("redissettings %s: %w: %w", op, settings.ErrUnavailable, err)
}

// value returns the value of key from stored, the content of its field: the revision, a space and
// the data. Returns [settings.ErrBad] if stored has another form or the key is invalid.
func value(key, stored string) (settings.Value, error) {
	number, data, ok := strings.Cut(stored, " ")
	revision, err := strconv.ParseUint(number, 10, 64)
	v := settings.Value{Key: key, Data: []byte(data), Revision: revision}
	if !ok || err != nil || !v.Readable() {
		return settings.Value{}, fmt.Errorf("redissettings: %w: the field %q of the hash was written by another program", settings.ErrBad, key)
	}
	return v, nil
}
