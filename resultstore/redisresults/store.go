package redisresults

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/internal/gopool"
	"github.com/swarmiji/swarmiji/internal/naming"
	"github.com/swarmiji/swarmiji/internal/redisconn"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

//go:embed save.lua
var saveSource string

// Store keeps records in Redis. It opens connections at their first use. Concurrent Saves share a
// round trip to the server. All methods are safe for concurrent use.
type Store struct {
	cfg        Config
	names      names
	conn       *redisconn.Conn
	script     *redisconn.Script
	gather     *redisconn.Script
	checkpoint *redisconn.Script
	claims     claimScripts
	goroutines *gopool.Pool // goroutines that send batches of records
	closed     atomic.Bool  // written under mu

	mu      sync.Mutex
	streams map[*stream]struct{}
	savers  map[*redis.Client]*saver // one for each node of a cluster, or one under nil
}

// New checks c and makes a Store. It does no I/O and starts no goroutine. It returns all problems
// of c in one error.
func New(c Config) (*Store, error) {
	c, err := c.complete()
	conn, connErr := redisconn.New(redisconn.Config{Redis: c.Redis, Logger: c.Logger})
	if err = errors.Join(err, connErr); err != nil {
		return nil, err
	}
	c.Redis = nil // it holds a password and is not needed any more
	s := &Store{
		cfg:        c,
		names:      namesOf(c.Namespace),
		conn:       conn,
		script:     redisconn.NewScript(saveSource),
		gather:     redisconn.NewScript(gatherSource),
		checkpoint: redisconn.NewScript(checkpointSource),
		claims:     newClaimScripts(),
		goroutines: gopool.New(),
		streams:    make(map[*stream]struct{}),
		savers:     make(map[*redis.Client]*saver),
	}
	return s, nil
}

// Save implements [resultstore.ResultStore]: it stores r and notifies its submitter if r is
// terminal and its ReplyTo is a valid name. It waits for the server. While the outcome is unknown
// it repeats the call, until ctx ends; then it returns [resultstore.ErrUnavailable], and the record
// may have been stored. Saving it again is safe.
//
// It also returns:
//
//   - [resultstore.ErrStale] if the stored record is newer, or final and different and r does not
//     reopen it
//   - [task.ErrBadID] for an invalid ID
//   - [resultstore.ErrMalformed] for a state that is not recorded, a record that cannot be encoded,
//     or if the key holds a value that is not a record, which stays
//   - [resultstore.ErrTooLarge] for a record above the limits of Config.MaxResult
//   - ErrClosed after Close, and ctx's error if ctx has already ended
func (s *Store) Save(ctx context.Context, r resultstore.Record) error {
	v, err := s.newSave(ctx, &r)
	if err != nil {
		return err
	}
	return failure("save", s.save(ctx, v))
}

// SaveBatch implements [resultstore.BatchSaver]. The records share round trips with each other and
// with concurrent Saves. On a cluster each server has its own round trips. Its errors are those of
// Save.
func (s *Store) SaveBatch(ctx context.Context, rs []resultstore.Record) []error {
	errs, saves := make([]error, len(rs)), make([]*save, len(rs))
	for i := range rs {
		saves[i], errs[i] = s.newSave(ctx, &rs[i])
	}
	s.saveEach(ctx, saves, errs)
	return errs
}

// newSave returns r as a record to send. Its errors are those of Save before anything is sent.
func (s *Store) newSave(ctx context.Context, r *resultstore.Record) (*save, error) {
	if err := s.check(ctx, r.ID); err != nil {
		return nil, err
	}
	if !r.State.Recorded() {
		return nil, fmt.Errorf("%w: state %q is not recorded", resultstore.ErrMalformed, utf.Cut(string(r.State), 32))
	}
	if len(r.Result) > s.cfg.MaxResult {
		return nil, fmt.Errorf("%w: the result has %d bytes, more than the MaxResult of %d", resultstore.ErrTooLarge, len(r.Result), s.cfg.MaxResult)
	}
	value, err := encode(r)
	if err != nil {
		return nil, err
	}
	if len(value) > s.cfg.MaxResult+maxRest {
		return nil, fmt.Errorf("%w: the record has %d bytes, at most %d are allowed", resultstore.ErrTooLarge, len(value), s.cfg.MaxResult+maxRest)
	}
	v := &save{key: s.names.key(r.ID), value: value, ttl: redisconn.Expiry(r.TTL, s.cfg.TTL)}
	if r.DropCheckpoints {
		v.drop = s.names.checkpoints(r.ID)
	}
	// A ReplyTo that is not a valid name has no listener, and must not become part of a channel.
	if r.State.Terminal() && naming.ValidName(r.ReplyTo) {
		v.channel = s.names.channel(r.ReplyTo)
		if len(value) > s.cfg.MaxNotice {
			v.note = notice(r.ID)
		}
	}
	return v, nil
}

