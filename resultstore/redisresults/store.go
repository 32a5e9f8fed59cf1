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
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/internal/crew"
	"github.com/swarmiji/swarmiji/internal/keyset"
	"github.com/swarmiji/swarmiji/internal/redisconn"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

//go:embed save.lua
var saveSource string

// Store keeps records in Redis. Its connections are opened when they are first used. All methods may be called from any
// goroutine; Saves at a time share a trip to the server.
type Store struct {
	cfg    Config
	names  names
	conn   *redisconn.Conn
	script *redisconn.Script
	gather *redisconn.Script
	claims claimScripts
	crew   *crew.Crew  // makes the trips
	closed atomic.Bool // written under mu

	mu      sync.Mutex
	streams map[*stream]struct{}
	savers  map[*redis.Client]*saver // one for each node of a cluster, else one under nil
}

// New checks c and makes a Store. It does no I/O and starts nothing. All problems of c are reported together.
func New(c Config) (*Store, error) {
	c, err := c.complete()
	conn, connErr := redisconn.New(redisconn.Config{Redis: c.Redis, Logger: c.Logger})
	if err = errors.Join(err, connErr); err != nil {
		return nil, err
	}
	c.Redis = nil // it holds a password and is not needed any more
	s := &Store{
		cfg:     c,
		names:   namesOf(c.Namespace),
		conn:    conn,
		script:  redisconn.NewScript(saveSource),
		gather:  redisconn.NewScript(gatherSource),
		claims:  newClaimScripts(),
		crew:    crew.New(),
		streams: make(map[*stream]struct{}),
		savers:  make(map[*redis.Client]*saver),
	}
	return s, nil
}

// Save implements [resultstore.ResultStore]. Besides the port's errors it returns [task.ErrBadID]. After
// [resultstore.ErrUnavailable] the record may have been kept; saving it again is safe. What is under the record's key and
// is none is left alone: [resultstore.ErrMalformed].
func (s *Store) Save(ctx context.Context, r resultstore.Record) error {
	if err := s.check(ctx, r.ID); err != nil {
		return err
	}
	if !r.State.Recorded() {
		return fmt.Errorf("%w: state %q is not recorded", resultstore.ErrMalformed, utf.Cut(string(r.State), 32))
	}
	if len(r.Result) > s.cfg.MaxResult {
		return fmt.Errorf("%w: a result of %d bytes, at most %d are kept", resultstore.ErrTooLarge, len(r.Result), s.cfg.MaxResult)
	}
	value, err := encode(&r)
	if err != nil {
		return err
	}
	if len(value) > s.cfg.MaxResult+maxRest {
		return fmt.Errorf("%w: %d bytes, at most %d", resultstore.ErrTooLarge, len(value), s.cfg.MaxResult+maxRest)
	}
	v := &save{key: s.names.key(r.ID), value: value, ttl: millis(r.TTL, s.cfg.TTL), answer: make(chan error, 1)}
	// A name that is none cannot be listened to, and need not become a channel's.
	if r.State.Terminal() && keyset.ValidName(r.ReplyTo) {
		v.channel = s.names.channel(r.ReplyTo)
		if len(value) > s.cfg.MaxNotice {
			v.note = notice(r.ID)
		}
	}
	return failure("save", s.save(ctx, v))
}

// millis is how long a record is kept, rounded up, so that it never ends early.
func millis(ttl, otherwise time.Duration) int64 {
	if ttl <= 0 {
		ttl = otherwise
	}
	ms := ttl.Milliseconds()
	if ttl%time.Millisecond > 0 {
		ms++
	}
	return ms
}

// Load implements [resultstore.ResultStore].
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

// Delete implements [resultstore.ResultStore].
func (s *Store) Delete(ctx context.Context, id task.ID) error {
	if err := s.check(ctx, id); err != nil {
		return err
	}
	_, err := s.untilAnswered(ctx, func() (any, error) { return s.conn.Do(ctx, "DEL", s.names.key(id)) })
	return failure("delete", err)
}

func (s *Store) check(ctx context.Context, id task.ID) error {
	if s.closed.Load() {
		return resultstore.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return id.Check()
}

// Close implements [resultstore.ResultStore]: it ends all streams, waits until records under way are answered, and closes
// the connections. When ctx ends first the connections are cut and the error is ctx's.
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
	s.crew.Close()
	return errors.Join(err, failure("close", s.conn.Close(ctx)))
}

// failure puts the port's class beside a connection's error.
func failure(what string, err error) error {
	var class error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, resultstore.ErrStale), errors.Is(err, resultstore.ErrMalformed), errors.Is(err, resultstore.ErrClosed):
		return fmt.Errorf("redis %s: %w", what, err)
	case errors.Is(err, redisconn.ErrUnavailable): // the reason beside it may be that a connection was closed, which is not for good
		class = resultstore.ErrUnavailable
	case errors.Is(err, redisconn.ErrClosed):
		class = resultstore.ErrClosed
	default: // also when the record may have been kept: saving it again is safe
		class = resultstore.ErrUnavailable
	}
	return fmt.Errorf("redis %s: %w: %w", what, class, err)
}

var (
	_ resultstore.ResultStore = (*Store)(nil)
	_ resultstore.Notifier    = (*Store)(nil)
)
