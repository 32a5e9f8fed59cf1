package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/natsconn"
)

// delivery is one message that the server delivered to a level.
type delivery struct {
	msg     broker.Message
	level   *level
	subject string
	reply   string
	seq     uint64 // in the stream
	count   int

	// guarded by the subscription's mutex
	group      *leaseGroup
	prev, next *delivery // in the list of the group
	state      settleState
	maybeAcked bool // an AckSync got no answer; used only while state is busy
}

// settleState is the progress of a delivery's settlement.
type settleState uint8

const (
	open settleState = iota
	busy             // a Release, [delivery.DeadLetter], Retry or AckSync is in progress
	settled
)

// ackInfo holds the data in the reply subject of a delivery.
type ackInfo struct {
	count     int
	seq       uint64
	delivered uint64 // messages that the consumer had delivered, including this one
	pending   uint64 // messages that the consumer had not delivered yet
}

// parseReply reads the reply subject of a delivery. It returns false for any other subject, and if
// a number in it is malformed. The form is $JS.ACK.<stream>.<consumer>.<deliveries>.<stream
// seq>.<consumer seq>.<time>.<pending>, or the newer form with a domain and a hash before the
// stream.
func parseReply(reply string) (ackInfo, bool) {
	rest, ok := strings.CutPrefix(reply, "$JS.ACK.")
	if !ok {
		return ackInfo{}, false
	}
	var tokens [12]string
	n := 0
	for n < len(tokens)-1 {
		i := strings.IndexByte(rest, '.')
		if i < 0 {
			break
		}
		tokens[n], rest = rest[:i], rest[i+1:]
		n++
	}
	tokens[n] = rest
	n++
	at := 2
	if n >= 9 {
		at = 4
	} else if n < 7 {
		return ackInfo{}, false
	}
	count, err1 := strconv.Atoi(tokens[at])
	seq, err2 := strconv.ParseUint(tokens[at+1], 10, 64)
	handed, err3 := strconv.ParseUint(tokens[at+2], 10, 64)
	pending, err4 := strconv.ParseUint(tokens[at+4], 10, 64)
	return ackInfo{count, seq, handed, pending}, err1 == nil && err2 == nil && err3 == nil && err4 == nil
}

// newDelivery returns the delivery of m to the level lv and the data in its reply subject. It
// returns false if m is not a delivery. It does not add it to the held ones.
func newDelivery(lv *level, m *nats.Msg) (*delivery, ackInfo, bool) {
	info, ok := parseReply(m.Reply)
	if !ok {
		return nil, info, false
	}
	d := &delivery{level: lv, subject: m.Subject, reply: m.Reply, seq: info.seq, count: info.count}
	decode(&d.msg, idOf(lastToken(m.Subject)), m.Header, m.Data)
	return d, info, true
}

// Message implements [broker.Delivery]. It returns the same pointer each time.
func (d *delivery) Message() *broker.Message { return &d.msg }

// Deliveries implements [broker.Delivery]. It is always exact.
func (d *delivery) Deliveries() (n int, exact bool) { return d.count, true }

// Lost implements [broker.Delivery]. Deliveries that arrived within a short time share one channel.
func (d *delivery) Lost() <-chan struct{} { return d.group.lost }

// wrapErr returns err with the operation what, the message's id and the queue in its text, nil for
// a nil err.
func (d *delivery) wrapErr(what string, err error) error {
	if err == nil {
		return nil
	}
	return wrap(fmt.Errorf("message %.128q: %w", d.msg.ID, err), what, d.level.s.q.name)
}

// beginSettle reserves d for one settlement and returns nil; end it with endSettle. Returns
// ErrSettled if d is settled or being settled, ErrLeaseLost if its lease has ended. If the end is
// found only now, it marks the whole group of d as lost, see loseGroup. Call it with the
// subscription's mutex held.
func (d *delivery) beginSettle() error {
	s := d.level.s
	switch {
	case d.state != open:
		return broker.ErrSettled
	case d.group.isLost:
		return broker.ErrLeaseLost
	case !time.Now().Before(s.deadline(d.group)):
		s.loseGroup(d.group)
		return broker.ErrLeaseLost
	}
	d.state = busy
	return nil
}

// isUsable reports whether d is not settled and its lease is not lost. Call it with the
// subscription's mutex held.
func (d *delivery) isUsable() bool { return !d.group.isLost && d.state == open }

// isLost reports whether the lease of d is lost. It takes the subscription's mutex.
func (d *delivery) isLost() bool {
	d.level.s.mu.Lock()
	defer d.level.s.mu.Unlock()
	return d.group.isLost
}

// endSettle ends the settlement that beginSettle reserved. If err is nil or ErrLeaseLost, d is
// settled and no longer held. Its level is woken if it may request messages, and a closed
// subscription without further deliveries ends. After another error d can be settled again. Call
// it with the subscription's mutex held.
func (d *delivery) endSettle(err error) {
	s := d.level.s
	if err != nil && !errors.Is(err, broker.ErrLeaseLost) {
		d.state = open
		return
	}
	d.state = settled
	if d.group.isLost {
		return // loseGroup has removed it already
	}
	s.removeHeld(d)
	d.level.unsettled--
	d.level.wakeIfRoom()
	s.endIfDone()
}