// Load implements [resultstore.ResultStore]: it reads the record of task id. Returns ErrNotFound if
// no record exists or it has expired, and ErrMalformed if the stored value is not its record.
//
// Returns task.ErrBadID for an invalid id, ErrClosed after Close, and ctx's error if ctx has
// already ended. While the outcome is unknown or the server cannot be reached it repeats the call,
// until ctx ends. Then, and after any other refusal of the server, it returns ErrUnavailable.
func (s *Store) Load(ctx context.Context, id task.ID) (resultstore.Record, error) {
	if err := s.check(ctx, id); err != nil {
		return resultstore.Record{}, err
	}
	v, err := s.untilAnswered(ctx, func() (any, error) { return s.conn.Do(ctx, "GET", s.names.key(id)) })
	switch {
	case errors.Is(err, redis.Nil):
		return resultstore.Record{}, resultstore.ErrNotFound
	case redis.HasErrorPrefix(err, "WRONGTYPE"):
		return resultstore.Record{}, failure("load", errNoRecord)
	case err != nil:
		return resultstore.Record{}, failure("load", err)
	}
	value, _ := v.(string)
	return decode([]byte(value), id)
}

// Delete implements [resultstore.ResultStore]: it removes the record and the checkpoints of task
// id. Returns nil if no record exists.
//
// Returns task.ErrBadID for an invalid id, ErrClosed after Close, and ctx's error if ctx has
// already ended. While the outcome is unknown or the server cannot be reached it repeats the call,
// until ctx ends. Then, and after a refusal of the server, it returns ErrUnavailable.
func (s *Store) Delete(ctx context.Context, id task.ID) error {
	if err := s.check(ctx, id); err != nil {
		return err
	}
	_, err := s.untilAnswered(ctx, func() (any, error) { return s.conn.Do(ctx, "DEL", s.names.key(id), s.names.checkpoints(id)) })
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

// Close implements [resultstore.ResultStore]. It ends all streams, waits for running Saves and
// closes the connections. If ctx ends first it cuts the connections and returns ctx's error. It
// takes s.mu, but not while it waits.
func (s *Store) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed.Store(true)
	open := slices.Collect(maps.Keys(s.streams))
	savers := slices.Collect(maps.Values(s.savers))
	s.mu.Unlock()
	for _, n := range open {
		n.end()
	}
	var err error
	for _, v := range savers {
		if waitErr := v.close(ctx); waitErr != nil {
			err = waitErr
		}
	}
	s.goroutines.Close()
	return errors.Join(err, failure("close", s.conn.Close(ctx)))
}

// failure wraps err with the matching error of the port and the name of the operation. Sentinels
// of the port stay, ErrClosed of the connection becomes that of the port, and any other error
// becomes ErrUnavailable. It returns nil for nil.
func failure(what string, err error) error {
	var class error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, resultstore.ErrStale), errors.Is(err, resultstore.ErrMalformed), errors.Is(err, resultstore.ErrClosed):
		return fmt.Errorf("redis %s: %w", what, err)
	// its cause may be ErrClosed of one connection, which is replaced
	case errors.Is(err, redisconn.ErrUnavailable):
		class = resultstore.ErrUnavailable
	case errors.Is(err, redisconn.ErrClosed):
		class = resultstore.ErrClosed
	default: // the record may have been stored; saving it again is safe
		class = resultstore.ErrUnavailable
	}
	return fmt.Errorf("redis %s: %w: %w", what, class, err)
}

var (
	_ resultstore.ResultStore = (*Store)(nil)
	_ resultstore.BatchSaver  = (*Store)(nil)
	_ resultstore.Notifier    = (*Store)(nil)
)
