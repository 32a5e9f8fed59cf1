package sqlresults

import (
	"context"
	"errors"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// Arrive implements [resultstore.Gatherer]: it stores the end of a member, unless its index is
// stored already, and returns the state of the group. One transaction does both and begins the
// retention of the group again. It may start a sweep of expired rows on a goroutine.
//
// While its outcome is unknown it repeats the transaction, until ctx ends. After
// [resultstore.ErrUnavailable] the member may have been stored; repeating the call is safe. It also
// returns:
//
//   - ErrMalformed if a does not fit the group or its record cannot be encoded
//   - [task.ErrBadID] for an invalid id
//   - [resultstore.ErrTooLarge] for a record above the limits of Save
//   - ErrClosed after Close, and ctx's error if ctx has already ended
func (s *Store) Arrive(ctx context.Context, a resultstore.Arrival) (resultstore.Gathered, error) {
	value, err := s.memberValue(ctx, &a)
	if err != nil {
		return resultstore.Gathered{}, err
	}
	defer s.sweepSoon()
	var known resultstore.Gathered
	err = s.repeat(ctx, "gather", func() error {
		return s.conn.Update(ctx, func(ctx context.Context, tx *sqlconn.Tx) (err error) {
			known, err = s.arrive(ctx, tx, &a, value)
			return err
		})
	})
	if err != nil {
		return resultstore.Gathered{}, err
	}
	return known, nil
}

// memberValue returns the value of a member. Its errors are those of Arrive, except for the
// database's.
func (s *Store) memberValue(ctx context.Context, a *resultstore.Arrival) ([]byte, error) {
	if err := s.check(ctx, a.Group); err != nil {
		return nil, err
	}
	if err := a.Check(); err != nil {
		return nil, err
	}
	r := &a.Record
	return s.encode(&resultstore.Record{ID: r.ID, Name: r.Name, State: r.State, ContentType: r.ContentType, Result: r.Result, Error: r.Error})
}

// arrive stores an arrival in transaction tx and returns the state of its group. It locks the
// group's row first: a concurrent arrival waits until the transaction is committed and then sees
// its changes. A group that has expired begins again, without its members. A second arrival at an
// index does not change the member. It begins the retention again. Returns ErrMalformed if a does
// not fit the group, and the errors of the database.
func (s *Store) arrive(ctx context.Context, tx *sqlconn.Tx, a *resultstore.Arrival, value []byte) (resultstore.Gathered, error) {
	var g resultstore.Gathered
	var largest int
	var expires, now int64
	err := tx.Row(ctx, s.text.group, s.cfg.Namespace, string(a.Group)).Scan(&g.Size, &g.Done, &g.Failed, &largest, &g.Decider, &expires, &now)
	if err != nil {
		return g, err
	}
	if expires > 0 && expires <= now { // expired, and not swept yet
		if _, err := tx.Exec(ctx, s.text.forget, s.cfg.Namespace, string(a.Group)); err != nil {
			return g, err
		}
		g, largest = resultstore.Gathered{Decider: -1}, -1
	}
	if err := checkPlace(a, g.Size, largest); err != nil {
		return g, err
	}
	n, err := tx.Exec(ctx, s.text.member, s.cfg.Namespace, string(a.Group), int64(a.Index), value)
	if err != nil {
		return g, err
	}
	count(&g, a, n > 0)
	_, err = tx.Exec(ctx, s.text.arrived, s.cfg.Namespace, int64(g.Size), int64(g.Done), int64(g.Failed), int64(max(largest, a.Index)),
		int64(g.Decider), micros(a.Kept(g.Decider >= 0), 0), string(a.Group))
	return g, err
}

// checkPlace returns ErrMalformed if Index or Size of a does not fit the known size of the group.
// It also does so if Size of a is not above largest, the largest index that has arrived.
func checkPlace(a *resultstore.Arrival, size, largest int) error {
	if err := a.CheckPlace(size); err != nil {
		return err
	}
	if a.Size > 0 && largest >= a.Size {
		known := *a
		known.Index = largest
		return known.CheckPlace(a.Size)
	}
	return nil
}

// count adds an arrival to the state of its group. fresh reports that it is the first one at its
// index. It sets the size if a has it, and the decider if a decides or completes the group.
func count(g *resultstore.Gathered, a *resultstore.Arrival, fresh bool) {
	if a.Size > 0 {
		g.Size = a.Size
	}
	if fresh {
		g.Done++
		if a.Record.State != task.StateSucceeded {
			g.Failed++
		}
		if g.Decider < 0 && a.Decides {
			g.Decider = a.Index
		}
	}
	if g.Decider < 0 && g.Done == g.Size {
		g.Decider = a.Index
	}
}

// Group implements [resultstore.Gatherer]: it returns the state of a group. Returns ErrNotFound if
// no member has arrived or the group has expired, and task.ErrBadID for an invalid id. Returns
// ErrClosed after Close, and ctx's error if ctx has already ended. While the outcome is unknown it
// repeats the call, until ctx ends; then it returns ErrUnavailable.
func (s *Store) Group(ctx context.Context, group task.ID) (resultstore.Gathered, error) {
	if err := s.check(ctx, group); err != nil {
		return resultstore.Gathered{}, err
	}
	var g resultstore.Gathered
	err := s.repeat(ctx, "group", func() error {
		return s.conn.View(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
			err := tx.Row(ctx, s.text.known, s.cfg.Namespace, string(group)).Scan(&g.Size, &g.Done, &g.Failed, &g.Decider)
			if errors.Is(err, sqlconn.ErrNoRows) {
				return resultstore.ErrNotFound
			}
			return err
		})
	})
	if err != nil {
		return resultstore.Gathered{}, err
	}
	return g, nil
}

