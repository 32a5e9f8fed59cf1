package sqlresults

import (
	"context"
	"errors"
	"slices"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tx"
)

// The privileges that the role of a caller's transaction needs on PostgreSQL.
var (
	saveRights = []string{"SELECT swarmiji_result", "INSERT swarmiji_result", "UPDATE swarmiji_result"}
	dropRights = []string{
		"SELECT swarmiji_result", "INSERT swarmiji_result", "UPDATE swarmiji_result",
		"SELECT swarmiji_result_checkpoint", "DELETE swarmiji_result_checkpoint",
	}
	gatherRights = []string{
		"SELECT swarmiji_result_group", "INSERT swarmiji_result_group", "UPDATE swarmiji_result_group",
		"SELECT swarmiji_result_member", "INSERT swarmiji_result_member", "DELETE swarmiji_result_member",
	}
)

// CheckTx implements [tx.Checker]: it returns nil if SaveTx can use t, and otherwise the errors of
// join. On PostgreSQL the role of t needs USAGE on the schema and the privileges of SaveTx; the
// error names them. ArriveTx and MembersTx check those for groups. It stores nothing.
func (s *Store) CheckTx(ctx context.Context, t tx.Tx) error {
	return s.join(ctx, t, "use a transaction", saveRights, func(context.Context, *sqlconn.Tx) error { return nil })
}

// SaveTx implements [resultstore.TxSaver]: it stores r in t, and neither commits nor notifies the
// submitter. If the same final record is stored already it changes nothing and returns nil. Returns
// ErrStale if the stored record forbids r, and otherwise the errors of saveArgs and join. On
// PostgreSQL the role of t needs SELECT, INSERT and UPDATE on swarmiji_result, and with
// DropCheckpoints SELECT and DELETE on swarmiji_result_checkpoint.
func (s *Store) SaveTx(ctx context.Context, t tx.Tx, r resultstore.Record) error {
	_, args, err := s.saveArgs(ctx, &r)
	if err != nil {
		return err
	}
	rights := saveRights
	if r.DropCheckpoints {
		rights = dropRights
	}
	return s.join(ctx, t, "save in a transaction", rights, func(ctx context.Context, j *sqlconn.Tx) error {
		for again := true; again; {
			n, err := j.Exec(ctx, s.text.save, args...)
			if err != nil {
				return err
			}
			if n > 0 {
				break
			}
			if again, err = s.judgeIn(ctx, j, &r); err != nil {
				return err
			}
		}
		if r.DropCheckpoints {
			return s.dropCheckpoints(ctx, j, string(r.ID))
		}
		return nil
	})
}

// ArriveTx implements [resultstore.TxGatherer]: it stores the end of a member in t and returns the
// state of its group. It does not commit; the row of the group is locked until t ends. Its errors
// are those of Arrive and join. On PostgreSQL the role of t needs SELECT, INSERT and UPDATE on
// swarmiji_result_group and SELECT, INSERT and DELETE on swarmiji_result_member.
func (s *Store) ArriveTx(ctx context.Context, t tx.Tx, a resultstore.Arrival) (known resultstore.Gathered, err error) {
	value, err := s.memberValue(ctx, &a)
	if err != nil {
		return resultstore.Gathered{}, err
	}
	err = s.join(ctx, t, "gather in a transaction", gatherRights, func(ctx context.Context, j *sqlconn.Tx) (err error) {
		known, err = s.arrive(ctx, j, &a, value)
		return err
	})
	if err != nil {
		return resultstore.Gathered{}, err
	}
	return known, nil
}

// MembersTx implements [resultstore.TxGatherer]: it reads in t what Members reads, and also finds
// members that arrived in t. A limit of 0 or less returns no members. Its errors are those of
// Members and join. On PostgreSQL the role of t needs the privileges of ArriveTx.
func (s *Store) MembersTx(ctx context.Context, t tx.Tx, group task.ID, from, limit int) (page []resultstore.Record, err error) {
	if err := s.check(ctx, group); err != nil {
		return nil, err
	}
	if limit = min(limit, resultstore.MaxMembersPage); limit <= 0 {
		return nil, nil
	}
	err = s.join(ctx, t, "members in a transaction", gatherRights, func(ctx context.Context, j *sqlconn.Tx) (err error) {
		page, err = s.members(ctx, j, group, max(from, 0), limit)
		return err
	})
	if err != nil {
		return nil, err
	}
	return page, nil
}

// join makes the tables on a connection of the store, and then runs fn in t, which it neither
// commits nor rolls back. rights are the privileges that fn needs. Returns ErrClosed after Close,
// and otherwise the errors of [sqlconn.Conn.Join] with those of the port. The argument what names
// the operation in them.
func (s *Store) join(ctx context.Context, t tx.Tx, what string, rights []string, fn sqlconn.Func) error {
	if s.life.Err() != nil {
		return resultstore.ErrClosed
	}
	ready := s.ready
	if slices.Equal(rights, dropRights) {
		ready = func(ctx context.Context) error { return errors.Join(s.ready(ctx), s.readyCheckpoints(ctx)) }
	}
	return failure(what, s.conn.Join(ctx, t, ready, rights, fn))
}
