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

// A subject holds one message. A new message may be told to replace the one before it, if that has
// an expected sequence. So a successor in the same subject is one atomic step, in which the old
// message is removed from its consumer. A successor with a time carries it in a header, and a
// consumer that receives it early moves it to the schedules.
//
// A successor in another subject is stored in one atomic batch with a notice that replaces the old
// message. A consumer that receives the notice removes it.

// Retry implements [broker.Retrier]. It publishes next in place of d's message, waits for the
// confirmation and settles d, see replace. A successor for another queue, level or id needs a
// server of 2.12 or later to be atomic. With an older server it is published, confirmed, and then
// the delivery is acknowledged.
//
// Returns ErrUnsupported if d is not a delivery of this Broker, ErrSettled or ErrLeaseLost if it
// cannot be settled, and the errors of replace.
func (b *Broker) Retry(ctx context.Context, d broker.Delivery, next broker.Outgoing) error {
	own, ok := capability.As[*delivery](d)
	if !ok || own.level.s.b != b {
		return wrap(fmt.Errorf("%w: the delivery belongs to another broker", broker.ErrUnsupported), "retry into", next.Queue)
	}
	return own.settleAndWait("retry", func() error { return own.replace(ctx, next) })
}

// replace publishes next, the successor of d's message, and removes d's message from the stream.
// It waits for the server, and sends the acknowledgement of d without waiting.
//
//   - A successor with the same queue, level and id overwrites d's message in its subject.
//   - Otherwise a server of 2.12 or later stores the successor and removes d's message in one
//     atomic batch.
//   - With an older server the successor is published and confirmed, then d is acknowledged. A
//     crash between the two steps leaves both messages.
//
// Returns ErrLeaseLost if the message of d no longer exists. Returns ErrNoQueue if the queue of
// next does not exist, and the errors of check and encodeTo if next cannot be sent.
func (d *delivery) replace(ctx context.Context, next broker.Outgoing) error {
	b := d.level.s.b
	if err := b.check(next.Message); err != nil {
		return err
	}
	q, err := b.queue(ctx, next.Queue)
	if err != nil {
		return err
	}
	f, err := b.ensureStream(ctx)
	if err != nil {
		return err
	}
	p := publishing{queue: q, m: next.Message, lane: b.laneOf(q, next.Message)}
	if p.at, err = b.dueTime(ctx, next.At); err != nil {
		return err
	}
	if err := b.encodeTo(ctx, &p); err != nil {
		return err
	}
	token, err := idToken(p.m.ID)
	if err != nil {
		return err
	}
	if work := q.workOf(p.m.Priority, p.lane) + token; work == d.subject {
		err = d.replaceSameSubject(ctx, p)
	} else if f.atomic {
		err = d.replaceOtherSubject(ctx, p)
	} else {
		err = d.publishSuccessor(ctx, p)
	}
	if err == nil {
		// the message is removed already; this tells its consumer
		b.outbox.ack(d.level.s.q, d.reply, time.Time{})
	}
	return err
}

// publishSuccessor publishes the successor p and waits for the confirmation. It does not touch d's
// message; the caller acknowledges it afterwards. Returns the errors of handleAnswer.
func (d *delivery) publishSuccessor(ctx context.Context, p publishing) error {
	b := d.level.s.b
	ack, err := b.conn.Publish(ctx, p.msg)
	return b.handleAnswer(ctx, p, ack, err)
}

// replaceSameSubject publishes the successor p in d's own subject, which replaces d's message in
// one atomic step. It waits for the confirmation. Returns ErrLeaseLost if the message of d no
// longer exists.
func (d *delivery) replaceSameSubject(ctx context.Context, p publishing) error {
	m, err := encode(p.m, d.subject, p.queue.msgID(d.subject, p.m.Generation))
	if err != nil {
		return err
	}
	if !p.at.IsZero() {
		m.Header[headerNotBefore] = []string{formatMillis(p.at)}
	}
	m.Header[headerExpectedSeq] = []string{strconv.FormatUint(d.seq, 10)}
	return d.publishReplacement(ctx, m, p.m.Generation)
}

