package sqlresults

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/internal/keyset"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

//go:embed migrations
var migrations embed.FS

// Store keeps records in a database, which is opened when it is first used. Make one with [New], and end it with Close. All methods
// may be called from any goroutine.
type Store struct {
	cfg     Config
	conn    *sqlconn.Conn
	release func(ctx context.Context) error // of conn
	text    *texts
	batch   int64           // rows that a sweep deletes at once
	life    context.Context // ends with Close
	end     context.CancelFunc

	migrated atomic.Bool
	swept    atomic.Int64 // when the last sweep began, in nanoseconds since 1970
	sweeping sync.WaitGroup

	mu      sync.Mutex // life ends under it
	streams map[*stream]struct{}
}

var (
	_ resultstore.ResultStore = (*Store)(nil)
	_ resultstore.Notifier    = (*Store)(nil)
	_ resultstore.Gatherer    = (*Store)(nil)
)

// New checks c and makes a Store. It does no I/O and starts nothing. All problems of c are reported together.
func New(c Config) (*Store, error) {
	c, err := c.complete()
	conn, connErr := sqlconn.New(c.connection())
	if connErr != nil {
		connErr = fmt.Errorf("sqlresults: %w", connErr)
	}
	if err = errors.Join(err, connErr); err != nil {
		return nil, err
	}
	c.URL, c.TLS = "", nil // they may hold secrets, and are not needed any more
	return newStore(c, conn, conn.Close), nil
}

// newStore makes a Store of a complete configuration.
func newStore(c Config, conn *sqlconn.Conn, release func(context.Context) error) *Store {
	s := &Store{cfg: c, conn: conn, release: release, text: newTexts(conn.Dialect()), batch: sweepBatch, streams: make(map[*stream]struct{})}
	s.life, s.end = context.WithCancel(context.Background())
	return s
}

// Save implements [resultstore.ResultStore]. Besides the port's errors it returns [task.ErrBadID]. After
// [resultstore.ErrUnavailable] the record may have been kept; saving it again is safe.
func (s *Store) Save(ctx context.Context, r resultstore.Record) error {
	if err := s.check(ctx, r.ID); err != nil {
		return err
	}
	if !r.State.Recorded() {
		return fmt.Errorf("%w: state %q is not recorded", resultstore.ErrMalformed, utf.Cut(string(r.State), 32))
	}
	value, err := s.encode(&r)
	if err != nil {
		return err
	}
	final, node, topic := 0, any(nil), ""
	if r.State.Terminal() {
		final = 1
		if keyset.ValidName(r.ReplyTo) { // a name that is none cannot be listened to
			node, topic = r.ReplyTo, s.topic(r.ReplyTo)
		}
	}
	args := []any{
		s.cfg.Namespace, string(r.ID), r.Generation, r.Deliveries, string(r.State), final, node, micros(r.TTL, s.cfg.TTL), value,
	}
	defer s.sweepSoon()
	return s.repeat(ctx, "save", func() error { return s.save(ctx, &r, topic, args) })
}

// save keeps a record unless what is kept of its task forbids that. Between the statement that finds so and the one that
// looks why, the reason can go away: then it begins anew.
func (s *Store) save(ctx context.Context, r *resultstore.Record, topic string, args []any) error {
	for {
		kept, err := s.change(ctx, s.text.save, topic, args...)
		if err != nil || kept {
			return err
		}
		again, err := s.judge(ctx, r)
		if err != nil {
			return err
		}
		if !again {
			return s.tell(ctx, topic)
		}
	}
}

// tell wakes the streams of a topic for a record that is there already: it may be this call that has saved it, without an answer,
// and then nobody was told.
func (s *Store) tell(ctx context.Context, topic string) error {
	if topic == "" {
		return nil
	}
	return s.conn.Update(ctx, func(_ context.Context, tx *sqlconn.Tx) error {
		tx.Notify(topic)
		return nil
	})
}

// change runs one statement that writes, and reports whether it changed a row. The topic is told then.
func (s *Store) change(ctx context.Context, text, topic string, args ...any) (changed bool, err error) {
	err = s.conn.Single(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
		n, err := tx.Exec(ctx, text, args...)
		if changed = n > 0; changed && topic != "" {
			tx.Notify(topic)
		}
		return err
	})
	return changed, err
}

// judge says why r was not kept: nil for the same final record, or the port's error. again: there is no reason any more.
func (s *Store) judge(ctx context.Context, r *resultstore.Record) (again bool, err error) {
	err = s.conn.View(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
		again = false
		var old resultstore.Record
		var state string
		var final int
		err := tx.Row(ctx, s.text.token, s.cfg.Namespace, string(r.ID)).Scan(&old.Generation, &old.Deliveries, &state, &final)
		switch {
		case errors.Is(err, sqlconn.ErrNoRows):
			again = true
			return nil
		case err != nil:
			return err
		}
		old.State = task.State(state)
		if r.Older(&old) || final == 1 && !r.Reopens(&old) && (old.Older(r) || old.State != r.State) {
			return resultstore.ErrStale
		}
		again = final == 0 || r.Reopens(&old)
		return nil
	})
	return again, err
}

