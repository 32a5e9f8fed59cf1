package redisbroker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/redisconn"
)

// settleState is the progress of a delivery's settlement.
type settleState uint8

const (
	open     settleState = iota
	settling             // a settlement is in progress
	settled
)

// delivery implements broker.Delivery and broker.SyncAcker. Its message, key, claim and count do
// not change. The subscription's mutex guards the other fields.
type delivery struct {
	message broker.Message
	key     string
	sub     *subscription
	claim   *claim // the claim that holds it
	count   int

	state        settleState
	next         chan struct{} // closed when the current settlement ends; nil: no waiter
	maybeAcked   bool          // an acknowledgement may have been executed
	maybeSettled bool          // another settlement may have been executed
	answered     bool          // the server has answered a settlement
}

// Message implements [broker.Delivery]. It returns the same pointer each time.
func (d *delivery) Message() *broker.Message { return &d.message }

// Deliveries implements [broker.Delivery]. It is always exact.
func (d *delivery) Deliveries() (n int, exact bool) { return d.count, true }

// Lost implements [broker.Delivery]. The channel is closed when the lease could not be renewed in
// time, and by Broker.Close.
func (d *delivery) Lost() <-chan struct{} { return d.claim.owner.lost }

// beginSettle reserves d for one settlement. While another settlement is in progress it blocks. It
// takes the subscription's mutex, but does not hold it while it blocks.
//
//   - d is reserved: nil. The caller must call endSettle.
//   - An earlier settlement succeeded: ErrSettled.
//   - The lease of the owner was lost: ErrLeaseLost.
//   - ctx ends while it waits: ErrUnavailable.
func (d *delivery) beginSettle(ctx context.Context) error {
	s := d.sub
	for {
		s.mu.Lock()
		switch {
		case d.state == settled:
			s.mu.Unlock()
			return d.wrapErr("settle", broker.ErrSettled)
		case d.claim.owner.gone:
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
//   - Another error: d can be settled again.
//
// acked must be true for acknowledgements: sendAcks counts d as ended in its claim then, and
// endSettle does not.
func (d *delivery) endSettle(err error, acked bool) {
	s := d.sub
	s.mu.Lock()
	if d.next != nil {
		close(d.next)
		d.next = nil
	}
	if err != nil && !broker.Gone(err) {
		d.state = open
		s.mu.Unlock()
		return
	}
	d.state = settled
	s.removeHeld(d)
	if !acked {
		s.countEnded(d)
	}
	s.mu.Unlock()
	s.afterSettle()
}

// wrapErr returns err, which must not be nil, with the operation what, the message's id and the
// queue in its text.
func (d *delivery) wrapErr(what string, err error) error {
	return fmt.Errorf("redis %s %.128q in %.128q: %w", what, d.message.ID, d.sub.q.name, err)
}

// Ack implements [broker.Delivery]. It marks d as settled and adds the acknowledgement to the
// next round trip, without waiting for the server. The round trip is repeated until the server
// has answered or the lease is lost. Its result is not reported to any caller. Ack blocks only
// while another settlement of d is in progress. Returns ErrSettled or ErrLeaseLost if d is no
// longer held.
func (d *delivery) Ack(ctx context.Context) error {
	if err := d.beginSettle(ctx); err != nil {
		return err
	}
	d.sub.acks.add(&entry[*delivery]{v: d})
	d.endSettle(nil, true)
	return nil
}

// AckSync implements [broker.SyncAcker]. It adds the acknowledgement to the next round trip and
// waits for the answer, and for the replicas of Config.WaitReplicas. Before that it waits for
// another settlement of d in progress. A lost answer is asked for again.
//
//   - ctx ends before the answer: ErrUnavailable if nothing was sent, otherwise ErrIndeterminate.
//     Then d can be settled again.
//   - Too few replicas confirm: ErrNotReplicated, with ErrIndeterminate.
//   - d is no longer held: ErrSettled or ErrLeaseLost.
//   - The server answers with another error: that error. Then d can be settled again.
func (d *delivery) AckSync(ctx context.Context) error {
	if err := d.beginSettle(ctx); err != nil {
		return err
	}
	c := newCall(1)
	e := &entry[*delivery]{v: d, call: c}
	d.sub.acks.add(e)
	err := d.recordUnknown(wrap(d.sub.acks.wait(ctx, c, []*entry[*delivery]{e})[0], "acknowledge in", d.sub.q.name), &d.maybeAcked)
	d.endSettle(err, true)
	return err
}

// recordUnknown sets *noted to true if err means that a settlement may have been executed. It
// returns err unchanged. It takes the subscription's mutex, which guards *noted.
func (d *delivery) recordUnknown(err error, noted *bool) error {
	if errors.Is(redisconn.Class(err), redisconn.ErrIndeterminate) {
		d.sub.mu.Lock()
		*noted = true
		d.sub.mu.Unlock()
	}
	return err
}

// notHeldError returns the result of a settlement for which the server did not find d under its
// claim. ack says that it is an acknowledgement, resent that it was sent before. It takes the
// subscription's mutex.
//
//   - ErrLeaseLost, if no earlier settlement can have been executed, or if the lease may have
//     ended.
//   - nil, if this is an acknowledgement, and the only earlier settlements that may have been
//     executed were acknowledgements.
//   - ErrSettled otherwise.
func (d *delivery) notHeldError(ack, resent bool) error {
	d.sub.mu.Lock()
	defer d.sub.mu.Unlock()
	switch {
	case !resent && !d.maybeAcked && !d.maybeSettled || !d.claim.owner.alive(time.Now()):
		return d.wrapErr("settle", broker.ErrLeaseLost)
	case ack && !d.maybeSettled:
		return nil
	}
	return d.wrapErr("settle", broker.ErrSettled)
}

// Release implements [broker.Delivery]. Without a delay the message goes to the front of its queue.
// With a delay it keeps its Generation. In both cases the delivery counts. It waits for the server,
// and before that for another settlement of d in progress.
//
// Returns ErrSettled or ErrLeaseLost if d is no longer held, and ErrUnavailable if ctx ends before
// the release is sent. ErrIndeterminate means that the message may have been released. After any
// error but the first two d can be settled again.
func (d *delivery) Release(ctx context.Context, after time.Duration) error {
	if err := d.beginSettle(ctx); err != nil {
		return err
	}
	err := d.recordUnknown(d.release(ctx, after), &d.maybeSettled)
	d.endSettle(err, false)
	return err
}

// release sends the release of d to the server and waits for the answer. It rounds after up to
// microseconds; 0 or less means no delay. If d is no longer held there, it returns notHeldError.
func (d *delivery) release(ctx context.Context, after time.Duration) error {
	q := d.sub.q
	answer, _, err := q.callWithLevels(ctx, q.b.conn.Eval, q.b.scripts.release,
		q.names.channels(), d.key, d.claim.name, max(0, (after+time.Microsecond-1).Microseconds()), 1)
	switch {
	case err != nil:
		return wrap(err, "release in", q.name)
	case !strings.HasPrefix(text(answer, 1), "1"):
		return d.notHeldError(false, false)
	}
	return nil
}

// DeadLetter implements [broker.Delivery]. One script moves the message from the held messages to
// the dead letters. It waits for the server and the replicas of Config.WaitReplicas, and before
// that for another settlement of d in progress.
//
// Returns ErrSettled or ErrLeaseLost if d is no longer held. ErrIndeterminate means that the
// message may have been moved. After any error but the first two d can be settled again.
func (d *delivery) DeadLetter(ctx context.Context, dead broker.Dead) error {
	if err := d.beginSettle(ctx); err != nil {
		return err
	}
	err := d.recordUnknown(d.deadLetter(ctx, dead), &d.maybeSettled)
	d.endSettle(err, false)
	return err
}

// deadLetter sends the dead-lettering of d to the server and waits for the answer, and for the
// replicas of Config.WaitReplicas. If d is no longer held there, it returns notHeldError.
func (d *delivery) deadLetter(ctx context.Context, dead broker.Dead) error {
	q := d.sub.q
	v, err := q.eval(ctx, q.b.write, q.b.scripts.bury, append([]any{d.key, d.claim.name}, q.b.deadArgs(dead)...)...)
	if err != nil {
		return wrap(err, "dead-letter in", q.name)
	}
	if v != int64(1) {
		return d.notHeldError(false, false)
	}
	return nil
}

// sendAcks sends the acknowledgements es in one round trip, sets their errors, and returns their
// number. It is the send function of the batcher of acknowledgements.
//
//   - If a caller waits for one of es, it also waits for the replicas of Config.WaitReplicas. If
//     they are too few, all entries get ErrNotReplicated.
//   - An entry whose message the server did not find under its claim gets notHeldError.
//   - If the round trip fails, it returns 0 and the error for all entries.
//
// It counts the answered deliveries as ended in their claims. It takes s.mu.
func (s *subscription) sendAcks(ctx context.Context, es []*entry[*delivery]) (int, error) {
	args := make([]any, 2*len(es))
	for i, e := range es {
		args[i], args[len(es)+i] = e.v.key, e.v.claim.name
	}
	eval := s.b.conn.EvalOnce
	if s.b.cfg.WaitReplicas > 0 && hasWaiter(es) {
		eval = s.b.writeOnce
	}
	v, err := s.q.eval(ctx, eval, s.b.scripts.ack, args...)
	doubt := error(nil)
	if errors.Is(err, ErrNotReplicated) { // the script was executed
		doubt, err = err, nil
	}
	if err != nil {
		return 0, err
	}
	answer, some := v.(string)
	if !some && v != int64(1) || some && len(answer) != len(es) {
		return 0, errAnswer
	}
	for i, e := range es {
		e.err = doubt
		if some && answer[i] != '1' {
			e.err = e.v.notHeldError(true, e.maybeSent)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range es {
		s.countEnded(e.v)
	}
	return len(es), nil
}

// hasWaiter reports whether a caller waits for one of the entries.
func hasWaiter(es []*entry[*delivery]) bool {
	for _, e := range es {
		if e.call != nil {
			return true
		}
	}
	return false
}

// shouldResendAck reports whether acknowledgement e, which got no answer, is sent again. It
// returns false if the lease is lost. It takes s.mu.
func (s *subscription) shouldResendAck(e *entry[*delivery]) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !e.v.claim.owner.gone
}
