package sqlbroker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// settleState is the progress of a delivery's settlement.
type settleState uint8

const (
	open     settleState = iota
	settling             // a settlement is in progress
	settled
)

// delivery implements broker.Delivery and broker.SyncAcker. Its message, token, level and count do
// not change. The subscription's mutex guards the other fields.
type delivery struct {
	message broker.Message
	sub     *subscription
	token   int64 // of the claim; the database refuses settlements with another
	level   int
	count   int
	lost    chan struct{}

	until time.Time // the lease lasts at least until then
	gone  bool      // lost is closed
	state settleState
	next  chan struct{} // closed when the current settlement ends; nil: no waiter
	maybe kind          // a settlement of this kind may have been executed; 0: none
}

// key returns the columns that identify the delivery in the database.
func (d *delivery) key() []any {
	k := make([]any, 0, len(keyColumns)+len(insertColumns))
	return append(k, d.sub.q.id, d.message.ID, int64(d.message.Generation), d.token)
}

// alive reports whether the lease certainly lasts at now. Call it with the subscription's mutex
// held, or for a delivery that Receive has not returned.
func (d *delivery) alive(now time.Time) bool { return !d.gone && now.Before(d.until) }

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
//   - An earlier settlement succeeded: ErrSettled.
//   - The lease was lost: ErrLeaseLost.
//   - ctx ends while it waits: ErrUnavailable.
func (d *delivery) beginSettle(ctx context.Context) error {
	s := d.sub
	for {
		s.mu.Lock()
		switch {
		case d.state == settled:
			s.mu.Unlock()
			return d.wrapErr("settle", broker.ErrSettled)
		case d.gone:
			s.mu.Unlock()
			return d.wrapErr("settle", broker.ErrLeaseLost)
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
	if err != nil && !broker.Gone(err) {
		d.state = open
		if errors.Is(err, broker.ErrIndeterminate) {
			d.maybe |= k
		}
		return
	}
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
// transaction, without waiting for the database. That is repeated until the database has answered
// or the lease is lost. Its result is not reported to any caller. Ack blocks only while another
// settlement of d is in progress. Returns ErrSettled or ErrLeaseLost if d is no longer held.
func (d *delivery) Ack(ctx context.Context) error {
	if err := d.beginSettle(ctx); err != nil {
		return err
	}
	d.sub.settles.add(&entry[settlement]{v: settlement{d: d, kind: acked}})
	d.endSettle(acked, nil)
	return nil
}

// AckSync implements [broker.SyncAcker]. It adds the acknowledgement to the next transaction and
// waits for its commit. Its errors are those of await.
func (d *delivery) AckSync(ctx context.Context) error {
	return d.await(ctx, settlement{d: d, kind: acked}, "acknowledge in")
}

// Release implements [broker.Delivery]. Without a delay the message goes back to its place in the
// queue. With a delay it becomes due after that time, with the same Generation. In both cases the
// delivery counts. It waits for the commit. Its errors are those of await.
func (d *delivery) Release(ctx context.Context, after time.Duration) error {
	return d.await(ctx, settlement{d: d, kind: released, after: d.sub.b.delay(after)}, "release in")
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
	e := &entry[settlement]{v: v, call: newCall(1)}
	d.sub.settles.add(e)
	err := wrap(d.sub.settles.wait(ctx, e.call, []*entry[settlement]{e})[0], what, d.sub.q.name)
	d.endSettle(v.kind, err)
	return err
}

// notHeld returns the result of a settlement of kind k for which the database did not find d under
// its token. resent says that this settlement was sent before. It takes the subscription's mutex.
//
//   - ErrLeaseLost, if no settlement of d had an unknown outcome, or if the lease has ended.
//   - nil, if only acknowledgements had one and this is an acknowledgement. Also nil, if only
//     earlier sendings of this settlement had one.
//   - ErrSettled otherwise.
func (d *delivery) notHeld(k kind, resent bool) error {
	d.sub.mu.Lock()
	defer d.sub.mu.Unlock()
	maybe := d.maybe
	if resent {
		maybe |= k
	}
	switch {
	case maybe == 0 || !time.Now().Before(d.until):
		return d.wrapErr("settle", broker.ErrLeaseLost)
	case maybe == k && k == acked:
		return nil
	case maybe == k && resent && d.maybe == 0:
		return nil
	}
	return d.wrapErr("settle", broker.ErrSettled)
}

// shouldResend reports whether a settlement that got no answer is sent again. It returns false if
// the lease is lost. It takes s.mu.
func (s *subscription) shouldResend(e *entry[settlement]) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Before(e.v.d.until)
}