// publishReplacement publishes m, which replaces d's message, waits for the confirmation, and
// repeats while the server is busy. If the server dropped m as a repetition, it publishes m again
// without the header by which the server notices that. generation is that of the successor. Returns
// ErrLeaseLost if the message of d or the stream no longer exists; see checkReplaced for the
// exception. It returns other errors of the publish at once.
func (d *delivery) publishReplacement(ctx context.Context, m *nats.Msg, generation int) error {
	b := d.level.s.b
	for {
		ack, err := b.conn.Publish(ctx, m)
		switch {
		case err == nil && !ack.Duplicate:
			return nil
		case err == nil: // this pair was published before, and d's message still exists
			m = withHeader(m, headerMsgID, "")
		case errors.Is(err, natsconn.ErrWrongSequence):
			return d.checkReplaced(ctx, m.Subject, generation, err)
		case errors.Is(err, natsconn.ErrNoStream):
			return fmt.Errorf("%w: %w", broker.ErrLeaseLost, err)
		case !b.retryLater(ctx, err):
			return err
		}
	}
}

// checkReplaced decides about a successor that the server refused with cause, because the message
// of d no longer exists. It reads the last message of subject from the server. It returns nil if
// that has the successor's generation: an earlier attempt, whose answer was lost, has stored it.
// Returns ErrIndeterminate if the read fails, otherwise ErrLeaseLost. It waits for the server.
func (d *delivery) checkReplaced(ctx context.Context, subject string, generation int, cause error) error {
	b := d.level.s.b
	st, err := b.conn.GetLast(ctx, b.names.stream, subject)
	switch {
	case err == nil && st.Seq != d.seq && generationOf(st.Header) == generation && generation != d.msg.Generation && headerValue(st.Header, headerMoved) == "":
		return nil
	case err != nil && !errors.Is(err, natsconn.ErrNotFound):
		return fmt.Errorf("%w: %w", broker.ErrIndeterminate, err)
	}
	return fmt.Errorf("%w: %w", broker.ErrLeaseLost, cause)
}

// replaceOtherSubject publishes the successor p in another subject and a notice in d's subject,
// in one atomic batch. It waits for the server, and repeats while that is busy. An older message
// in the successor's subject is replaced. If the same or a newer one is stored there, nothing is
// published, and it returns nil. Returns ErrLeaseLost if the message of d or the stream no longer
// exists; see checkReplaced for the exception.
func (d *delivery) replaceOtherSubject(ctx context.Context, p publishing) error {
	b := d.level.s.b
	for {
		err := b.publishAtomic(ctx, p.msg, d.movedNotice())
		switch {
		case err == nil:
			return nil
		case errors.Is(err, natsconn.ErrWrongSequence):
			// Either the successor's subject holds a message, or d's message no longer exists.
			st, getErr := b.conn.GetLast(ctx, b.names.stream, d.subject)
			if getErr != nil && !errors.Is(getErr, natsconn.ErrNotFound) {
				return getErr
			}
			if getErr != nil || st.Seq != d.seq {
				return d.checkReplaced(ctx, p.msg.Subject, p.m.Generation, err)
			}
			done, err := b.replaceOlder(ctx, &p)
			if err != nil {
				return err
			}
			if done { // the same or a newer message is stored already
				return nil
			}
		case errors.Is(err, natsconn.ErrNoStream):
			return fmt.Errorf("%w: %w", broker.ErrLeaseLost, err)
		case !b.retryLater(ctx, err):
			return err
		}
	}
}

// movedNotice returns a message that replaces d's message and says that it was moved. The server
// accepts it only while d's message is stored. It expires after one second.
func (d *delivery) movedNotice() *nats.Msg {
	return &nats.Msg{Subject: d.subject, Header: nats.Header{
		headerMoved: {"1"}, headerTTL: {"1s"}, headerExpectedSeq: {strconv.FormatUint(d.seq, 10)},
	}}
}

