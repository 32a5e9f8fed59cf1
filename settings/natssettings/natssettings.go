// Package natssettings stores settings in a key-value bucket of NATS JetStream, for all processes
// with the same namespace. The bucket is "swj_settings_NAMESPACE", with one message for each key.
// A '.' of a key is written "=2E". Any client for key-value buckets can read it.
//
// A deletion leaves a marker of a few bytes.
package natssettings

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/swarmiji/swarmiji/connect/natsconnect"
	"github.com/swarmiji/swarmiji/internal/naming"
	"github.com/swarmiji/swarmiji/internal/natsconn"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/settings"
	"github.com/swarmiji/swarmiji/task"
)

// DefaultNamespace is the namespace if Config.Namespace is "".
const DefaultNamespace = "default"

const (
	// maxNamespace is the maximum length of a namespace in bytes, the same for all adapters.
	maxNamespace = 64
	maxReplicas  = 5
)

// Config configures a [Store]. Only Connect must be set.
type Config struct {
	// Connect holds the addresses and the connection settings of the NATS servers.
	Connect natsconnect.Config
	// Namespace is part of the bucket's name: 1 to 64 letters, digits, '_' and '-', the first a
	// letter or a digit. All processes must use the same one. Default: [DefaultNamespace], "default".
	Namespace string
	// Replicas is the number of servers of a cluster that store the bucket, 1 to 5. It is used only
	// when this store creates the bucket. Default: 1.
	Replicas int
	// Logger gets a warning if TLS certificates are not verified. Default: slog.Default().
	Logger *slog.Logger
}

// Store is a [settings.Store] in NATS. Make one with [New]. Safe for concurrent use.
type Store struct {
	conn    *natsconn.Conn
	bucket  jetstream.KeyValueConfig
	backoff task.Backoff
	life    context.Context // ends with Close
	end     context.CancelFunc
	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup // watches
}

var _ settings.Store = (*Store)(nil)

// New returns a Store. It does not connect and creates no bucket: the first call does so. Its error
// joins all problems of the configuration.
func New(c Config) (*Store, error) {
	c.Namespace = cmp.Or(c.Namespace, DefaultNamespace)
	var errs []error
	if !naming.ValidName(c.Namespace) || len(c.Namespace) > maxNamespace || strings.Contains(c.Namespace, ".") {
		errs = append(errs, fmt.Errorf("natssettings: Namespace must be 1 to %d letters, digits, '_' and '-', first a letter or digit", maxNamespace))
	}
	if c.Replicas < 0 || c.Replicas > maxReplicas {
		errs = append(errs, fmt.Errorf("natssettings: Replicas must be 0 to %d", maxReplicas))
	}
	conn, err := natsconn.New(c.Connect, "settings "+c.Namespace, c.Logger)
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	s := &Store{conn: conn, backoff: c.Connect.Backoff, bucket: jetstream.KeyValueConfig{
		Bucket: "swj_settings_" + c.Namespace, Description: "settings of a swarm", History: 1, Storage: jetstream.FileStorage, Replicas: max(c.Replicas, 1),
		MaxValueSize: settings.MaxData + 1024, // and the header
	}}
	s.life, s.end = context.WithCancel(context.Background())
	return s, nil
}

// Get implements [settings.Store]: it reads the value of key from the bucket, which it creates if
// it does not exist. It repeats a request that the server did not answer, until ctx ends or Close.
// Returns [settings.ErrNotFound] if the key has no value, [settings.ErrBad] for an invalid key,
// otherwise [settings.ErrUnavailable].
func (s *Store) Get(ctx context.Context, key string) (settings.Value, error) {
	if err := settings.CheckKey(key); err != nil {
		return settings.Value{}, err
	}
	var found jetstream.KeyValueEntry
	err := s.read(ctx, "get", func(ctx context.Context, kv jetstream.KeyValue) (err error) {
		found, err = kv.Get(ctx, encoded(key))
		return err
	})
	if err != nil {
		return settings.Value{}, err
	}
	return settings.Value{Key: key, Data: slices.Clone(found.Value()), Revision: found.Revision()}, nil
}

