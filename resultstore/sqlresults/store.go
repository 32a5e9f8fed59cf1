package sqlresults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/internal/naming"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tx"
)

// Store keeps records in a database, which it opens at the first use. Make one with [New] and end
// it with Close. All methods are safe for concurrent use.
type Store struct {
	cfg   Config
	conn  *sqlconn.Conn
	text  *texts
	batch int64           // rows that a sweep deletes at once
	life  context.Context // ends with Close
	end   context.CancelFunc

	saves  *sqlconn.Batcher[*saving] // for PostgreSQL: SQLite shares commits by itself
	saving sync.WaitGroup            // its goroutine
	points *sqlconn.Conn             // only makes the table of checkpoints, at its first use
	used   atomic.Bool               // points has made it
	kept   sync.Once                 // the warning that checkpoints cannot be deleted

	swept    atomic.Int64 // start of the last sweep, in nanoseconds since 1970
	sweeping sync.WaitGroup

	mu      sync.Mutex // also held when life is ended
	streams map[*stream]struct{}
}

var (
	_ resultstore.ResultStore = (*Store)(nil)
	_ resultstore.BatchSaver  = (*Store)(nil)
	_ resultstore.Notifier    = (*Store)(nil)
	_ resultstore.Gatherer    = (*Store)(nil)
	_ resultstore.TxSaver     = (*Store)(nil)
	_ resultstore.TxGatherer  = (*Store)(nil)
	_ tx.Checker              = (*Store)(nil)
)

// New checks c and makes a Store. It does no I/O and starts no goroutine. It returns all problems
// of c in one error.
func New(c Config) (*Store, error) {
	c, err := c.complete()
	conn, connErr := sqlconn.Of(c.DB, "results")
	points, _ := sqlconn.Of(c.DB, "checkpoints") // its error is the same
	if connErr != nil {
		connErr = fmt.Errorf("sqlresults: %w", connErr)
	}
	if err = errors.Join(err, connErr); err != nil {
		return nil, err
	}
	s := &Store{cfg: c, conn: conn, points: points, text: newTexts(conn.Dialect()), batch: sweepBatch, streams: make(map[*stream]struct{})}
	s.life, s.end = context.WithCancel(context.Background())
	s.saves = s.newSaves()
	return s, nil
}

// Save implements [resultstore.ResultStore]: it stores r and waits for the database. It notifies
// the submitter if r is terminal and its ReplyTo is a valid name, also if the same record was
// stored already. It may start a sweep of expired rows on a goroutine.
//
// Without the right to delete checkpoints it stores the record alone, and logs that once.
//
// While the outcome is unknown it repeats the call, until ctx ends. After
// [resultstore.ErrUnavailable] the record may have been stored; saving it again is safe. It also
// returns:
//
//   - [resultstore.ErrStale] if the stored record is newer, or final and different and r does not
//     reopen it
//   - [task.ErrBadID] for an invalid ID
//   - [resultstore.ErrMalformed] for a state that is not recorded or a record that cannot be
//     encoded
//   - [resultstore.ErrTooLarge] for a record above the limits of Config.MaxResult
//   - ErrClosed after Close, and ctx's error if ctx has already ended
func (s *Store) Save(ctx context.Context, r resultstore.Record) error {
	topic, args, err := s.saveArgs(ctx, &r)
	if err != nil {
		return err
	}
	defer s.sweepSoon()
	return s.repeat(ctx, "save", func() error { return s.save(ctx, &r, topic, args) })
}

// saveArgs returns the arguments of the statement texts.save for r, and the topic of its submitter
// or "". Its errors are those of Save, except for the database's.
func (s *Store) saveArgs(ctx context.Context, r *resultstore.Record) (topic string, args []any, err error) {
	if err := s.check(ctx, r.ID); err != nil {
		return "", nil, err
	}
	if !r.State.Recorded() {
		return "", nil, fmt.Errorf("%w: state %q is not recorded", resultstore.ErrMalformed, utf.Cut(string(r.State), 32))
	}
	value, err := s.encode(r)
	if err != nil {
		return "", nil, err
	}
	final, node := int64(0), ""
	if r.State.Terminal() {
		final = 1
		if naming.ValidName(r.ReplyTo) { // an invalid node name has no stream
			node, topic = r.ReplyTo, s.topic(r.ReplyTo)
		}
	}
	return topic, []any{
		s.cfg.Namespace, string(r.ID), int64(r.Generation), int64(r.Deliveries), string(r.State), final, node, micros(r.TTL, s.cfg.TTL), value,
	}, nil
}