// settleNoWait settles d with send, which sends one message to the server and does not wait.
// until is the end of d's lease here. what names the operation in errors. Returns ErrSettled or
// ErrLeaseLost, without a call of send, if d cannot be settled. It takes the subscription's
// mutex, but not during send.
func (d *delivery) settleNoWait(what string, send func(q *queue, reply string, until time.Time)) error {
	s := d.level.s
	s.mu.Lock()
	if err := d.beginSettle(); err != nil {
		s.mu.Unlock()
		return d.wrapErr(what, err)
	}
	until := s.deadline(d.group)
	s.mu.Unlock()
	// This happens before a place of the prefetch becomes free, so that the server never counts one
	// delivery too many.
	send(s.q, d.reply, until)
	s.mu.Lock()
	d.endSettle(nil)
	s.mu.Unlock()
	return nil
}

// settleAndWait settles d with do, which waits for the server. Meanwhile other settlements of d
// return ErrSettled. If do fails, d can be settled again, unless the lease was lost meanwhile:
// then it returns ErrLeaseLost, together with ErrIndeterminate if do may have been executed. what
// names the operation in errors. It takes the subscription's mutex, but not during do.
func (d *delivery) settleAndWait(what string, do func() error) error {
	s := d.level.s
	s.mu.Lock()
	err := d.beginSettle()
	s.mu.Unlock()
	if err != nil {
		return d.wrapErr(what, err)
	}
	err = do()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil || !d.group.isLost:
	// the server may have executed it before it took the message back
	case errors.Is(err, natsconn.ErrIndeterminate):
		err = fmt.Errorf("%w: %w: %w", broker.ErrLeaseLost, broker.ErrIndeterminate, err)
	default:
		err = fmt.Errorf("%w: %w", broker.ErrLeaseLost, err)
	}
	d.endSettle(err)
	return d.wrapErr(what, err)
}

// Ack implements [broker.Delivery]. It never waits. The acknowledgement is sent with others, and
// the last ones are sent again after a lost connection. If the server is killed before it has
// processed an acknowledgement, the message is delivered again. Returns ErrSettled or
// ErrLeaseLost if d cannot be settled.
func (d *delivery) Ack(context.Context) error {
	return d.settleNoWait("acknowledge", d.level.s.b.outbox.ack)
}

// AckSync implements [broker.SyncAcker]. It removes the message from the stream, which succeeds for
// one caller only. An acknowledgement is not enough: a server that was frozen or killed may deliver
// a message to two consumers, each time as the first delivery. It accepts the acknowledgements of
// both.
//
// It waits for a connection until ctx ends, makes one attempt and waits for the answer. After a
// success it also sends the acknowledgement, because the consumer still counts the message. It
// takes the subscription's mutex, but not while it waits.
//
// Errors:
//   - broker.ErrLeaseLost: another consumer has removed the message.
//   - broker.ErrIndeterminate: no answer arrived. A second call returns broker.ErrLeaseLost too if
//     the message no longer exists. It is not known then which caller removed it.
//   - broker.ErrSettled: d is settled, or another settlement is in progress.
//   - Another error, of the connection or because ctx ended: d can be settled again.
func (d *delivery) AckSync(ctx context.Context) error {
	return d.settleAndWait("acknowledge", func() error {
		b, s := d.level.s.b, d.level.s
		session, err := b.conn.Session(ctx)
		if err == nil {
			// settlements from before a lost connection are sent first
			err = b.outbox.useConnection(ctx, session)
		}
		switch {
		case err != nil:
			return err
		case d.isLost():
			return broker.ErrLeaseLost
		}
		taken, err := b.conn.Take(ctx, b.names.stream, d.seq)
		switch {
		case errors.Is(err, natsconn.ErrIndeterminate):
			d.maybeAcked = true
		case err != nil:
		case taken: // the consumer still counts it as delivered
			b.outbox.ack(s.q, d.reply, s.deadlineOf(d))
		case d.maybeAcked:
			return fmt.Errorf("%w: %w", broker.ErrLeaseLost, broker.ErrIndeterminate)
		default:
			return broker.ErrLeaseLost
		}
		return err
	})
}

// Release implements [broker.Delivery]. If after is 0 or less the message goes back at once, and
// Release does not wait for the server. Otherwise a message of the next Generation replaces it in
// one atomic step, see replace, and Release waits for the confirmation. Returns ErrSettled or
// ErrLeaseLost if d cannot be settled. After another error of replace d can be settled again.
func (d *delivery) Release(ctx context.Context, after time.Duration) error {
	if after <= 0 {
		return d.settleNoWait("release", d.level.s.b.outbox.nak)
	}
	next := d.msg
	next.Generation++
	o := broker.Outgoing{Queue: d.level.s.q.name, Message: &next, At: time.Now().Add(after)}
	return d.settleAndWait("release", func() error { return d.replace(ctx, o) })
}
