package sqlbroker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/turns"
)

// settleState is the progress of a delivery's settlement.
type settleState uint8

const (
	open     settleState = iota
	settling             // a settlement is in progress
	settled
)

// delivery implements broker.Delivery, broker.SyncAcker and broker.TxAcker. Its message, token,
// level and count do not change. The subscription's mutex guards the other fields.
type delivery struct {
	message broker.Message
	sub     *subscription
	token   int64 // of the claim; the database refuses settlements with another
	level   int
	count   int
	lost    chan struct{}
	entry   *turns.Entry[*delivery] // in subscription.unread, for a fair queue

	claimed   time.Time // when the answer to the claim had arrived
	until     time.Time // the lease lasts at least until then
	leaseLost bool      // lost is closed
	state     settleState
	next      chan struct{} // closed when the current settlement ends; nil: no waiter
	maybe     kind          // a settlement of this kind may have been executed; 0: none
	inTx      bool          // a transaction of AckTx may be open or committed
	xact      string        // the id of that transaction on PostgreSQL, if AckTx has succeeded
	// Release has failed, perhaps because that transaction is open
	unwanted bool
}

// key returns the values of keyColumns, which identify the delivery in the database, in their
// order. The caller may append to the result.
func (d *delivery) key() []any {
	k := make([]any, 0, len(keyColumns)+len(plainColumns))
	return append(k, d.sub.q.id, d.message.ID, int64(d.message.Generation), d.token)
}

// alive reports whether the lease certainly lasts at now. Call it with the subscription's mutex
// held, or for a delivery that Receive has not returned.
func (d *delivery) alive(now time.Time) bool { return !d.leaseLost && now.Before(d.until) }

// Message implements [broker.Delivery]. It returns the same pointer each time.
func (d *delivery) Message() *broker.Message { return &d.message }

// Deliveries implements [broker.Delivery]. It is always exact.
func (d *delivery) Deliveries() (n int, exact bool) { return d.count, true }

// Lost implements [broker.Delivery]. The channel is closed when the lease could not be renewed in
// time, and by Broker.Close.
func (d *delivery) Lost() <-chan struct{} { return d.lost }

// beginSettle reserves d for one settlement. While another settlement is in progress it blocks. It
// takes the subscription's mutex, but does not hold it while it blocks.
//
//   - d is reserved: nil. The caller must call endSettle.
//   - An earlier settlement or a transaction of AckTx succeeded: ErrSettled.
//   - The lease was lost: ErrLeaseLost.
//   - ctx ends while it waits: ErrUnavailable.
//   - After AckTx it waits for the database. Its further errors are those of Settled.
func (d *delivery) beginSettle(ctx context.Context) error {
	s := d.sub
	for {
		s.mu.Lock()
		switch {
		case d.state == settled:
			s.mu.Unlock()
			return d.wrapErr("settle", broker.ErrSettled)
		case d.leaseLost:
			s.mu.Unlock()
			return d.wrapErr("settle", broker.ErrLeaseLost)
		case d.state == open && d.inTx:
			s.mu.Unlock()
			if committed, err := d.Settled(ctx); err != nil || committed {
				return cmp.Or(err, d.wrapErr("settle", broker.ErrSettled))
			}
			continue
		case d.state == open:
			d.state = settling
			s.mu.Unlock()
			return nil
		}
		if d.next == nil {
			d.next = make(chan struct{})
		}
		next := d.next
		s.mu.Unlock()
		select {
		case <-next:
		case <-ctx.Done():
			return d.wrapErr("settle", fmt.Errorf("%w: %w", broker.ErrUnavailable, ctx.Err()))
		}
	}
}

