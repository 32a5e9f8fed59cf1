package sqlbroker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/tx"
)

// ackRights are the privileges that the role of a transaction of AckTx needs.
var ackRights = []string{"SELECT swarmiji_message", "DELETE swarmiji_message"}

// CheckTx implements [tx.Checker]. It returns nil if PublishTx and AckTx can use t: t is a
// transaction of the Broker's database, and on PostgreSQL its role has the rights. These are USAGE
// on the schema, and SELECT, INSERT and DELETE on swarmiji_message. Returns ErrUnsupported for
// another database, ErrAccess without the rights.
func (b *Broker) CheckTx(ctx context.Context, t tx.Tx) error {
	err := b.conn.Join(ctx, t, b.ready, append(ackRights, joinRights...), func(context.Context, *sqlconn.Tx) error { return nil })
	return wrap(err, "use a transaction in", b.cfg.Namespace)
}

// AckTx implements [broker.TxAcker]. It deletes the message under the token of its claim. On
// PostgreSQL the role of t needs SELECT and DELETE on swarmiji_message. In a transaction with
// REPEATABLE READ or SERIALIZABLE it fails with a serialization failure if the lease was renewed
// after the first statement of t.
func (d *delivery) AckTx(ctx context.Context, t tx.Tx) error {
	again, err := d.beginTx(ctx)
	if err != nil {
		return err
	}
	gone, xact := true, ""
	err = d.sub.b.conn.Join(ctx, t, d.sub.b.ready, ackRights, func(ctx context.Context, j *sqlconn.Tx) error {
		err := j.Row(ctx, d.sub.b.text.ackOne, d.key()...).Scan(&xact)
		if gone = !errors.Is(err, sqlconn.ErrNoRows); !gone {
			return nil
		}
		return err
	})
	d.sub.mu.Lock()
	defer d.sub.mu.Unlock()
	switch {
	case err != nil: // nothing was deleted, or the transaction cannot commit
		d.inTx = again
		return wrap(err, inTransaction, d.sub.q.name)
	case gone:
		d.xact = xact
		return nil
	case again: // SQLite: the earlier transaction is this one, or has committed
		return d.wrapErr(inTransaction, broker.ErrSettled)
	}
	d.inTx = false
	return d.wrapErr(inTransaction, broker.ErrLeaseLost)
}

const inTransaction = "acknowledge in a transaction"

// beginTx sets d.inTx, so that the delivery is not lost by time. again reports that it was set by
// an earlier call. On PostgreSQL the database is then asked for the outcome of the earlier
// transaction: the delete of the new one would wait for it. On SQLite only one of both can be open.
// It takes the subscription's mutex, but does not hold it while it waits.
//
// Returns ErrSettled if the message is settled, or a settlement or the earlier transaction has not
// ended. Returns ErrLeaseLost if the lease was lost.
func (d *delivery) beginTx(ctx context.Context) (again bool, err error) {
	s := d.sub
	s.mu.Lock()
	again = d.inTx
	switch {
	case d.state != open:
		err = broker.ErrSettled
	case d.gone:
		err = broker.ErrLeaseLost
	}
	s.mu.Unlock()
	if err == nil && again && s.b.postgres() {
		var gone bool
		gone, err = d.Settled(ctx)
		if gone || errors.Is(err, errOpenTx) {
			err = broker.ErrSettled
		}
	}
	if err != nil {
		return false, d.wrapErr(inTransaction, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d.inTx, d.unwanted = true, false
	return again, nil
}

// errOpenTx reports a message that a transaction has locked.
var errOpenTx = errors.New("the transaction that acknowledges the message has not ended")

// Settled implements [broker.TxAcker]. Without AckTx it returns at once: true for a settled
// delivery, otherwise false, or ErrLeaseLost. After AckTx it reads the row of the message:
//
//   - The row does not exist: true. But if PostgreSQL knows that the transaction was rolled back,
//     another consumer has settled the message: ErrLeaseLost. SQLite does not know that. There it
//     is ErrLeaseLost after the end of the lease, also if the transaction was committed.
//   - Another claim has the row: ErrLeaseLost.
//   - The row has the token of d, and its lease is renewed: false. The transaction was rolled back.
//   - The lease cannot be renewed, because the transaction is open: ErrIndeterminate. On SQLite the
//     renewal waits for the end of the transaction.
//
// It takes the subscription's mutex, but does not hold it while it waits for the database.
func (d *delivery) Settled(ctx context.Context) (bool, error) {
	const what = "look for the end of a transaction in"
	s := d.sub
	s.mu.Lock()
	state, inTx, lost, xact := d.state, d.inTx, d.gone, d.xact
	s.mu.Unlock()
	switch {
	case state == settled:
		return true, nil
	case !inTx && lost:
		return false, d.wrapErr("settle", broker.ErrLeaseLost)
	case !inTx:
		return false, nil
	}
	var token *int64 // nil: the message is gone
	var aborted int
	err := s.b.view(ctx, func(ctx context.Context, t *sqlconn.Tx) error {
		return t.Row(ctx, s.b.text.tokenOf, append(d.key()[:3], xact)...).Scan(&token, &aborted)
	})
	if err != nil {
		return false, wrap(err, what, s.q.name)
	}
	renewed := false
	if token != nil && *token == d.token {
		hit, err := s.renewNow(ctx, []*delivery{d})
		if err != nil {
			return false, wrap(err, what, s.q.name)
		}
		if renewed = hit[0]; !renewed {
			return false, d.wrapErr("settle", fmt.Errorf("%w: %w", broker.ErrIndeterminate, errOpenTx))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d.inTx = false
	// Without the id of the transaction a missing row proves its commit only while no other consumer
	// could have settled the message.
	known := xact != "" || time.Now().Before(d.until)
	switch {
	case token == nil && aborted == 0 && known:
		s.markSettled(d)
		return true, nil
	case renewed:
		return false, nil
	}
	s.lose(d)
	return false, d.wrapErr("settle", broker.ErrLeaseLost)
}
