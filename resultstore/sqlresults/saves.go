package sqlresults

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/resultstore"
)

// saving is a call of Save that may share its statement with others.
type saving struct {
	topic string // of the submitter, or ""
	args  []any  // of texts.save
	drop  bool   // drop the checkpoints of the task with it
	kept  bool   // the statement has stored the record
	left  bool   // an earlier entry of the batch has the same id
}

// id returns the task id of the record, from the arguments.
func (v *saving) id() string { return v.args[1].(string) } //nolint:forcetypeassert // see saveArgs

// newSaves returns the batcher that stores the records of concurrent calls of Save with one
// statement. On PostgreSQL each call would otherwise need a connection and a commit of its own. It
// starts no goroutine.
func (s *Store) newSaves() *sqlconn.Batcher[*saving] {
	const fixed = 300 // approximate bytes of a row without its value
	return &sqlconn.Batcher[*saving]{
		Owner: sqlconn.BatchOwner{
			Start: s.startSaves, Ready: s.ready,
			Pause:  func(int) bool { return false }, // nothing is sent again
			Life:   s.life,
			Calls:  context.Background(), // Close of the Conn ends the statements
			Closed: sqlconn.Closed(),
		},
		Send: s.saveAll,
		Kind: func(es []*sqlconn.Entry[*saving]) sqlconn.Transaction {
			return func(ctx context.Context, fn sqlconn.Func) error {
				return s.orKeep(ctx, savings(es), func() error { return s.conn.Single(ctx, fn) })
			}
		},
		Size: func(e *sqlconn.Entry[*saving]) int { return fixed + len(e.V.args[8].([]byte)) }, //nolint:forcetypeassert // see saveArgs
	}
}

// savings returns the values of es.
func savings(es []*sqlconn.Entry[*saving]) []*saving {
	vs := make([]*saving, len(es))
	for i, e := range es {
		vs[i] = e.V
	}
	return vs
}

// orKeep calls change, which stores vs and drops their checkpoints. It makes the table of
// checkpoints first. If that is impossible, or the database refuses access, the role may lack a
// right: orKeep calls change without the drops, because a task whose result is not stored would run
// again. It returns the error of change.
func (s *Store) orKeep(ctx context.Context, vs []*saving, change func() error) error {
	if !slices.ContainsFunc(vs, func(v *saving) bool { return v.drop }) {
		return change()
	}
	err := s.readyCheckpoints(ctx)
	if err == nil {
		if err = change(); !errors.Is(err, sqlconn.ErrAccess) {
			return err
		}
	}
	for _, v := range vs {
		v.drop = false
	}
	if again := change(); again != nil {
		return again
	}
	s.warnKept(err)
	return nil
}

// warnKept logs, once for each Store, that err prevents the deletion of checkpoints.
func (s *Store) warnKept(err error) {
	s.kept.Do(func() {
		s.cfg.Logger.LogAttrs(context.Background(), slog.LevelWarn,
			"checkpoints are not deleted: grant SELECT, INSERT, UPDATE and DELETE on swarmiji_result_checkpoint to the role of the result store", slog.Any("error", err))
	})
}

// startSaves runs fn in a goroutine for which Close waits. It returns false after Close. It takes
// s.mu.
func (s *Store) startSaves(fn func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life.Err() != nil {
		return false
	}
	s.saving.Go(fn)
	return true
}

// saveWithOthers runs texts.save for PostgreSQL, in one statement with the calls that arrived
// during the last one. It notifies the topic, unless it is "", if the record was stored. It reports
// whether the record was stored. It waits for the database and returns its errors.
//
// If another transaction has locked the record, or the batch has an earlier record with the same
// id, it runs the statement again alone. So only this call waits for a long transaction of a user.
func (s *Store) saveWithOthers(ctx context.Context, v *saving) (kept bool, err error) {
	err = s.saveMany(ctx, []*saving{v})[0]
	if sqlconn.IsLocked(err) || err == nil && v.left {
		return s.saveAlone(ctx, v)
	}
	return err == nil && v.kept, err
}

// errNotSaved says that SaveBatch has not stored a record: Save must look at the stored one.
var errNotSaved = errors.New("a record of the task is stored already")

// SaveBatch implements [resultstore.BatchSaver]: it stores the records in one transaction, on
// PostgreSQL with those of concurrent calls. The outcome of a record is
// [resultstore.ErrUnavailable] if the task has another one that stays, or one that another
// transaction has locked. Its other errors are those of Save.
func (s *Store) SaveBatch(ctx context.Context, rs []resultstore.Record) []error {
	errs := make([]error, len(rs))
	vs, at := make([]*saving, 0, len(rs)), make([]int, 0, len(rs))
	for i := range rs {
		topic, args, err := s.saveArgs(ctx, &rs[i])
		if errs[i] = err; err == nil {
			vs, at = append(vs, &saving{topic: topic, args: args, drop: rs[i].DropCheckpoints}), append(at, i)
		}
	}
	if len(vs) == 0 {
		return errs
	}
	defer s.sweepSoon()
	together := s.saveMany
	if s.conn.Dialect() == sqlconn.SQLite {
		together = s.saveInOne
	}
	for k, err := range together(ctx, vs) {
		if err == nil && !vs[k].kept {
			err = errNotSaved
		}
		errs[at[k]] = failure("save", err)
	}
	return errs
}