// endSettle ends the settlement that beginSettle reserved, and wakes the calls of beginSettle that
// wait. It takes the subscription's mutex.
//
//   - err is nil and the kind is kept: d can be settled.
//   - err is nil, ErrSettled or ErrLeaseLost: d is settled and no longer held. The claiming
//     goroutine is woken if it can claim more messages now.
//   - Another error: d can be settled again. After ErrIndeterminate a settlement of this kind may
//     have been executed.
func (d *delivery) endSettle(k kind, err error) {
	s := d.sub
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.next != nil {
		close(d.next)
		d.next = nil
	}
	if err == nil && k == kept || err != nil && !broker.Gone(err) {
		d.state = open
		if errors.Is(err, broker.ErrIndeterminate) && k != kept {
			d.maybe |= k
		}
		return
	}
	s.markSettled(d)
}

// markSettled marks d as settled and no longer held. It wakes the claiming goroutine if it can
// claim more messages now. Call it with s.mu held.
func (s *subscription) markSettled(d *delivery) {
	d.state = settled
	delete(s.held, d)
	if s.claimable() > 0 {
		s.wakeFetch.Notify()
	}
	if s.isClosed && len(s.held) == 0 {
		s.wakeLease.Notify()
	}
}

// wrapErr returns err, which must not be nil, with the operation what, the message's id and the
// queue in its text.
func (d *delivery) wrapErr(what string, err error) error {
	return fmt.Errorf("sql %s %.128q in %.128q: %w", what, d.message.ID, d.sub.q.name, err)
}

// Ack implements [broker.Delivery]. It marks d as settled and adds the acknowledgement to the next
// transaction, without waiting for the database. After an error the acknowledgement is repeated
// until the database has executed it, or the subscription is closed and the lease is over. Its
// result is not reported to any caller. Ack blocks only while another settlement of d is in
// progress. Returns ErrSettled or ErrLeaseLost if d is no longer held.
func (d *delivery) Ack(ctx context.Context) error {
	if err := d.beginSettle(ctx); err != nil {
		return err
	}
	d.sub.settles.Add(&sqlconn.Entry[settlement]{V: settlement{d: d, kind: acked}})
	d.endSettle(acked, nil)
	return nil
}

// AckSync implements [broker.SyncAcker]. It adds the acknowledgement to the next transaction and
// waits for its commit. Before that it makes the claim durable. Its errors are those of await.
func (d *delivery) AckSync(ctx context.Context) error {
	const what = "acknowledge in"
	if err := d.makeDurable(ctx, what); err != nil {
		return err
	}
	return d.await(ctx, settlement{d: d, kind: acked}, what)
}

// Release implements [broker.Delivery]. Without a delay the message goes back to its place in the
// queue. With a delay it becomes due after that time, with the same Generation. In both cases the
// delivery counts. It waits for the commit. Its errors are those of await. It takes the
// subscription's mutex, but does not hold it while it waits.
func (d *delivery) Release(ctx context.Context, after time.Duration) error {
	err := d.await(ctx, settlement{d: d, kind: released, after: d.sub.b.delay(after)}, "release in")
	d.sub.mu.Lock()
	defer d.sub.mu.Unlock()
	switch {
	case err != nil:
		d.unwanted = true
	case after <= 0:
		d.sub.refund(d)
	}
	return err
}

// DeadLetter implements [broker.Delivery]. One transaction moves the message from the queue to the
// dead letters. Then it may remove letters above the limits, and ignores errors of that. It waits
// for the database. Its errors are those of await.
func (d *delivery) DeadLetter(ctx context.Context, dead broker.Dead) error {
	err := d.await(ctx, settlement{d: d, kind: deadLettered, dead: dead.Normalized()}, "dead-letter in")
	if err == nil {
		d.sub.b.trimSoon(ctx, d.sub.q)
	}
	return err
}

