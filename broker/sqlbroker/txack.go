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

// ackRights returns the privileges that the role of a transaction of AckTx needs.
func (t *texts) ackRights() []string { return []string{"SELECT " + t.table, "DELETE " + t.table} }

// CheckTx implements [tx.Checker]. It returns nil if PublishTx and AckTx can use t: t is a
// transaction of the Broker's database, and on PostgreSQL its role has the rights. These are USAGE
// on the schema, and SELECT, INSERT and DELETE on swarmiji_message. Those on swarmiji_fair_message
// are checked only by PublishTx and AckTx for a fair queue. Returns ErrUnsupported for another
// database, ErrAccess without the rights.
func (b *Broker) CheckTx(ctx context.Context, t tx.Tx) error {
	rights := append(b.text.ackRights(), b.text.joinRights()...)
	err := b.conn.Join(ctx, t, b.ready, rights, func(context.Context, *sqlconn.Tx) error { return nil })
	return wrap(err, "use a transaction in", b.cfg.Namespace)
}

// AckTx implements [broker.TxAcker]. It deletes the message under the token of its claim. On
// PostgreSQL the role of t needs SELECT and DELETE on swarmiji_message, or on swarmiji_fair_message
// for a fair queue. In a transaction with REPEATABLE READ or SERIALIZABLE it fails with a
// serialization failure if the lease was renewed after the first statement of t.
func (d *delivery) AckTx(ctx context.Context, t tx.Tx) error {
	again, err := d.beginTx(ctx)
	if err != nil {
		return err
	}
	deleted, xact := true, ""
	err = d.sub.b.conn.Join(ctx, t, d.sub.b.ready, d.sub.q.text.ackRights(), func(ctx context.Context, j *sqlconn.Tx) error {
		err := j.Row(ctx, d.sub.q.text.ackOne, d.key()...).Scan(&xact)
		if deleted = !errors.Is(err, sqlconn.ErrNoRows); !deleted {
			return nil
		}
		if err == nil && d.sub.q.inUse.Load() {
			j.Notify(d.sub.q.topic)
		}
		return err
	})
	d.sub.mu.Lock()
	defer d.sub.mu.Unlock()
	switch {
	case err != nil: // nothing was deleted, or the transaction cannot commit
		d.inTx = again
		return wrap(err, inTransaction, d.sub.q.name)
	case deleted:
		d.xact = xact
		return nil
	case again: // on SQLite only: the earlier transaction is this one, or has committed
		return d.wrapErr(inTransaction, broker.ErrSettled)
	}
	d.inTx = false
	return d.wrapErr(inTransaction, broker.ErrLeaseLost)
}

const inTransaction = "acknowledge in a transaction"

// beginTx sets d.inTx, so that the delivery is not lost by time. After an earlier call it asks
// PostgreSQL for the outcome of its transaction: the delete of the new one would wait for it. On
// SQLite only one of both can be open. There again reports an earlier call; on PostgreSQL it is
// false. beginTx takes the subscription's mutex, but does not hold it while it waits.
//
// Returns ErrSettled if the message is settled, or a settlement or the earlier transaction has not
// ended. Returns ErrLeaseLost if the lease was lost.
func (d *delivery) beginTx(ctx context.Context) (again bool, err error) {
	s := d.sub
	s.mu.Lock()
	again = d.inTx
	xact := d.xact
	switch {
	case d.state != open:
		err = broker.ErrSettled
	case d.leaseLost:
		err = broker.ErrLeaseLost
	}
	s.mu.Unlock()
	if err == nil && again && s.b.postgres() {
		again, err = false, d.checkRolledBack(ctx, xact)
	}
	if err != nil {
		return false, d.wrapErr(inTransaction, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d.inTx, d.xact, d.unwanted = true, "", false
	return again, nil
}

// checkRolledBack returns nil if xact, the PostgreSQL transaction of an earlier AckTx, was rolled
// back and d still has its message. It returns ErrSettled if the transaction is open or committed,
// and otherwise the errors of Settled. It renews no lease if PostgreSQL knows of the rollback: a
// renewal makes AckTx fail in a transaction that has its snapshot already.
//
// It takes the subscription's mutex, but does not hold it while it waits for the database.
func (d *delivery) checkRolledBack(ctx context.Context, xact string) error {
	token, aborted, err := d.readToken(ctx, xact)
	if err == nil && aborted && token != nil && *token == d.token {
		return nil
	}
	ended, err := d.Settled(ctx)
	if ended || errors.Is(err, errOpenTx) {
		return broker.ErrSettled
	}
	return err
}

// readToken returns the token in the row of d's message, nil if the row does not exist. aborted
// reports that PostgreSQL knows that the transaction xact was rolled back. It is false for an xact
// of "". It returns the errors of the database.
func (d *delivery) readToken(ctx context.Context, xact string) (token *int64, aborted bool, err error) {
	var n int
	err = d.sub.b.view(ctx, func(ctx context.Context, t *sqlconn.Tx) error {
		return t.Row(ctx, d.sub.q.text.tokenOf, append(d.key()[:3], xact)...).Scan(&token, &n)
	})
	return token, n != 0, err
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
	state, inTx, lost, xact := d.state, d.inTx, d.leaseLost, d.xact
	s.mu.Unlock()
	switch {
	case state == settled:
		return true, nil
	case !inTx && lost:
		return false, d.wrapErr("settle", broker.ErrLeaseLost)
	case !inTx:
		return false, nil
	}
	token, aborted, err := d.readToken(ctx, xact)
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
	// Without the id of the transaction a missing row proves its commit only while no other
	// consumer could have settled the message.
	known := xact != "" || time.Now().Before(d.until)
	switch {
	case token == nil && !aborted && known:
		s.markSettled(d)
		return true, nil
	case renewed:
		return false, nil
	}
	s.lose(d)
	return false, d.wrapErr("settle", broker.ErrLeaseLost)
}