// List implements [settings.Store]: it reads all values of the bucket and returns those whose keys
// begin with prefix, sorted by key. It leaves out entries that another program has written. It
// repeats a request that the server did not answer, until ctx ends or Close. Then it returns
// [settings.ErrUnavailable].
func (s *Store) List(ctx context.Context, prefix string) ([]settings.Value, error) {
	var all []settings.Value
	err := s.read(ctx, "list", func(ctx context.Context, kv jetstream.KeyValue) error {
		w, err := kv.WatchAll(ctx, jetstream.IgnoreDeletes())
		if err != nil {
			return err
		}
		defer func() { _ = w.Stop() }() // the server ends it with the session otherwise
		all = nil
		for {
			select {
			case e, ok := <-w.Updates():
				switch {
				case !ok:
					return natsconn.ErrIndeterminate
				case e == nil: // all present values were sent
					return nil
				}
				v := settings.Value{Key: decoded(e.Key()), Data: slices.Clone(e.Value()), Revision: e.Revision()}
				if strings.HasPrefix(v.Key, prefix) && v.Readable() && encoded(v.Key) == e.Key() {
					all = append(all, v)
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b settings.Value) int { return cmp.Compare(a.Key, b.Key) })
	return all, nil
}

// Put implements [settings.Store]: it stores data if the present revision is revision, and returns
// the new one. It repeats a request of unknown outcome until ctx ends or Close. Returns
// [settings.ErrConflict], [settings.ErrFull] or [settings.ErrBad]. After [settings.ErrUnavailable]
// the value may have been stored.
func (s *Store) Put(ctx context.Context, key string, data []byte, revision uint64) (uint64, error) {
	if err := settings.CheckPut(key, data); err != nil {
		return 0, err
	}
	try := func() (number uint64, err error) {
		err = s.do(ctx, func(ctx context.Context, kv jetstream.KeyValue) error {
			if revision != 0 {
				number, err = kv.Update(ctx, encoded(key), data, revision)
				return err
			}
			if err := s.room(ctx, kv); err != nil {
				return err
			}
			number, err = kv.Create(ctx, encoded(key), data)
			return err
		})
		return number, s.wrap("put", err)
	}
	return settings.SettlePut(ctx, s, key, data, revision, try, s.repeats(ctx))
}

// Delete implements [settings.Store]: it purges the value of key if its revision is revision. It
// repeats a request of unknown outcome until ctx ends or Close. Returns [settings.ErrConflict],
// also for revision 0, or [settings.ErrBad]. After [settings.ErrUnavailable] the value may have
// been deleted.
func (s *Store) Delete(ctx context.Context, key string, revision uint64) error {
	if err := settings.CheckKey(key); err != nil {
		return err
	}
	if revision == 0 {
		return settings.ErrConflict
	}
	try := func() error {
		return s.wrap("delete", s.do(ctx, func(ctx context.Context, kv jetstream.KeyValue) error {
			// a marker also has a revision, which no value may have
			if _, err := kv.Get(ctx, encoded(key)); errors.Is(err, jetstream.ErrKeyNotFound) {
				return settings.ErrConflict
			} else if err != nil {
				return err
			}
			return kv.Purge(ctx, encoded(key), jetstream.LastRevision(revision))
		}))
	}
	return settings.SettleDelete(ctx, s, key, try, s.repeats(ctx))
}

// Watch implements [settings.Store]: it starts a goroutine that calls changed after each change and
// each reconnect, until stop or Close. The goroutine has a consumer on the server. After Close it
// starts nothing. It takes s.mu.
func (s *Store) Watch(changed func()) (stop func()) {
	ctx, cancel := context.WithCancel(s.life)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return cancel
	}
	s.running.Go(func() {
		for attempt := 0; ctx.Err() == nil; attempt++ {
			began := time.Now()
			_ = s.do(ctx, func(ctx context.Context, kv jetstream.KeyValue) error { return watch(ctx, kv, changed) })
			if time.Since(began) > time.Minute {
				attempt = 0
			}
			wake.Sleep(ctx, s.backoff.Interval(min(attempt, 4)))
		}
	})
	return cancel
}

// watch calls changed now and for each change of the bucket. It blocks until the consumer ends or
// ctx ends. It always returns an error: that of the client library, ErrIndeterminate or ctx's
// error.
func watch(ctx context.Context, kv jetstream.KeyValue, changed func()) error {
	w, err := kv.WatchAll(ctx, jetstream.UpdatesOnly(), jetstream.MetaOnly())
	if err != nil {
		return err
	}
	defer func() { _ = w.Stop() }() // the server ends it with the session otherwise
	changed()                       // for changes before the watch began
	for {
		select {
		case _, ok := <-w.Updates():
			if !ok {
				return natsconn.ErrIndeterminate
			}
			changed()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close implements [settings.Store]: it ends waiting calls and watches and closes the connection.
// It waits for the goroutines of the watches. Returns ctx's error if ctx ends first. It takes s.mu,
// but not while it waits.
func (s *Store) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end()
	err := s.conn.Close(ctx)
	s.running.Wait() // Close of the connection has ended their requests
	return err
}

// room returns nil if the bucket has space for another key, otherwise [settings.ErrFull]. Markers
// of deleted keys count; if the bucket seems full, room purges them and counts again. It returns
// other errors of the server.
func (s *Store) room(ctx context.Context, kv jetstream.KeyValue) error {
	st, err := kv.Status(ctx)
	if err != nil {
		return err
	}
	if st.Values() >= settings.MaxKeys {
		if err := kv.PurgeDeletes(ctx, jetstream.DeleteMarkersOlderThan(-1)); err != nil {
			return err
		}
		if st, err = kv.Status(ctx); err == nil && st.Values() >= settings.MaxKeys {
			err = settings.ErrFull
		}
	}
	return err
}

// do calls fn once with the bucket, which it creates if it does not exist. It waits for a
// connection until ctx ends. Returns the errors of the connection, of the server and of fn.
func (s *Store) do(ctx context.Context, fn func(ctx context.Context, kv jetstream.KeyValue) error) error {
	return s.conn.Do(ctx, func(ctx context.Context, sess *natsconn.Session) error {
		kv, err := sess.JetStream.KeyValue(ctx, s.bucket.Bucket)
		if errors.Is(err, jetstream.ErrBucketNotFound) {
			if kv, err = sess.JetStream.CreateKeyValue(ctx, s.bucket); errors.Is(err, jetstream.ErrBucketExists) {
				kv, err = sess.JetStream.KeyValue(ctx, s.bucket.Bucket) // created by another process
			}
		}
		if err != nil {
			return err
		}
		return fn(ctx, kv)
	})
}

// read calls do with fn, and repeats that after a lost connection or answer, until ctx ends or
// Close. fn may run several times. Returns the errors of wrap, with op as the name of the
// operation.
func (s *Store) read(ctx context.Context, op string, fn func(ctx context.Context, kv jetstream.KeyValue) error) error {
	err := s.wrap(op, s.do(ctx, fn))
	for attempt, again := 0, s.repeats(ctx); again(err, attempt); attempt++ {
		err = s.wrap(op, s.do(ctx, fn))
	}
	return err
}

// repeats returns a function for [settings.SettlePut]. For an error after which the outcome is
// unknown, or if the server could not be reached, the function waits and returns true. It returns
// false for another error, and if ctx or the store ends first.
func (s *Store) repeats(ctx context.Context) func(error, int) bool {
	return func(err error, attempt int) bool {
		return (errors.Is(err, natsconn.ErrIndeterminate) || errors.Is(err, natsconn.ErrUnavailable)) &&
			wake.SleepOr(ctx, s.life.Done(), s.backoff.Interval(attempt))
	}
}

// wrap returns err with the matching error of package settings: ErrFull, ErrConflict or
// ErrNotFound, otherwise ErrUnavailable with op, the name of the operation. It returns nil for nil.
func (s *Store) wrap(op string, err error) error {
	switch {
	case err == nil, errors.Is(err, settings.ErrFull), errors.Is(err, settings.ErrConflict):
		return err
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return settings.ErrNotFound
	case errors.Is(err, jetstream.ErrKeyExists), errors.Is(err, natsconn.ErrWrongSequence):
		return settings.ErrConflict
	}
	return fmt.Errorf("natssettings %s: %w: %w", op, settings.ErrUnavailable, err)
}

// encoded returns the key of the bucket for a key of a store. It writes '.' as "=2E", because '.'
// separates the tokens of a subject and no token may be empty.
func encoded(key string) string { return strings.ReplaceAll(key, ".", "=2E") }

// decoded returns the key of a store for a key of the bucket: it writes "=2E" as '.'.
func decoded(key string) string { return strings.ReplaceAll(key, "=2E", ".") }