// Members implements [resultstore.Gatherer]: it returns the stored members from index from on, in
// order. It stops at limit, at MaxMembersPage, or at the first index that has not arrived. A from
// below 0 counts as 0. A group that is unknown or has expired has no members.
//
// Returns ErrMalformed if a stored member is not a record, and task.ErrBadID for an invalid id.
// Returns ErrClosed after Close, and ctx's error if ctx has already ended. While the outcome is
// unknown it repeats the call, until ctx ends; then it returns ErrUnavailable.
func (s *Store) Members(ctx context.Context, group task.ID, from, limit int) ([]resultstore.Record, error) {
	if err := s.check(ctx, group); err != nil {
		return nil, err
	}
	if limit = min(limit, resultstore.MaxMembersPage); limit <= 0 {
		return nil, nil
	}
	var page []resultstore.Record
	err := s.repeat(ctx, "members", func() error {
		return s.conn.View(ctx, func(ctx context.Context, tx *sqlconn.Tx) (err error) {
			page, err = s.members(ctx, tx, group, max(from, 0), limit)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return page, nil
}

// members reads up to limit members from index from on, in transaction tx, and stops before the
// first gap. It waits for the database. The list is empty for a group that does not exist or has
// expired. Returns ErrMalformed if a stored member is not a record.
func (s *Store) members(ctx context.Context, tx *sqlconn.Tx, group task.ID, from, limit int) (page []resultstore.Record, err error) {
	rows, err := tx.Query(ctx, s.text.members, s.cfg.Namespace, string(group), int64(from), int64(limit))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Err(), rows.Close()) }()
	for rows.Next() {
		var place int
		var value []byte
		if err := rows.Scan(&place, &value); err != nil {
			return nil, err
		}
		if place != from+len(page) {
			return page, nil
		}
		r, err := wire.DecodeRecord(value)
		if err != nil {
			return nil, err
		}
		page = append(page, r)
	}
	return page, nil
}

// Begin implements [resultstore.Gatherer]: it claims task id for the copy that which names, if no
// copy has an unexpired claim. It reports whether that copy has the claim then. A ttl of 0 or less
// is DefaultGatherTTL. It may start a sweep of expired rows on a goroutine.
//
// Returns task.ErrBadID for an invalid id, ErrClosed after Close, and ctx's error if ctx has
// already ended. While the outcome is unknown it repeats the call, until ctx ends; then it returns
// ErrUnavailable. After an error the first result is false.
func (s *Store) Begin(ctx context.Context, id task.ID, which string, ttl time.Duration) (bool, error) {
	if err := s.check(ctx, id); err != nil {
		return false, err
	}
	first, err := s.claim(ctx, "begin", string(id), which, micros(ttl, resultstore.DefaultGatherTTL))
	return err == nil && first == which, err
}