// save stores a record unless the stored one forbids that, and notifies topic, the topic of the
// submitter's streams or "". args are the arguments of the statement texts.save. It waits for the
// database and returns its errors.
//
//   - The stored record is newer, or final and different: it returns ErrStale.
//   - The equal final record is stored already: it notifies topic too and returns nil.
//   - That record disappeared between the two statements: save starts again.
func (s *Store) save(ctx context.Context, r *resultstore.Record, topic string, args []any) error {
	v := &saving{topic: topic, args: args, drop: r.DropCheckpoints}
	store := s.saveWithOthers
	if s.conn.Dialect() == sqlconn.SQLite {
		store = s.saveAlone
	}
	for {
		kept, err := store(ctx, v)
		if err != nil || kept {
			return err
		}
		again, err := s.judge(ctx, r)
		if err != nil {
			return err
		}
		if !again {
			return s.tell(ctx, v)
		}
	}
}

// tell notifies the topic of v, unless it is "", of a record that is stored already, and drops the
// checkpoints if v says so. This call may have stored the record in an earlier attempt whose answer
// was lost, so that no notification was sent. It waits for the database and returns its errors.
func (s *Store) tell(ctx context.Context, v *saving) error {
	if v.topic == "" && !v.drop {
		return nil
	}
	return s.orKeep(ctx, []*saving{v}, func() error {
		return s.conn.Update(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
			if v.topic != "" {
				tx.Notify(v.topic)
			}
			if v.drop {
				return s.dropCheckpoints(ctx, tx, v.id())
			}
			return nil
		})
	})
}

// change runs one statement that writes, and reports whether it changed a row. If it did, and
// topic is not "", change notifies topic. It waits for the database and returns its errors.
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

// judge reads the stored record after the statement save has changed no row. It waits for the
// database and returns its errors.
//
//   - The stored record is newer than r, or final and different, and r does not reopen it:
//     ErrStale.
//   - The equal final record is stored: false and nil.
//   - No record is stored now, or one that r may replace: again is true, and saving may succeed.
func (s *Store) judge(ctx context.Context, r *resultstore.Record) (again bool, err error) {
	err = s.conn.View(ctx, func(ctx context.Context, tx *sqlconn.Tx) (err error) {
		again, err = s.judgeIn(ctx, tx, r)
		return err
	})
	return again, err
}

// judgeIn does the work of judge in an open transaction or view.
func (s *Store) judgeIn(ctx context.Context, tx *sqlconn.Tx, r *resultstore.Record) (again bool, err error) {
	var old resultstore.Record
	var state string
	var final int
	err = tx.Row(ctx, s.text.token, s.cfg.Namespace, string(r.ID)).Scan(&old.Generation, &old.Deliveries, &state, &final)
	switch {
	case errors.Is(err, sqlconn.ErrNoRows):
		return true, nil
	case err != nil:
		return false, err
	}
	old.State = task.State(state)
	if r.Older(&old) || final == 1 && !r.Reopens(&old) && (old.Older(r) || old.State != r.State) {
		return false, resultstore.ErrStale
	}
	return final == 0 || r.Reopens(&old), nil
}

// Load implements [resultstore.ResultStore]: it reads the record of task id. Returns ErrNotFound if
// no record exists or it has expired, and ErrMalformed if the stored value is not its record.
//
// Returns task.ErrBadID for an invalid id, ErrClosed after Close, and ctx's error if ctx has
// already ended. While the outcome is unknown it repeats the call, until ctx ends; then it returns
// ErrUnavailable.
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