// publishAtomic stores all messages in one atomic step, or none of them, and waits for the
// confirmation. It makes one attempt. Returns natsconn.ErrWrongSequence if a subject has not the
// expected sequence. After natsconn.ErrIndeterminate all or none may be stored. Needs a server of
// 2.12 or later.
func (b *Broker) publishAtomic(ctx context.Context, ms ...*nats.Msg) error {
	id := rand.Text()
	return b.conn.Do(ctx, func(ctx context.Context, s *natsconn.Session) error {
		for i, m := range ms {
			m = withHeader(withHeader(m, headerMsgID, ""), headerBatchID, id)
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

// handleEarly handles a delivery whose time at has not come; wait is the time until then. It does
// not block. Call it with s.mu held.
//
//   - On a server without schedules it returns the message to the queue for that time and settles
//     d.
//   - A wait of up to shortDelay happens here, on a timer, after which Receive gets the delivery.
//     That is limited to the case that the prefetch has room for the pending messages: many short
//     delays would otherwise block all others. If Close was called meanwhile, the message goes back
//     to the queue.
//   - Otherwise a goroutine moves the message to the schedules and acknowledges d. If the move
//     fails, the message goes back to the queue for a second. d is settled in both cases.
func (s *subscription) handleEarly(d *delivery, m *nats.Msg, at time.Time, wait time.Duration, pending uint64) {
	f := s.b.features.Load()
	switch {
	case f != nil && !f.schedules:
		d.state = settled
		s.removeHeld(d)
		d.level.unsettled--
		s.b.outbox.send(s.q, d.reply, nakDelay(wait), time.Now().Add(s.lease))
		d.level.wakeIfRoom()
	case wait <= shortDelay && (pending == 0 || d.level.want == unlimited || d.level.unsettled < d.level.want):
		time.AfterFunc(wait, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if d.state != open || d.group.isLost {
				return
			}
			if s.fetch.Err() != nil { // closed meanwhile
				s.b.outbox.nak(s.q, d.reply, s.deadline(d.group))
				d.state = busy
				d.endSettle(nil)
				return
			}
			s.addReady(d)
		})
	default:
		d.state = busy
		header := m.Header
		s.done.Go(func() {
			err := s.b.moveToSchedule(s.life, d, header, at)
			s.mu.Lock()
			defer s.mu.Unlock()
			if err == nil {
				s.b.outbox.ack(s.q, d.reply, time.Time{})
			} else { // it is delivered again, and moved then
				s.b.outbox.send(s.q, d.reply, nakDelay(time.Second), time.Now().Add(s.lease))
			}
			d.endSettle(nil)
		})
	}
}

// nakDelay returns the answer that returns a delivery to its queue: the server delivers it again
// after d.
func nakDelay(d time.Duration) []byte {
	return fmt.Appendf(nil, `-NAK {"delay": %d}`, max(d.Nanoseconds(), 1))
}

// moveToSchedule stores a message that was delivered before its time as a schedule, in place of d's
// message. It waits for the server. It returns nil if another process has moved or replaced the
// message already. Returns natsconn.ErrWrongSequence if the server refused although d's message is
// still stored, and other errors of the server.
func (b *Broker) moveToSchedule(ctx context.Context, d *delivery, header nats.Header, at time.Time) error {
	h := make(nats.Header, len(header)+4)
	for k, v := range header {
		if k == headerNotBefore || hasPrefixFold(k, "nats-") {
			continue
		}
		h[k] = v
	}
	setSchedule(h, at, d.subject)
	h[headerExpectedSeq] = []string{strconv.FormatUint(d.seq, 10)}
	h[headerExpectedSubj] = []string{d.subject}
	m := &nats.Msg{Subject: d.level.s.q.schedule + lastToken(d.subject), Header: h, Data: d.msg.Body}
	_, err := b.conn.Publish(ctx, m)
	if !errors.Is(err, natsconn.ErrWrongSequence) {
		return err
	}
	// Another process has moved or replaced it. Or a cluster is busy with another message for its
	// subject, which may still fail.
	st, getErr := b.conn.GetLast(ctx, b.names.stream, d.subject)
	switch {
	case errors.Is(getErr, natsconn.ErrNotFound), getErr == nil && st.Seq != d.seq:
		return nil
	case getErr != nil:
		return getErr
	}
	return err
}