// saveMany stores the records of vs in one statement with those of concurrent calls, for
// PostgreSQL. It sets kept of each and returns their errors. It waits for the database.
func (s *Store) saveMany(ctx context.Context, vs []*saving) []error {
	call, es := sqlconn.NewBatchCall(len(vs)), make([]*sqlconn.Entry[*saving], len(vs))
	for i, v := range vs {
		es[i] = &sqlconn.Entry[*saving]{V: v, Call: call}
	}
	s.saves.Add(es...)
	return s.saves.Wait(ctx, call, es)
}

// saveInOne stores the records of vs in one transaction. It sets kept of each, and returns one
// error for each: the same. It waits for the database.
func (s *Store) saveInOne(ctx context.Context, vs []*saving) []error {
	err := s.ready(ctx)
	if err == nil {
		err = s.orKeep(ctx, vs, func() error {
			return s.conn.Update(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
				for _, v := range vs {
					n, err := tx.Exec(ctx, s.text.save, v.args...)
					if err != nil {
						return err
					}
					v.kept = n > 0
					if err := s.saved(ctx, tx, v); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
	return slices.Repeat([]error{err}, len(vs))
}

// saveAlone runs texts.save in a transaction of its own. It reports whether the record was stored,
// and notifies the topic then, unless it is "". It waits for the database and returns its errors.
func (s *Store) saveAlone(ctx context.Context, v *saving) (kept bool, err error) {
	if !v.drop {
		return s.change(ctx, s.text.save, v.topic, v.args...)
	}
	err = s.saveInOne(ctx, []*saving{v})[0]
	return v.kept, err
}

// saved notifies the submitter of v and drops the checkpoints, if the statement texts.save has
// stored its record in tx. It waits for the database and returns its errors.
func (s *Store) saved(ctx context.Context, tx *sqlconn.Tx, v *saving) error {
	if v.kept && v.topic != "" {
		tx.Notify(v.topic)
	}
	if v.kept && v.drop {
		return s.dropCheckpoints(ctx, tx, v.id())
	}
	return nil
}

// saveColumns are the columns of a batch, in the order of the arguments of texts.save after the
// namespace.
var saveColumns = []string{
	"id text", "generation bigint", "deliveries bigint", "state text", "final bigint", "node text", "ttl bigint", "value bytea",
}

// saveAll stores the records of es with one statement in transaction tx, and notifies the topics of
// the stored ones. It sets kept and left of each entry. Of several entries with one id it stores
// the first; left is true for the others. It drops checkpoints with the records that say so. It is
// the send function of the batcher. It does not wait for locked rows. It waits for the database and
// returns its errors.
func (s *Store) saveAll(ctx context.Context, tx *sqlconn.Tx, es []*sqlconn.Entry[*saving]) error {
	tx.Hasty(true)
	byID := make(map[string]*saving, len(es))
	var rows [][]any
	var drops []string
	for _, e := range es {
		v := e.V
		v.kept = false
		if _, v.left = byID[v.id()]; !v.left {
			byID[v.id()] = v
			rows = append(rows, v.args[1:])
			if v.drop {
				drops = append(drops, v.id())
			}
		}
	}
	text, args := s.text.saveAll, append([]any{s.cfg.Namespace}, sqlconn.Arrays(saveColumns, rows)...)
	if drops != nil {
		text, args = s.text.saveAllDrop, append(args, drops)
	}
	found, err := tx.Query(ctx, text, args...)
	if err != nil {
		return err
	}
	topics := make(map[string]bool)
	for found.Next() {
		var id string
		if err := found.Scan(&id); err != nil {
			return err
		}
		v := byID[id]
		if v == nil {
			return fmt.Errorf("the statement returned the id %.64q, which is not of this batch", id)
		}
		v.kept = true
		if v.topic != "" && !topics[v.topic] {
			topics[v.topic] = true
			tx.Notify(v.topic)
		}
	}
	return errors.Join(found.Err(), found.Close())
}

// unnest returns the SQL text of a table expression k with these columns. Each column is written as
// name and type, such as "id text". Its values come from an array parameter; the first one is
// $first.
func unnest(first int, columns []string) string {
	var args, names []string
	for i, c := range columns {
		name, kind, _ := strings.Cut(c, " ")
		args, names = append(args, fmt.Sprintf("$%d::%s[]", first+i, kind)), append(names, name)
	}
	return "unnest(" + strings.Join(args, ", ") + ") AS k(" + strings.Join(names, ", ") + ")"
}
