package sqlhistory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/task"
)

// Store is a history in a SQL database. Create it with [New]. Safe for concurrent use.
type Store struct {
	cfg  Config
	conn *sqlconn.Conn
}

var _ history.Store = (*Store)(nil)

// New checks the configuration, sets its defaults and returns a Store. It returns all problems as
// one joined error. It does not connect: the first call that needs the database does, and creates
// the tables.
func New(cfg Config) (*Store, error) {
	err := cfg.check()
	conn, connErr := sqlconn.Of(cfg.DB, "history")
	if connErr != nil {
		connErr = fmt.Errorf("sqlhistory: %w", connErr)
	}
	if err := errors.Join(err, connErr); err != nil {
		return nil, err
	}
	return &Store{cfg: cfg, conn: conn}, nil
}

// Prepare creates or updates the tables and waits for the database until ctx ends. The first call
// of another method does it too. After a success it returns nil at once.
func (s *Store) Prepare(ctx context.Context) error { return wrap(s.conn.Ready(ctx), "prepare") }

// Close waits for running calls. It leaves the database open. It is idempotent. If ctx ends
// earlier, Close returns its error.
func (s *Store) Close(ctx context.Context) error { return s.conn.Close(ctx) }

// update prepares the tables and runs fn in a transaction. It waits for the database. It returns
// the error of fn or of the database as wrap changes it; what names the operation.
func (s *Store) update(ctx context.Context, what string, fn sqlconn.Func) error {
	if err := s.Prepare(ctx); err != nil {
		return err
	}
	return wrap(s.conn.Update(ctx, fn), what)
}

// view prepares the tables and runs fn, which only reads, with the number of the namespace. For a
// namespace without history it returns nil and does not run fn. It waits for the database. It
// returns the error of fn or of the database as wrap changes it; what names the operation.
func (s *Store) view(ctx context.Context, what string, fn func(ctx context.Context, tx *sqlconn.Tx, ns int64) error) error {
	if err := s.Prepare(ctx); err != nil {
		return err
	}
	return wrap(s.conn.View(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
		var ns int64
		err := tx.Row(ctx, "SELECT ns FROM swarmiji_history_space WHERE namespace = $1", s.cfg.Namespace).Scan(&ns)
		if errors.Is(err, sqlconn.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		return fn(ctx, tx, ns)
	}), what)
}

// wrap adds to an error of the database the operation what and the matching error of package
// history: ErrClosed, ErrRefused if the database cannot store a value, or ErrUnavailable. It
// returns any other error and nil unchanged.
func wrap(err error, what string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sqlconn.ErrClosed):
		return fmt.Errorf("history %s: %w: %w", what, history.ErrClosed, err)
	case sqlconn.IsData(err):
		return fmt.Errorf("history %s: %w: %w", what, history.ErrRefused, err)
	case sqlconn.Class(err) != nil:
		return fmt.Errorf("history %s: %w: %w", what, history.ErrUnavailable, err)
	}
	return err
}

// Get implements [history.Store]: it returns the record of a task with its timeline. It waits for
// the database. Returns ErrNotFound if no event of the task was recorded, and task.ErrBadID for an
// invalid id. Returns ErrMalformed if the stored facts cannot be read, and the errors of view.
func (s *Store) Get(ctx context.Context, id task.ID) (history.Record, error) {
	if err := id.Check(); err != nil {
		return history.Record{}, err
	}
	err := history.ErrNotFound // also of a namespace without history
	var r history.Record
	failed := s.view(ctx, "get", func(ctx context.Context, tx *sqlconn.Tx, ns int64) error {
		var data []byte
		err = tx.Row(ctx, "SELECT facts FROM swarmiji_history WHERE ns = $1 AND id = $2", ns, string(id)).Scan(&data)
		if errors.Is(err, sqlconn.ErrNoRows) {
			err = history.ErrNotFound
			return nil
		}
		if err != nil {
			return err
		}
		var f history.Facts
		if err = f.UnmarshalJSON(data); err == nil {
			r = f.Record()
		}
		return nil
	})
	if failed != nil {
		err = failed
	}
	return r, err
}

// Sweep implements [history.Store]: one transaction, which locks the namespace, deletes records,
// counts and gaps from before a time, and the oldest of more than most records. It deletes up to
// MaxDeleted records and returns their number. It waits for the database and returns the errors of
// update.
func (s *Store) Sweep(ctx context.Context, before time.Time, most int) (deleted int, err error) {
	err = s.update(ctx, "sweep", func(ctx context.Context, tx *sqlconn.Tx) error {
		deleted = 0
		ns, records, _, err := s.lock(ctx, tx)
		if err != nil {
			return err
		}
		old := before.UnixMilli()
		// the index of all changes has the oldest records at its beginning
		seqs, err := numbers(ctx, tx, "SELECT seq FROM swarmiji_history WHERE ns = $1 AND seq > 0 AND changed < $2 ORDER BY changed, seq LIMIT $3",
			ns, old, history.MaxDeleted)
		if err != nil {
			return err
		}
		if surplus := min(history.MaxDeleted, int(records)-most); most > 0 && surplus > len(seqs) {
			if seqs, err = numbers(ctx, tx, "SELECT seq FROM swarmiji_history WHERE ns = $1 AND seq > 0 ORDER BY changed, seq LIMIT $2", ns, surplus); err != nil {
				return err
			}
		}
		if deleted = len(seqs); deleted > 0 {
			in, list := within(tx.Dialect(), 1, seqs)
			for _, text := range []string{"DELETE FROM swarmiji_history_header WHERE seq ", "DELETE FROM swarmiji_history WHERE seq "} {
				if _, err := tx.Exec(ctx, text+in, list); err != nil {
					return err
				}
			}
		}
		for _, text := range []string{
			"UPDATE swarmiji_history_space SET records = records - $2 WHERE ns = $1 AND $2 > 0",
			"DELETE FROM swarmiji_history_gap WHERE ns = $1 AND until < $2",
			// about as many rows at once as records
			`DELETE FROM swarmiji_history_minute WHERE ns = $1 AND minute < $2 AND minute <= COALESCE((SELECT m.minute FROM swarmiji_history_minute AS m
				WHERE m.ns = $1 ORDER BY m.minute LIMIT 1 OFFSET 1000), $2)`,
		} {
			arg := before.Truncate(time.Minute).UnixMilli()
			if text[0] == 'U' {
				arg = int64(deleted)
			}
			if _, err := tx.Exec(ctx, text, ns, arg); err != nil {
				return err
			}
		}
		return nil
	})
	return deleted, err
}

// numbers returns the numbers in the first column of a query. It waits for the database and returns
// its errors.
func numbers(ctx context.Context, tx *sqlconn.Tx, text string, args ...any) ([]int64, error) {
	rows, err := tx.Query(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	var all []int64
	for rows.Next() {
		var n int64
		if err := rows.Scan(&n); err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, errors.Join(rows.Err(), rows.Close())
}

// within returns the SQL text that compares a column with these values, such as "= ANY($2)". It
// also returns the argument for the parameter in it, whose number is n.
func within[T int64 | string](d sqlconn.Dialect, n int, values []T) (text string, arg any) {
	if d == sqlconn.Postgres {
		kind := "bigint"
		if _, ok := any(values).([]string); ok {
			kind = "text"
		}
		return fmt.Sprintf("= ANY($%d::%s[])", n, kind), values
	}
	list, err := json.Marshal(values)
	if err != nil { // impossible: numbers and texts
		panic(err)
	}
	return fmt.Sprintf("IN (SELECT value FROM json_each($%d))", n), string(list)
}
