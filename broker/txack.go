package broker

import (
	"context"

	"github.com/swarmiji/swarmiji/tx"
)

// TxAcker is a Delivery that a transaction of the caller can acknowledge. Its Broker keeps the
// messages in a SQL database and is a [tx.Checker].
type TxAcker interface {
	// AckTx removes the message from the queue in t, a transaction of the caller: the message is
	// gone if and only if the caller commits. It neither commits nor rolls back. While t is open,
	// no other consumer receives the message, and the end of its lease does not close Lost.
	//
	//   - Returns [ErrUnsupported] if t is a transaction of another database.
	//   - Returns [ErrSettled] if the message is settled, or if a transaction of an earlier call is
	//     still open or has committed.
	//   - Returns [ErrLeaseLost] if the broker took the message back. A broker that cannot tell the
	//     commit from another consumer's settlement also returns it if the lease had ended.
	//   - After each of these errors nothing was changed, and t can continue and commit.
	//   - Other errors are those of the database. They may have ended t.
	//
	// After a rollback AckTx may be called again, with another transaction.
	AckTx(ctx context.Context, t tx.Tx) error
	// Settled reports whether the message is gone. Call it after each AckTx, when the transaction
	// has ended.
	//
	// After false the transaction was rolled back, or AckTx was not called. The lease is renewed,
	// and the delivery must still be settled.
	//
	//   - Returns [ErrLeaseLost] if the broker took the message back.
	//   - Returns [ErrIndeterminate] or [ErrUnavailable] if the transaction is open, or the
	//     database does not answer. Call Settled again.
	Settled(ctx context.Context) (bool, error)
}
