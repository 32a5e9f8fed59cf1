package natsbroker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/natsconn"
)

// A subject holds one message, and a message may be told to take the place of the one before it, if that has the sequence that
// is expected. So a successor in the same subject is one step, in which the old message vanishes from the hands of who had it. A
// successor with a time carries it in a header; whoever gets it early moves it to the schedules. A successor in another subject
// goes there in one atomic batch with a notice that takes the place of the old message; whoever gets the notice removes it.

// Retry implements [broker.Retrier]. A successor for another queue, level or id needs a server of 2.12 or later for that: with an
// older one it is published, confirmed, and then the delivery acknowledged.
func (b *Broker) Retry(ctx context.Context, d broker.Delivery, next broker.Outgoing) error {
	own, ok := capability.As[*delivery](d)
	if !ok || own.level.s.b != b {
		return wrap(fmt.Errorf("%w: a delivery of another broker", broker.ErrUnsupported), "retry into", next.Queue)
	}
	return own.settleBy("retry", func() error { return own.replace(ctx, next) })
}

// replace puts next in the place of d.
func (d *delivery) replace(ctx context.Context, next broker.Outgoing) error {
	b := d.level.s.b
	if err := b.check(next.Message); err != nil {
		return err
	}
	q, err := b.queue(ctx, next.Queue)
	if err != nil {
		return err
	}
	f, err := b.ready(ctx)
	if err != nil {
		return err
	}
	p := publishing{queue: q, m: next.Message}
	if p.at, err = b.due(ctx, next.At); err != nil {
		return err
	}
	if err := b.place(ctx, &p); err != nil {
		return err
	}
	token, err := idToken(p.m.ID)
	if err != nil {
		return err
	}
	if work := q.work[q.level(p.m.Priority)] + token; work == d.subject {
		err = d.replaceHere(ctx, p)
	} else if f.atomic {
		err = d.replaceThere(ctx, p)
	} else {
		err = d.replaceInTwo(ctx, p)
	}
	if err == nil {
		b.outbox.ack(d.level.s.q, d.reply, time.Time{}) // the message has gone; this tells its consumer
	}
	return err
}

// replaceInTwo publishes the successor and acknowledges d.
func (d *delivery) replaceInTwo(ctx context.Context, p publishing) error {
	b := d.level.s.b
	ack, err := b.conn.Publish(ctx, p.msg)
	return b.resolve(ctx, p, ack, err)
}

// replaceHere publishes the successor in d's own subject.
func (d *delivery) replaceHere(ctx context.Context, p publishing) error {
	m, err := encode(p.m, d.subject, p.queue.msgID(d.subject, p.m.Generation))
	if err != nil {
		return err
	}
	if !p.at.IsZero() {
		m.Header[headerNotBefore] = []string{formatMillis(p.at)}
	}
	m.Header[headerExpectedSeq] = []string{strconv.FormatUint(d.seq, 10)}
	return d.offer(ctx, m, p.m.Generation)
}

// offer publishes what takes d's place until the server has taken or refused it.
func (d *delivery) offer(ctx context.Context, m *nats.Msg, generation int) error {
	b := d.level.s.b
	for {
		ack, err := b.conn.Publish(ctx, m)
		switch {
		case err == nil && !ack.Duplicate:
			return nil
		case err == nil: // this pair was published before, and d is still there
			m = with(m, headerMsgID, "")
		case errors.Is(err, natsconn.ErrWrongSequence):
			return d.replaced(ctx, m.Subject, generation, err)
		case errors.Is(err, natsconn.ErrNoStream):
			return fmt.Errorf("%w: %w", broker.ErrLeaseLost, err)
		case !b.again(ctx, err):
			return err
		}
	}
}

// replaced decides about a successor that was refused since d is not there any more. It may be an earlier try, whose answer was
// lost, that has taken its place.
func (d *delivery) replaced(ctx context.Context, subject string, generation int, cause error) error {
	b := d.level.s.b
	st, err := b.conn.GetLast(ctx, b.names.stream, subject)
	switch {
	case err == nil && st.Seq != d.seq && generationOf(st.Header) == generation && generation != d.msg.Generation && first(st.Header, headerMoved) == "":
		return nil
	case err != nil && !errors.Is(err, natsconn.ErrNotFound):
		return fmt.Errorf("%w: %w", broker.ErrIndeterminate, err)
	}
	return fmt.Errorf("%w: %w", broker.ErrLeaseLost, cause)
}