// await adds a settlement to the next transaction and waits for its commit. Before that it waits
// for another settlement of d in progress. A lost answer is asked for again while the lease lasts.
// It takes the subscription's mutex, but does not hold it while it waits.
//
//   - ctx ends before the answer: ErrUnavailable if nothing was sent, otherwise ErrIndeterminate.
//     Then d can be settled again.
//   - d is no longer held: ErrSettled or ErrLeaseLost.
//   - The database refuses: its error, for example ErrBlocked for a full disk. Then d can be
//     settled again.
func (d *delivery) await(ctx context.Context, v settlement, what string) error {
	if err := d.beginSettle(ctx); err != nil {
		return err
	}
	e := &sqlconn.Entry[settlement]{V: v, Call: sqlconn.NewBatchCall(1)}
	d.sub.settles.Add(e)
	err := wrap(d.sub.settles.Wait(ctx, e.Call, []*sqlconn.Entry[settlement]{e})[0], what, d.sub.q.name)
	d.endSettle(v.kind, err)
	return err
}

// notHeldError returns the result of a settlement of kind k for which the database did not find d
// under its token. resent says that this settlement was sent before. It takes the subscription's
// mutex.
//
//   - ErrIndeterminate, if the lease has ended and this acknowledgement may have been executed:
//     either it was, or another consumer has the message.
//   - ErrLeaseLost, if no settlement of d had an unknown outcome, or if the lease has ended. Always
//     for the kind kept.
//   - nil, if only acknowledgements had one and this is an acknowledgement. Also nil, if only
//     earlier sendings of this settlement had one.
//   - ErrSettled otherwise.
func (d *delivery) notHeldError(k kind, resent bool) error {
	d.sub.mu.Lock()
	defer d.sub.mu.Unlock()
	maybe := d.maybe
	if resent {
		maybe |= k
	}
	ended := !time.Now().Before(d.until)
	switch {
	case ended && k == acked && maybe&acked != 0:
		return d.wrapErr("settle", broker.ErrIndeterminate)
	case k == kept || maybe == 0 || ended:
		return d.wrapErr("settle", broker.ErrLeaseLost)
	case maybe == k && k == acked:
		return nil
	case maybe == k && resent && d.maybe == 0:
		return nil
	}
	return d.wrapErr("settle", broker.ErrSettled)
}

// shouldResend reports whether a settlement that failed with err is sent again:
//
//   - A caller waits for it: if the outcome is unknown and the lease lasts.
//   - No caller waits: until the subscription is closed, and then while the lease lasts. The token
//     makes a late one harmless. After ErrClosed it is not sent again.
//
// It takes s.mu.
func (s *subscription) shouldResend(e *sqlconn.Entry[settlement], err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	lasts := time.Now().Before(e.V.d.until)
	if e.Call == nil {
		return !errors.Is(err, broker.ErrClosed) && (lasts || !s.isClosed)
	}
	return errors.Is(err, sqlconn.ErrIndeterminate) && lasts
}

// isDurable reports whether the claim of d outlives a crash of the server. If not, the message may
// be delivered to another consumer, and then a missing row does not prove an acknowledgement. A
// process that uses a SQLite file ends with the machine, so each of its claims is durable. It takes
// s.mu.
func (s *subscription) isDurable(d *delivery) bool {
	if !s.b.postgres() {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !d.claimed.After(s.durable)
}

// setDurable records that a commit that began at the given time is on the disk. All claims that
// were answered before are on the disk too. It takes s.mu.
func (s *subscription) setDurable(begun time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if begun.After(s.durable) {
		s.durable = begun
	}
}

// makeDurable makes the claim of d durable, unless it is. It runs beside no renewal of leases: each
// leaves out rows that the other has locked, and would take them for lost. It waits for the running
// renewal and for the database. Returns ErrUnavailable if ctx ends before anything was sent, and
// the errors of await. It takes s.mu, but does not hold it while it waits.
func (d *delivery) makeDurable(ctx context.Context, what string) error {
	s := d.sub
	if s.isDurable(d) {
		return nil
	}
	select {
	case s.renewing <- struct{}{}:
		defer func() { <-s.renewing }()
	case <-ctx.Done():
		return wrap(errNotSent(ctx), what, s.q.name)
	}
	if s.isDurable(d) {
		return nil
	}
	begun := time.Now()
	if err := d.await(ctx, settlement{d: d, kind: kept}, what); err != nil {
		return err
	}
	s.setDurable(begun)
	return nil
}
