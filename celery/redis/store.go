package redis

import (
	"context"
	"crypto/sha1" //nolint:gosec // as Redis computes it, to compare documents; not for security
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	goredis "github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/celery/wire"
	"github.com/swarmiji/swarmiji/internal/redisconn"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

//go:embed save.lua
var saveSource string

// Store keeps records in Redis as documents of Celery. It opens connections at their first use. All
// methods are safe for concurrent use.
type Store struct {
	cfg    Config
	conn   *redisconn.Conn
	save   *redisconn.Script
	arrive *redisconn.Script
	group  *redisconn.Script
	begin  *redisconn.Script
	size   *redisconn.Script
	closed atomic.Bool // written under mu

	mu      sync.Mutex
	streams map[*stream]struct{}
	failed  map[task.ID]struct{} // members of chords that failed, as Members returned them
}

// New checks c and makes a Store. It does no I/O and starts no goroutine. It returns all problems
// of c in one error.
func New(c Config) (*Store, error) {
	c, err := c.complete()
	options, optionsErr := c.options()
	if err = errors.Join(err, optionsErr); err != nil {
		return nil, err
	}
	conn, err := redisconn.New(redisconn.Config{Redis: options, Logger: c.Logger})
	if err != nil {
		return nil, err
	}
	c.URL, c.TLS = "", nil // they may hold a password and are not needed any more
	return &Store{
		cfg: c, conn: conn, streams: make(map[*stream]struct{}), failed: make(map[task.ID]struct{}),
		save: redisconn.NewScript(saveSource), arrive: redisconn.NewScript(arriveSource),
		group: redisconn.NewScript(groupSource), begin: redisconn.NewScript(beginSource),
		size: redisconn.NewScript(sizeSource),
	}, nil
}

// key returns the key of a task's document, which is also the name of its channel.
func (s *Store) key(id task.ID) string { return s.cfg.KeyPrefix + "celery-task-meta-" + string(id) }

// Save implements [resultstore.ResultStore]: it stores r as a document of Celery and sends it to
// the channel of its task. It replaces a document only if that is the one it has compared with r,
// so it repeats if another program stores one meanwhile. While the outcome is unknown it repeats
// the call, until ctx ends; then it returns [resultstore.ErrUnavailable].
//
// It also returns:
//
//   - [resultstore.ErrStale] if the stored record is newer, or final and different and r does not
//     reopen it. Documents of Python are the oldest.
//   - [task.ErrBadID] for an invalid ID
//   - [resultstore.ErrMalformed] for a state that is not recorded, a record that cannot be encoded,
//     or if the key holds a value that is not a document, which stays
//   - [resultstore.ErrTooLarge] for a Result above Config.MaxResult
//   - ErrClosed after Close, and ctx's error if ctx has already ended
func (s *Store) Save(ctx context.Context, r resultstore.Record) error {
	if err := s.check(ctx, r.ID); err != nil {
		return err
	}
	if !r.State.Recorded() {
		return fmt.Errorf("%w: state %q is not recorded", resultstore.ErrMalformed, utf.Cut(string(r.State), 32))
	}
	if len(r.Result) > s.cfg.MaxResult {
		return fmt.Errorf("%w: the result has %d bytes, more than the MaxResult of %d", resultstore.ErrTooLarge, len(r.Result), s.cfg.MaxResult)
	}
	encode := wire.EncodeResult
	if r.Error != nil && s.failedMember(r.Error.StepID) {
		encode = wire.EncodeChordFailure
	}
	doc, err := encode(&r, s.cfg.content())
	if err != nil {
		return err
	}
	seen := ""
	for {
		answer, err := s.untilAnswered(ctx, func() (any, error) {
			return s.conn.Eval(ctx, s.save, []string{s.key(r.ID)}, doc, redisconn.Expiry(r.TTL, s.cfg.TTL), seen)
		})
		switch {
		case goredis.HasErrorPrefix(err, "WRONGTYPE"):
			return failure("save", errNoRecord)
		case err != nil:
			return failure("save", err)
		}
		stored, ok := answer.(string)
		if !ok { // 1: it is stored
			return nil
		}
		if done, err := compare(stored, &r); done || err != nil {
			return err
		}
		sum := sha1.Sum([]byte(stored)) //nolint:gosec // see above
		seen = hex.EncodeToString(sum[:])
	}
}

// errNoRecord is the error for a key with another value.
var errNoRecord = fmt.Errorf("%w: the key holds a value that is not a document of Celery", resultstore.ErrMalformed)

// compare decides whether r may replace a stored document. done is true if the same final record is
// stored. Returns ErrStale if r must not replace it, and errNoRecord if it is not a document.
func compare(stored string, r *resultstore.Record) (done bool, err error) {
	old, _, err := wire.DecodeResult([]byte(stored))
	if err != nil || old.ID != r.ID {
		return false, failure("save", errNoRecord)
	}
	switch {
	case r.Older(&old):
		return false, failure("save", resultstore.ErrStale)
	case !old.State.Terminal(), r.Reopens(&old):
		return false, nil
	case !old.Older(r) && old.State == r.State:
		return true, nil
	}
	return false, failure("save", resultstore.ErrStale)
}

// Load implements [resultstore.ResultStore]: it reads the record of task id. Returns ErrNotFound if
// no document exists or it has expired, and ErrMalformed if the stored value is not its document.
//
// Returns task.ErrBadID for an invalid id, ErrClosed after Close, and ctx's error if ctx has
// already ended. While the server cannot be reached it repeats the call, until ctx ends. Then, and
// after any other refusal of the server, it returns ErrUnavailable.
func (s *Store) Load(ctx context.Context, id task.ID) (resultstore.Record, error) {
	if err := s.check(ctx, id); err != nil {
		return resultstore.Record{}, err
	}
	v, err := s.untilAnswered(ctx, func() (any, error) { return s.conn.Do(ctx, "GET", s.key(id)) })
	switch {
	case errors.Is(err, goredis.Nil):
		return resultstore.Record{}, resultstore.ErrNotFound
	case goredis.HasErrorPrefix(err, "WRONGTYPE"):
		return resultstore.Record{}, failure("load", errNoRecord)
	case err != nil:
		return resultstore.Record{}, failure("load", err)
	}
	value, _ := v.(string)
	r, _, err := wire.DecodeResult([]byte(value))
	if err == nil && r.ID != id {
		err = errNoRecord
	}
	if err != nil {
		return resultstore.Record{}, failure("load", err)
	}
	return r, nil
}

// Delete implements [resultstore.ResultStore]: it removes the document of task id. Returns nil if
// it does not exist. Its other errors are those of Load.
func (s *Store) Delete(ctx context.Context, id task.ID) error {
	if err := s.check(ctx, id); err != nil {
		return err
	}
	_, err := s.untilAnswered(ctx, func() (any, error) { return s.conn.Do(ctx, "DEL", s.key(id)) })
	return failure("delete", err)
}

// check returns ErrClosed after Close, ctx's error if ctx has ended, or [task.ErrBadID] if id is
// invalid.
func (s *Store) check(ctx context.Context, id task.ID) error {
	if s.closed.Load() {
		return resultstore.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return id.Check()
}

// untilAnswered calls call again while its outcome is unknown, with a growing delay between calls.
// When ctx ends or the store is closed it returns the last error. Only calls that may safely
// execute twice are allowed.
func (s *Store) untilAnswered(ctx context.Context, call func() (any, error)) (any, error) {
	for attempt := 0; ; attempt++ {
		v, err := call()
		if !errors.Is(err, redisconn.ErrIndeterminate) {
			return v, err
		}
		if !wake.SleepOr(ctx, s.conn.Done(), s.conn.Backoff().Interval(attempt)) {
			return nil, err
		}
	}
}

// Close implements [resultstore.ResultStore]. It ends all streams and closes the connections. If
// ctx ends first it cuts the connections and returns ctx's error. It takes s.mu, but not while it
// waits.
func (s *Store) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed.Store(true)
	open := slices.Collect(maps.Keys(s.streams))
	s.mu.Unlock()
	for _, n := range open {
		n.end()
	}
	return failure("close", s.conn.Close(ctx))
}

// failure wraps err with the matching error of the port and the name of the operation. Sentinels of
// the port stay. ErrClosed of the connection becomes that of the port, and any other error becomes
// ErrUnavailable. It returns nil for nil.
func failure(what string, err error) error {
	class := resultstore.ErrUnavailable
	switch {
	case err == nil:
		return nil
	case errors.Is(err, resultstore.ErrStale), errors.Is(err, resultstore.ErrMalformed), errors.Is(err, resultstore.ErrClosed):
		return fmt.Errorf("celery/redis %s: %w", what, err)
	// its cause may be ErrClosed of one connection, which is replaced
	case errors.Is(err, redisconn.ErrUnavailable):
	case errors.Is(err, redisconn.ErrClosed):
		class = resultstore.ErrClosed
	}
	return fmt.Errorf("celery/redis %s: %w: %w", what, class, err)
}

var _ resultstore.ResultStore = (*Store)(nil)
