package resultstore

import (
	"context"

	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tx"
)

// TxSaver is a store whose records are in a SQL database. It is a [tx.Checker].
type TxSaver interface {
	// SaveTx is Save in t, a transaction of the caller: Load finds the record if and only if the
	// caller commits. It neither commits nor rolls back. It does not notify the submitter: call
	// Save with the same record after the commit.
	//
	//   - Returns [ErrUnsupported] if t is a transaction of another database.
	//   - Returns [ErrStale], [ErrMalformed] or [ErrTooLarge] as Save does.
	//   - After each of these errors nothing was changed, and t can continue and commit.
	//   - Other errors are those of the database. They may have ended t.
	SaveTx(ctx context.Context, t tx.Tx, r Record) error
}

// TxGatherer is a [Gatherer] whose groups are in a SQL database. It is a [tx.Checker].
type TxGatherer interface {
	// ArriveTx is Arrive in t, a transaction of the caller. Until t ends, other members of the
	// group wait with their arrival. Its errors are those of Arrive and SaveTx.
	ArriveTx(ctx context.Context, t tx.Tx, a Arrival) (Gathered, error)
	// MembersTx is Members in t. It also returns a member that arrived in t. Its errors are those
	// of Members and SaveTx.
	MembersTx(ctx context.Context, t tx.Tx, group task.ID, from, limit int) ([]Record, error)
}