// replaceThere publishes the successor in another subject, and a notice in d's.
func (d *delivery) replaceThere(ctx context.Context, p publishing) error {
	b := d.level.s.b
	for {
		err := b.batch(ctx, p.msg, d.notice())
		switch {
		case err == nil:
			return nil
		case errors.Is(err, natsconn.ErrWrongSequence):
			// Either the successor's place is taken, or d has gone.
			st, getErr := b.conn.GetLast(ctx, b.names.stream, d.subject)
			if getErr != nil && !errors.Is(getErr, natsconn.ErrNotFound) {
				return getErr
			}
			if getErr != nil || st.Seq != d.seq {
				return d.replaced(ctx, p.msg.Subject, p.m.Generation, err)
			}
			done, err := b.displace(ctx, &p)
			if err != nil {
				return err
			}
			if done { // it lies there already
				return nil
			}
		case errors.Is(err, natsconn.ErrNoStream):
			return fmt.Errorf("%w: %w", broker.ErrLeaseLost, err)
		case !b.again(ctx, err):
			return err
		}
	}
}

// notice is a message that takes d's place and says that it has gone elsewhere.
func (d *delivery) notice() *nats.Msg {
	return &nats.Msg{Subject: d.subject, Header: nats.Header{
		headerMoved: {"1"}, headerTTL: {"1s"}, headerExpectedSeq: {strconv.FormatUint(d.seq, 10)},
	}}
}

// batch stores messages in one step: all or none.
func (b *Broker) batch(ctx context.Context, ms ...*nats.Msg) error {
	id := rand.Text()
	return b.conn.Do(ctx, func(ctx context.Context, s *natsconn.Session) error {
		for i, m := range ms {
			m = with(with(m, headerMsgID, ""), headerBatchID, id)
			m.Header[headerBatchSequence] = []string{strconv.Itoa(i + 1)}
			if i < len(ms)-1 {
				if err := s.NATS.PublishMsg(m); err != nil {
					return err
				}
				continue
			}
			m.Header[headerBatchCommit] = []string{"1"}
			resp, err := s.NATS.RequestMsgWithContext(ctx, m)
			if err != nil {
				return err
			}
			_, err = natsconn.ParseAck(resp)
			return err
		}
		return nil
	})
}

// early deals with a message whose time has not come; s.mu is held. A short rest is waited for here, unless the server has more
// messages than there is room for: many short delays, each with its place in the prefetch, would let nothing else through. What
// has longer to go or no room moves to the schedules, where servers have them, and else goes back until then.
func (s *subscription) early(d *delivery, m *nats.Msg, at time.Time, rest time.Duration, pending uint64) {
	f := s.b.features.Load()
	switch {
	case f != nil && !f.schedules:
		d.state = settled
		s.leave(d)
		d.level.unsettled--
		s.b.outbox.send(s.q, d.reply, nakDelay(rest), time.Now().Add(s.lease))
		d.level.poke()
	case rest <= shortDelay && (pending == 0 || d.level.want == unlimited || d.level.unsettled < d.level.want):
		time.AfterFunc(rest, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if d.state != open || d.hold.dead {
				return
			}
			if s.fetch.Err() != nil { // closed in the meantime
				s.b.outbox.nak(s.q, d.reply, s.deadline(d.hold))
				d.state = busy
				d.finish(nil)
				return
			}
			s.hand(d)
		})
	default:
		d.state = busy
		header := m.Header
		s.done.Go(func() {
			err := s.b.forward(s.life, d, header, at)
			s.mu.Lock()
			defer s.mu.Unlock()
			if err == nil {
				s.b.outbox.ack(s.q, d.reply, time.Time{})
			} else { // it comes again, and is tried again
				s.b.outbox.send(s.q, d.reply, nakDelay(time.Second), time.Now().Add(s.lease))
			}
			d.finish(nil)
		})
	}
}

func nakDelay(d time.Duration) []byte {
	return fmt.Appendf(nil, `-NAK {"delay": %d}`, max(d.Nanoseconds(), 1))
}

// forward stores a message that came before its time as a schedule.
func (b *Broker) forward(ctx context.Context, d *delivery, header nats.Header, at time.Time) error {
	h := make(nats.Header, len(header)+4)
	for k, v := range header {
		if k == headerNotBefore || hasPrefixFold(k, "nats-") {
			continue
		}
		h[k] = v
	}
	schedule(h, at, d.subject)
	h[headerExpectedSeq] = []string{strconv.FormatUint(d.seq, 10)}
	h[headerExpectedSubj] = []string{d.subject}
	m := &nats.Msg{Subject: d.level.s.q.schedule + lastToken(d.subject), Header: h, Data: d.msg.Body}
	_, err := b.conn.Publish(ctx, m)
	if !errors.Is(err, natsconn.ErrWrongSequence) {
		return err
	}
	// Somebody else has moved or replaced it, or a cluster is busy with another message for its place, which may yet fail.
	st, getErr := b.conn.GetLast(ctx, b.names.stream, d.subject)
	switch {
	case errors.Is(getErr, natsconn.ErrNotFound), getErr == nil && st.Seq != d.seq:
		return nil
	case getErr != nil:
		return getErr
	}
	return err
}
