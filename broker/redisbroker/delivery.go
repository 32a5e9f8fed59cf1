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

// outcome is what became of a delivery.
type outcome uint8

const (
	open     outcome = iota
	settling         // a settlement is under way
	settled
)

// delivery implements broker.Delivery and broker.SyncAcker. Its message, key, claim and count do not change; the rest is guarded
// by the subscription's mutex.
type delivery struct {
	message broker.Message
	key     string
	sub     *subscription
	claim   *claim // under which it is held
	count   int

	state outcome
	next  chan struct{} // closed when the settlement that is under way has ended, if somebody waits for that
	acked bool          // an acknowledgement may have been executed
	tried bool          // another settlement may have been executed
	told  bool          // the server has answered a settlement
}

// Message implements [broker.Delivery].
func (d *delivery) Message() *broker.Message { return &d.message }

// Deliveries implements [broker.Delivery]. It is always exact.
func (d *delivery) Deliveries() (n int, exact bool) { return d.count, true }

// Lost implements [broker.Delivery]. It is closed when the lease could not be renewed in time, and by Broker.Close.
func (d *delivery) Lost() <-chan struct{} { return d.claim.owner.lost }

// begin reserves d for one settlement; while another is under way it waits for its end.
func (d *delivery) begin(ctx context.Context) error {
	s := d.sub
	for {
		s.mu.Lock()
		switch {
		case d.state == settled:
			s.mu.Unlock()
			return d.fail("settle", broker.ErrSettled)
		case d.claim.owner.gone:
			s.mu.Unlock()
			return d.fail("settle", broker.ErrLeaseLost)
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
			return d.fail("settle", fmt.Errorf("%w: %w", broker.ErrUnavailable, ctx.Err()))
		}
	}
}

// end ends the settlement that begin began. Without an error, or with one that is final, d is settled. The trips of
// acknowledgements count for themselves what is done.
func (d *delivery) end(err error, acked bool) {
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
	s.drop(d)
	if !acked {
		s.finish(d)
	}
	s.mu.Unlock()
	s.after()
}

func (d *delivery) fail(what string, err error) error {
	return fmt.Errorf("redis %s %.128q in %.128q: %w", what, d.message.ID, d.sub.q.name, err)
}

// Ack implements [broker.Delivery]. It does not wait: acknowledgements that come together share a trip, which is repeated until
// the server has answered or the lease is lost.
func (d *delivery) Ack(ctx context.Context) error {
	if err := d.begin(ctx); err != nil {
		return err
	}
	d.sub.acks.add(&entry[*delivery]{v: d})
	d.end(nil, true)
	return nil
}

// AckSync implements [broker.SyncAcker].
func (d *delivery) AckSync(ctx context.Context) error {
	if err := d.begin(ctx); err != nil {
		return err
	}
	c := newCall(1)
	e := &entry[*delivery]{v: d, call: c}
	d.sub.acks.add(e)
	err := d.outcome(wrap(d.sub.acks.wait(ctx, c, []*entry[*delivery]{e})[0], "acknowledge in", d.sub.q.name), &d.acked)
	d.end(err, true)
	return err
}

// outcome notes whether a settlement may have been executed.
func (d *delivery) outcome(err error, noted *bool) error {
	if errors.Is(redisconn.Class(err), redisconn.ErrIndeterminate) {
		d.sub.mu.Lock()
		*noted = true
		d.sub.mu.Unlock()
	}
	return err
}

// notHeld says what it means that the server does not hold a message for d, when it is to be settled: an earlier settlement
// whose answer was lost was executed, if the lease lives; else the lease was lost. Nil: it was an acknowledgement, and this is
// one too (acked is true if an earlier trip of the same was without an answer).
func (d *delivery) notHeld(ack, acked bool) error {
	d.sub.mu.Lock()
	defer d.sub.mu.Unlock()
	switch {
	case !acked && !d.acked && !d.tried || !d.claim.owner.alive(time.Now()):
		return d.fail("settle", broker.ErrLeaseLost)
	case ack && !d.tried:
		return nil
	}
	return d.fail("settle", broker.ErrSettled)
}

// Release implements [broker.Delivery]. With no delay the message goes to the front of its queue, with one it keeps its
// Generation; it counts as handed out either way.
func (d *delivery) Release(ctx context.Context, after time.Duration) error {
	if err := d.begin(ctx); err != nil {
		return err
	}
	err := d.outcome(d.release(ctx, after), &d.tried)
	d.end(err, false)
	return err
}

func (d *delivery) release(ctx context.Context, after time.Duration) error {
	q := d.sub.q
	answer, _, err := q.call(ctx, q.b.conn.Eval, q.b.scripts.release,
		q.names.channels(), d.key, d.claim.name, max(0, (after+time.Microsecond-1).Microseconds()), 1)
	switch {
	case err != nil:
		return wrap(err, "release in", q.name)
	case !strings.HasPrefix(text(answer, 1), "1"):
		return d.notHeld(false, false)
	}
	return nil
}

// Bury implements [broker.Delivery].
func (d *delivery) Bury(ctx context.Context, dead broker.Dead) error {
	if err := d.begin(ctx); err != nil {
		return err
	}
	err := d.outcome(d.bury(ctx, dead), &d.tried)
	d.end(err, false)
	return err
}

func (d *delivery) bury(ctx context.Context, dead broker.Dead) error {
	q := d.sub.q
	v, err := q.eval(ctx, q.b.write, q.b.scripts.bury, append([]any{d.key, d.claim.name}, q.b.noteArgs(dead)...)...)
	if err != nil {
		return wrap(err, "bury in", q.name)
	}
	if v != int64(1) {
		return d.notHeld(false, false)
	}
	return nil
}

// sendAcks makes one trip with acknowledgements.
func (s *subscription) sendAcks(ctx context.Context, es []*entry[*delivery]) (int, error) {
	args := make([]any, 2*len(es))
	for i, e := range es {
		args[i], args[len(es)+i] = e.v.key, e.v.claim.name
	}
	eval := s.b.conn.EvalOnce
	if s.b.cfg.WaitReplicas > 0 && anybodyWaits(es) {
		eval = s.b.writeOnce
	}
	v, err := s.q.eval(ctx, eval, s.b.scripts.ack, args...)
	doubt := error(nil)
	if errors.Is(err, ErrNotReplicated) { // it was executed
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
			e.err = e.v.notHeld(true, e.tried)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range es {
		s.finish(e.v)
	}
	return len(es), nil
}

func anybodyWaits(es []*entry[*delivery]) bool {
	for _, e := range es {
		if e.call != nil {
			return true
		}
	}
	return false
}

// ackAgain reports whether an acknowledgement that did not get through is worth another attempt.
func (s *subscription) ackAgain(e *entry[*delivery]) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !e.v.claim.owner.gone
}