// Load implements [resultstore.ResultStore].
func (s *Store) Load(ctx context.Context, id task.ID) (resultstore.Record, error) {
	if err := s.check(ctx, id); err != nil {
		return resultstore.Record{}, err
	}
	var value []byte
	err := s.repeat(ctx, "load", func() error {
		return s.conn.View(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
			err := tx.Row(ctx, s.text.load, s.cfg.Namespace, string(id)).Scan(&value)
			if errors.Is(err, sqlconn.ErrNoRows) {
				return resultstore.ErrNotFound
			}
			return err
		})
	})
	if err != nil {
		return resultstore.Record{}, err
	}
	return decode(value, id)
}

// Delete implements [resultstore.ResultStore].
func (s *Store) Delete(ctx context.Context, id task.ID) error {
	if err := s.check(ctx, id); err != nil {
		return err
	}
	return s.repeat(ctx, "delete", func() error {
		_, err := s.change(ctx, s.text.drop, "", s.cfg.Namespace, string(id))
		return err
	})
}

// Close implements [resultstore.ResultStore]: it ends all streams, waits until what is under way is answered, and closes the
// connections. When ctx ends before, its error is returned, and the rest ends by itself.
func (s *Store) Close(ctx context.Context) error {
	s.mu.Lock()
	s.end()
	open := slices.Collect(maps.Keys(s.streams))
	s.mu.Unlock()
	for _, n := range open {
		n.finish()
	}
	swept := make(chan struct{})
	go func() {
		s.sweeping.Wait()
		close(swept)
	}()
	select {
	case <-swept:
	case <-ctx.Done():
		return ctx.Err()
	}
	return s.release(ctx)
}

// check refuses a call of a store that is closed, with a ctx that has ended, or about what is no id.
func (s *Store) check(ctx context.Context, id task.ID) error {
	if s.life.Err() != nil {
		return resultstore.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return id.Check()
}

// repeat makes the tables ready and calls fn, again when nobody knows what became of it, which is harmless for all that this
// store does.
func (s *Store) repeat(ctx context.Context, what string, fn func() error) error {
	for attempt := 0; ; attempt++ {
		err := s.ready(ctx)
		if err == nil {
			err = fn()
		}
		if !errors.Is(err, sqlconn.ErrIndeterminate) || ctx.Err() != nil {
			return failure(what, err)
		}
		if wake.SleepOr(ctx, s.life.Done(), s.cfg.Backoff.Interval(attempt)) {
			continue
		}
		if ctx.Err() == nil {
			err = sqlconn.ErrClosed
		}
		return failure(what, err)
	}
}

// ready makes the tables, once. Those who come at the same moment wait for each other.
func (s *Store) ready(ctx context.Context) error {
	if s.migrated.Load() {
		return nil
	}
	files, err := fs.Sub(migrations, "migrations")
	if err == nil {
		err = s.conn.Migrate(ctx, "results", files)
	}
	if err == nil {
		s.migrated.Store(true)
	}
	return err
}

// encode makes the value of a record.
func (s *Store) encode(r *resultstore.Record) ([]byte, error) {
	if len(r.Result) > s.cfg.MaxResult {
		return nil, fmt.Errorf("%w: a result of %d bytes, at most %d are kept", resultstore.ErrTooLarge, len(r.Result), s.cfg.MaxResult)
	}
	value, err := wire.EncodeRecord(r)
	if err == nil && len(value) > s.cfg.MaxResult+maxRest {
		err = fmt.Errorf("%w: %d bytes, at most %d", resultstore.ErrTooLarge, len(value), s.cfg.MaxResult+maxRest)
	}
	return value, err
}

// decode reads the value of the record of a task. The error is [resultstore.ErrMalformed].
func decode(value []byte, id task.ID) (resultstore.Record, error) {
	r, err := wire.DecodeRecord(value)
	if err == nil && r.ID != id {
		err = fmt.Errorf("%w: the record of another task", resultstore.ErrMalformed)
	}
	if err != nil {
		return resultstore.Record{}, err
	}
	return r, nil
}

// micros is how long something is kept, in microseconds. SQLite's clock counts milliseconds: it is
// rounded up to them.
func micros(ttl, otherwise time.Duration) int64 {
	if ttl <= 0 {
		ttl = otherwise
	}
	return resultstore.RoundClaim(min(ttl, resultstore.MaxClaimTTL)).Microseconds()
}

// failure puts the port's class beside a database's error.
func failure(what string, err error) error {
	class := resultstore.ErrUnavailable // also when the record may have been kept: saving it again is safe
	switch {
	case err == nil, errors.Is(err, resultstore.ErrNotFound):
		return err
	case errors.Is(err, resultstore.ErrStale), errors.Is(err, resultstore.ErrMalformed):
		return fmt.Errorf("sql %s: %w", what, err)
	case errors.Is(err, sqlconn.ErrClosed):
		class = resultstore.ErrClosed
	}
	return fmt.Errorf("sql %s: %w: %w", what, class, err)
}