// Delete implements [resultstore.ResultStore]: it removes the record and the checkpoints of task
// id. Returns nil if no record exists.
//
// Returns task.ErrBadID for an invalid id, ErrClosed after Close, and ctx's error if ctx has
// already ended. While the outcome is unknown it repeats the call, until ctx ends; then it returns
// ErrUnavailable.
func (s *Store) Delete(ctx context.Context, id task.ID) error {
	if err := s.check(ctx, id); err != nil {
		return err
	}
	return s.repeat(ctx, "delete", func() error {
		v := &saving{drop: true}
		return s.orKeep(ctx, []*saving{v}, func() error {
			return s.conn.Update(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
				_, err := tx.Exec(ctx, s.text.drop, s.cfg.Namespace, string(id))
				if err == nil && v.drop {
					err = s.dropCheckpoints(ctx, tx, string(id))
				}
				return err
			})
		})
	})
}

// Close implements [resultstore.ResultStore]. It ends all streams, waits for running calls and
// sweeps, and closes the connections. If ctx ends first it returns ctx's error, and the rest ends
// by itself. It takes s.mu, but not while it waits.
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
	case <-ctx.Done(): // the next call returns its error; the rest ends in the background
	}
	err := errors.Join(s.conn.Close(ctx), s.points.Close(ctx))
	if err == nil {
		s.saving.Wait() // its calls have ended
	}
	return err
}

// check returns ErrClosed after Close, ctx's error if ctx has ended, or [task.ErrBadID] if id is
// invalid.
func (s *Store) check(ctx context.Context, id task.ID) error {
	if s.life.Err() != nil {
		return resultstore.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return id.Check()
}

// repeat makes the tables and calls fn. It calls fn again while the outcome is unknown, until ctx
// ends; every fn of this store may be executed twice. It returns other errors at once. failure
// wraps each error with that of the port: ErrClosed if the store was closed during a pause. The
// argument what names the operation.
func (s *Store) repeat(ctx context.Context, what string, fn func() error) error {
	for attempt := 0; ; attempt++ {
		err := s.ready(ctx)
		if err == nil {
			err = fn()
		}
		if !errors.Is(err, sqlconn.ErrIndeterminate) || ctx.Err() != nil {
			return failure(what, err)
		}
		if wake.SleepOr(ctx, s.life.Done(), s.conn.Interval(attempt)) {
			continue
		}
		if ctx.Err() == nil {
			err = sqlconn.ErrClosed
		}
		return failure(what, err)
	}
}

// ready makes or updates the tables and waits for the database; after a success further calls
// return nil at once. Concurrent first calls wait for each other. After an error the next call
// tries again.
func (s *Store) ready(ctx context.Context) error { return s.conn.Ready(ctx) }

// encode returns the value of a record. Returns ErrTooLarge if the result or the record exceeds its
// limit, and ErrMalformed if the record cannot be encoded.
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

// decode returns the record in a value. Returns [resultstore.ErrMalformed] if the value is not a
// record of task id.
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

// micros returns a retention in microseconds: ttl, or the argument otherwise if ttl is 0 or less,
// but at most MaxClaimTTL. It rounds that up to milliseconds, because SQLite's clock counts those,
// and adds one millisecond.
func micros(ttl, otherwise time.Duration) int64 {
	if ttl <= 0 {
		ttl = otherwise
	}
	return resultstore.RoundClaim(min(ttl, resultstore.MaxClaimTTL)).Microseconds()
}

// failure wraps err with the matching error of the port and the name of the operation. Errors
// without a match become ErrUnavailable. It returns nil and ErrNotFound unchanged.
func failure(what string, err error) error {
	class := resultstore.ErrUnavailable // the record may have been stored; saving it again is safe
	switch {
	case err == nil, errors.Is(err, resultstore.ErrNotFound):
		return err
	case errors.Is(err, resultstore.ErrStale), errors.Is(err, resultstore.ErrMalformed), errors.Is(err, resultstore.ErrTooLarge):
		return fmt.Errorf("sql %s: %w", what, err)
	case errors.Is(err, sqlconn.ErrClosed):
		class = resultstore.ErrClosed
	case errors.Is(err, sqlconn.ErrForeign):
		class = resultstore.ErrUnsupported
	}
	return fmt.Errorf("sql %s: %w: %w", what, class, err)
}
