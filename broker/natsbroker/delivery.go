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

// delivery is one message that the server handed to a level.
type delivery struct {
	msg     broker.Message
	level   *level
	subject string
	reply   string
	seq     uint64 // in the stream
	count   int

	// guarded by the subscription's mutex
	hold       *hold
	prev, next *delivery // in the hold
	state      settleState
	tried      bool // an AckSync had no answer
}

type settleState uint8

const (
	open    settleState = iota
	busy                // a Release, Bury, Retry or AckSync is under way
	settled             //
)

// ackInfo is what the subject of an answer tells of a delivery.
type ackInfo struct {
	count   int
	seq     uint64
	handed  uint64 // messages that the consumer had handed out, with this one
	pending uint64
}

// parseReply reads $JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<time>.<pending>, or the newer form with
// a domain and a hash before the stream.
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

func newDelivery(lv *level, m *nats.Msg) (*delivery, ackInfo, bool) {
	info, ok := parseReply(m.Reply)
	if !ok {
		return nil, info, false
	}
	d := &delivery{level: lv, subject: m.Subject, reply: m.Reply, seq: info.seq, count: info.count}
	decode(&d.msg, idOf(lastToken(m.Subject)), m.Header, m.Data)
	return d, info, true
}

// Message implements [broker.Delivery].
func (d *delivery) Message() *broker.Message { return &d.msg }

// Deliveries implements [broker.Delivery].
func (d *delivery) Deliveries() (n int, exact bool) { return d.count, true }

// Lost implements [broker.Delivery]. It is one channel for all that came within a short time.
func (d *delivery) Lost() <-chan struct{} { return d.hold.lost }

func (d *delivery) failed(what string, err error) error {
	if err == nil {
		return nil
	}
	return wrap(fmt.Errorf("message %.128q: %w", d.msg.ID, err), what, d.level.s.q.name)
}

// begin takes the delivery for a settlement; s.mu is held.
func (d *delivery) begin() error {
	s := d.level.s
	switch {
	case d.state != open:
		return broker.ErrSettled
	case d.hold.dead:
		return broker.ErrLeaseLost
	case !time.Now().Before(s.deadline(d.hold)):
		s.lose(d.hold)
		return broker.ErrLeaseLost
	}
	d.state = busy
	return nil
}

// lost reports whether the delivery was given up.
func (d *delivery) lost() bool {
	d.level.s.mu.Lock()
	defer d.level.s.mu.Unlock()
	return d.hold.dead
}

// finish ends a settlement: nil removes the delivery, an error leaves it to be settled again; s.mu is held.
func (d *delivery) finish(err error) {
	s := d.level.s
	if err != nil && !errors.Is(err, broker.ErrLeaseLost) {
		d.state = open
		return
	}
	d.state = settled
	if d.hold.dead {
		return // it is counted no more
	}
	s.leave(d)
	d.level.unsettled--
	d.level.poke()
	s.forget()
}

// settleNow settles with one word to the server, for which nothing has to be waited.
func (d *delivery) settleNow(what string, send func(q *queue, reply string, until time.Time)) error {
	s := d.level.s
	s.mu.Lock()
	if err := d.begin(); err != nil {
		s.mu.Unlock()
		return d.failed(what, err)
	}
	until := s.deadline(d.hold)
	s.mu.Unlock()
	// Before there is room for the next: a server that counts must not see one too many.
	send(s.q, d.reply, until)
	s.mu.Lock()
	d.finish(nil)
	s.mu.Unlock()
	return nil
}

// settleBy settles with something that waits for an answer.
func (d *delivery) settleBy(what string, do func() error) error {
	s := d.level.s
	s.mu.Lock()
	err := d.begin()
	s.mu.Unlock()
	if err != nil {
		return d.failed(what, err)
	}
	err = do()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil || !d.hold.dead:
	case errors.Is(err, natsconn.ErrIndeterminate): // the server may have done it before it had the message back
		err = fmt.Errorf("%w: %w: %w", broker.ErrLeaseLost, broker.ErrIndeterminate, err)
	default:
		err = fmt.Errorf("%w: %w", broker.ErrLeaseLost, err)
	}
	d.finish(err)
	return d.failed(what, err)
}

// Ack implements [broker.Delivery]. It never waits: the acknowledgement leaves with others, and the last ones are sent again
// after a lost connection. One that the server has not processed when it is killed is lost, and the message seen again.
func (d *delivery) Ack(context.Context) error {
	return d.settleNow("acknowledge", d.level.s.b.outbox.ack)
}

// AckSync implements [broker.SyncAcker]. It removes the message from the stream, which the server does for one caller only. An
// acknowledgement would not do: a server that was frozen or killed hands messages out anew, as the first time, and takes the
// acknowledgements of all who have them. Errors: broker.ErrLeaseLost when another consumer has removed it. With
// broker.ErrIndeterminate no answer came; another call then says broker.ErrLeaseLost too if the message is gone, since nobody
// can tell by whom.
func (d *delivery) AckSync(ctx context.Context) error {
	return d.settleBy("acknowledge", func() error {
		b, s := d.level.s.b, d.level.s
		session, err := b.conn.Session(ctx)
		if err == nil {
			err = b.outbox.connected(ctx, session) // what was settled before a cut leaves first
		}
		switch {
		case err != nil:
			return err
		case d.lost():
			return broker.ErrLeaseLost
		}
		taken, err := b.conn.Take(ctx, b.names.stream, d.seq)
		switch {
		case errors.Is(err, natsconn.ErrIndeterminate):
			d.tried = true
		case err != nil:
		case taken: // the consumer still counts it as handed out
			b.outbox.ack(s.q, d.reply, s.deadlineOf(d))
		case d.tried:
			return fmt.Errorf("%w: %w", broker.ErrLeaseLost, broker.ErrIndeterminate)
		default:
			return broker.ErrLeaseLost
		}
		return err
	})
}

// Release implements [broker.Delivery]. After longer than 0 a message of the next Generation takes its place in one step.
func (d *delivery) Release(ctx context.Context, after time.Duration) error {
	if after <= 0 {
		return d.settleNow("release", d.level.s.b.outbox.nak)
	}
	next := d.msg
	next.Generation++
	o := broker.Outgoing{Queue: d.level.s.q.name, Message: &next, At: time.Now().Add(after)}
	return d.settleBy("release", func() error { return d.replace(ctx, o) })
}
