package sqlresults

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

const (
	// sweepBatch is the largest number of rows that one transaction deletes: on SQLite it delays other
	// writers.
	sweepBatch = 200
	// sweepTime limits a sweep, so that it does not last until Close if the database cannot be
	// reached.
	sweepTime = time.Minute
)

// sweepSoon starts a sweep on a goroutine if the last one began at least Config.Sweep ago, but
// not after Close. Calls that add rows call it. It does not block. It takes s.mu.
func (s *Store) sweepSoon() {
	now, last := time.Now().UnixNano(), s.swept.Load()
	if now-last < int64(s.cfg.Sweep) || !s.swept.CompareAndSwap(last, now) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life.Err() == nil {
		s.sweeping.Go(s.sweep)
	}
}

// sweep deletes all expired records, checkpoints, claims and groups, of all namespaces, in batches.
// It stops after sweepTime or at Close. It runs on its own goroutine. It logs a failure; the next
// sweep tries again.
func (s *Store) sweep() {
	ctx, cancel := context.WithTimeout(s.life, sweepTime)
	defer cancel()
	err := s.ready(ctx)
	for _, some := range []func(context.Context) (bool, error){
		func(ctx context.Context) (bool, error) { return s.sweepRows(ctx, s.text.sweepResults) },
		func(ctx context.Context) (bool, error) { return s.sweepRows(ctx, s.text.sweepBegun) },
		s.sweepGroups,
		s.sweepCheckpoints, // last: the role may lack the right
	} {
		for more := true; more && err == nil; {
			more, err = some(ctx)
		}
	}
	if err != nil && s.life.Err() == nil {
		s.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "expired results could not be deleted; the next sweep tries again", slog.Any("error", err))
	}
}

// sweepRows deletes up to s.batch rows with one statement, and reports whether more may have
// expired. It waits for the database and returns its errors.
func (s *Store) sweepRows(ctx context.Context, text string) (more bool, err error) {
	err = s.conn.Single(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
		n, err := tx.Exec(ctx, text, s.batch)
		more = n == s.batch
		return err
	})
	return more, err
}

// sweepCheckpoints is sweepRows for checkpoints, if this store has used their table. If the role
// lacks the right it logs that once and deletes none.
func (s *Store) sweepCheckpoints(ctx context.Context) (more bool, err error) {
	if !s.used.Load() { // the table may not exist
		return false, nil
	}
	if more, err = s.sweepRows(ctx, s.text.sweepCheckpoints); errors.Is(err, sqlconn.ErrAccess) {
		s.warnKept(err)
		return false, nil
	}
	return more, err
}

// sweepGroups deletes up to s.batch expired members and their groups, and reports whether more may
// have expired. A large group needs several transactions; its own row is deleted last. It waits for
// the database and returns its errors.
func (s *Store) sweepGroups(ctx context.Context) (more bool, err error) {
	err = s.conn.Update(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
		groups, err := s.expiredGroups(ctx, tx)
		if err != nil {
			return err
		}
		left := s.batch
		for _, g := range groups {
			n, err := tx.Exec(ctx, s.text.sweepMembers, g[0], g[1], left)
			if left -= n; err != nil || left <= 0 {
				more = true
				return err
			}
			if _, err := tx.Exec(ctx, s.text.sweepGroup, g[0], g[1]); err != nil {
				return err
			}
		}
		more = int64(len(groups)) == s.batch
		return nil
	})
	return more, err
}

// expiredGroups returns namespace and id of up to s.batch expired groups. On PostgreSQL it locks
// their rows for the transaction and skips rows that others have locked. It waits for the database
// and returns its errors.
func (s *Store) expiredGroups(ctx context.Context, tx *sqlconn.Tx) (groups [][2]string, err error) {
	rows, err := tx.Query(ctx, s.text.sweepGroups, s.batch)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Err(), rows.Close()) }()
	for rows.Next() {
		var g [2]string
		if err := rows.Scan(&g[0], &g[1]); err != nil {
			return nil, err
		}
		groups = append(groups, g)
	}
	return groups, nil
}
