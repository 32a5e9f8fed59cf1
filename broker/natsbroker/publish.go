package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/natsconn"
)

const (
	// shortDelay is the longest delay of a message that is stored in the work subject, and whose
	// consumer waits the delay. The server's schedules fire after 250 ms at the earliest.
	shortDelay = 250 * time.Millisecond
	// busyPause is the pause before a message is sent again that the server could not accept.
	busyPause = 100 * time.Millisecond
	// lastYear is the last year in which a schedule may fire. The server counts 64-bit nanoseconds,
	// which end in 2262, and regards later times as past.
	lastYear = 2200
)

// Publish implements [broker.Broker]. It waits until the stream has stored the message. It stores
// nothing and returns nil if the queue holds the message already, in the same or a newer
// generation. It does the same if the server remembers the pair of id and generation, see
// Config.Dedupe. Returns ErrNoQueue if the queue does not exist, ErrMalformed or ErrTooLarge if m
// cannot be sent. After ErrIndeterminate the message may be stored.
func (b *Broker) Publish(ctx context.Context, queue string, m *broker.Message) error {
	return wrap(b.publish(ctx, broker.Outgoing{Queue: queue, Message: m}), "publish to", queue)
}

// PublishAt implements [broker.Delayer]. It stores m so that it is delivered at the time at, and
// waits for the confirmation. The server's clock counts; this process asks for it once a minute at
// most. A time after the year 2200 is broker.ErrUnsupported. The other errors are those of
// Publish.
func (b *Broker) PublishAt(ctx context.Context, queue string, m *broker.Message, at time.Time) error {
	return wrap(b.publish(ctx, broker.Outgoing{Queue: queue, Message: m, At: at}), "publish later to", queue)
}

// publish stores the message of o in the stream and waits for the confirmation. It returns nil too
// if the stream holds the same (ID, Generation) or a newer generation already. Returns the errors
// of prepare and handleAnswer.
func (b *Broker) publish(ctx context.Context, o broker.Outgoing) error {
	p, err := b.prepare(ctx, &o)
	if err != nil {
		return err
	}
	ack, err := b.conn.Publish(ctx, p.msg)
	if err == nil && !ack.Duplicate {
		return nil
	}
	return b.handleAnswer(ctx, p, ack, err)
}

// publishing is a message that is being published.
type publishing struct {
	queue *queue
	m     *broker.Message
	lane  int
	at    time.Time // on the server's clock; zero: at once
	msg   *nats.Msg
}

// prepare checks and encodes the message of o and chooses its subject. It may read the queue's
// record and the time from the server; it publishes nothing. Returns ErrNoQueue if the queue does
// not exist, and the errors of check and encodeTo. It waits for the server.
func (b *Broker) prepare(ctx context.Context, o *broker.Outgoing) (publishing, error) {
	if err := b.check(o.Message); err != nil {
		return publishing{}, err
	}
	q, err := b.queue(ctx, o.Queue)
	if err != nil {
		return publishing{}, err
	}
	p := publishing{queue: q, m: o.Message, lane: b.laneOf(q, o.Message)}
	if p.at, err = b.dueTime(ctx, o.At); err != nil {
		return publishing{}, err
	}
	if err := b.encodeTo(ctx, &p); err != nil {
		return publishing{}, err
	}
	b.expectInNoLane(&p)
	return p, nil
}

// expectInNoLane makes the server refuse p if another lane or level of a fair queue holds a message
// with the same id. It does nothing for a schedule, and with a server before 2.12, which would
// check only the subject of p.
func (b *Broker) expectInNoLane(p *publishing) {
	f := b.features.Load()
	if p.queue.fair && f != nil && f.atomic && headerValue(p.msg.Header, headerSchedule) == "" {
		p.msg.Header[headerExpectedSubj] = []string{b.names.work(p.queue.name, "*") + lastToken(p.msg.Subject)}
	}
}

// reservedBytes is the part of the server's largest message that is reserved for later additions:
// headers and broker.RetryRoom. So every published message can be retried and dead-lettered.
const reservedBytes = 2 << 10

// checkSize returns ErrTooLarge if the server would not accept m. It estimates the headers; the
// client library counts them exactly before it sends. Before the first connection the limit is
// not known, and it returns nil.
func (b *Broker) checkSize(m *broker.Message) error {
	limit := b.conn.MaxPayload()
	if limit > 0 && len(m.Body) > broker.BodyLimit(int(limit)-reservedBytes, m.Generation) {
		return fmt.Errorf("%w: body of %d bytes, the server takes %d with headers", broker.ErrTooLarge, len(m.Body), limit)
	}
	return nil
}

// encodeTo sets p.msg to the encoded message. Its subject is that of the lane, or of a schedule if
// the message is due later than shortDelay and the server has schedules. Returns ErrTooLarge or
// ErrMalformed if it cannot be sent, ErrUnsupported for a time after lastYear. For a message with a
// time it calls ensureStream, which may wait for the server, and returns its errors.
func (b *Broker) encodeTo(ctx context.Context, p *publishing) error {
	err := b.encodeForTime(ctx, p)
	if err == nil && p.lane > 0 {
		p.msg.Header[headerLane] = []string{strconv.Itoa(p.lane)}
	}
	return err
}

// encodeForTime is encodeTo without the header for p.lane.
func (b *Broker) encodeForTime(ctx context.Context, p *publishing) error {
	token, err := idToken(p.m.ID)
	if err != nil {
		return err
	}
	if err := b.checkSize(p.m); err != nil {
		return err
	}
	work := p.queue.workOf(p.m.Priority, p.lane) + token
	same := work // the same message is the same in every lane
	if p.lane > 0 {
		same = p.queue.workOf(p.m.Priority, 0) + token
	}
	msgID := p.queue.msgID(same, p.m.Generation)
	if p.at.IsZero() {
		p.msg, err = encode(p.m, work, msgID)
		return err
	}
	if p.at.Year() > lastYear {
		return fmt.Errorf("%w: the time %s is after the year %d", broker.ErrUnsupported, p.at.UTC().Format(time.RFC3339), lastYear)
	}
	f, err := b.ensureStream(ctx)
	if err != nil {
		return err
	}
	if !f.schedules || p.at.Sub(b.clock.Load().latest()) <= shortDelay {
		if p.msg, err = encode(p.m, work, msgID); err == nil {
			p.msg.Header[headerNotBefore] = []string{formatMillis(p.at)}
		}
		return err
	}
	if p.msg, err = encode(p.m, p.queue.schedule+token, msgID); err == nil {
		setSchedule(p.msg.Header, p.at, work)
	}
	return err
}

// setSchedule sets headers that make the server publish the message to target at the given time, in
// place of a message that target holds then.
func setSchedule(h nats.Header, at time.Time, target string) {
	h[headerSchedule] = []string{"@at " + at.UTC().Format(time.RFC3339Nano)}
	h[headerScheduleTarget] = []string{target}
}

// handleAnswer continues after an answer to a publish that is not a plain confirmation: ack and
// err. It publishes the message again only if the server certainly did not store it, for example
// because the stream was deleted. It waits for the server. It returns nil if the message is
// stored or superfluous. Returns ErrIndeterminate if a repeated message cannot be looked up, and
// err if nothing helps.
func (b *Broker) handleAnswer(ctx context.Context, p publishing, ack natsconn.Ack, err error) error {
	for {
		switch {
		case err == nil && !ack.Duplicate:
			return nil
		case err == nil:
			// The pair was published a short time ago. If it was deleted or purged since, this is a new
			// message.
			removed, err := b.removed(ctx, p.queue.name)
			if err != nil {
				return fmt.Errorf("%w: find the same message: %w", broker.ErrIndeterminate, err)
			}
			if ack.Sequence > removed {
				return nil
			}
			p.msg = withHeader(p.msg, headerMsgID, "")
		case errors.Is(err, natsconn.ErrWrongSequence):
			done, err := b.replaceOlder(ctx, &p)
			if done || err != nil {
				return err
			}
		case errors.Is(err, natsconn.ErrNoStream):
			b.forgetStream(ctx)
			q, err := b.queue(ctx, p.queue.name)
			if err != nil {
				return err
			}
			p.queue = q
			if err := b.encodeTo(ctx, &p); err != nil {
				return err
			}
		default:
			if !b.retryLater(ctx, err) {
				return err
			}
		}
		ack, err = b.conn.Publish(ctx, p.msg)
	}
}

// retryLater pauses for busyPause if err says that the server cannot accept the message just now,
// and returns true: the message was not stored and may be sent again. It returns false for other
// errors, at once, and if ctx or the Broker ends during the pause.
func (b *Broker) retryLater(ctx context.Context, err error) bool {
	busy := errors.Is(err, natsconn.ErrBlocked) || errors.Is(err, natsconn.ErrUnavailable) && natsconn.Code(err) != 0
	return busy && b.pause(ctx, busyPause)
}

// replaceOlder decides about p after the server found a message with its id in its subject. It
// reads that message, waits for the server and returns the error of the read.
//
//   - The stored message has the generation of p or a newer one: done is true, and p need not be
//     published.
//   - It has an older generation or is a notice: p is changed to replace it.
//   - It was removed meanwhile: p is changed to be the first in its subject.
//
// After the last two done is false, and p must be published again. On a fair queue the stored
// message may be in another lane. An older generation there is replaced in its lane.
func (b *Broker) replaceOlder(ctx context.Context, p *publishing) (done bool, err error) {
	subject := p.msg.Subject
	if lanes := headerValue(p.msg.Header, headerExpectedSubj); lanes != "" {
		subject = lanes
	}
	st, err := b.conn.GetLast(ctx, b.names.stream, subject)
	switch {
	case errors.Is(err, natsconn.ErrNotFound): // it was removed meanwhile
		p.msg = withHeader(p.msg, headerExpectedSeq, "0")
		return false, nil
	case err != nil:
		return false, err
	case headerValue(st.Header, headerMoved) == "" && generationOf(st.Header) >= p.m.Generation:
		return true, nil
	}
	for lane := range p.queue.width() {
		work := p.queue.workOf(p.m.Priority, lane) + lastToken(p.msg.Subject)
		if work == st.Subject && work != p.msg.Subject && headerValue(st.Header, headerMoved) == "" {
			p.lane = lane
			if err := b.encodeTo(ctx, p); err != nil {
				return false, err
			}
		}
	}
	p.msg = withHeader(p.msg, headerExpectedSeq, strconv.FormatUint(st.Seq, 10))
	return false, nil
}

// withHeader returns a message with the subject and the data of m, which is shared, and a copy of
// its headers. The header k is set to v, or is missing if v is empty. Other fields of m are left
// out. With a v, m.Header must not be nil.
func withHeader(m *nats.Msg, k, v string) *nats.Msg {
	h := maps.Clone(m.Header)
	if v == "" {
		delete(h, k)
	} else {
		h[k] = []string{v}
	}
	return &nats.Msg{Subject: m.Subject, Header: h, Data: m.Data}
}

// PublishBatch implements [broker.BatchPublisher]. It sends all messages at once and waits until
// each was stored or refused. Those that were refused for the moment it sends again, one after the
// other. A message that cannot be sent does not hinder the others. Returns nil if all were stored,
// otherwise a [broker.BatchError] with the error of each message.
func (b *Broker) PublishBatch(ctx context.Context, ms []broker.Outgoing) error {
	if len(ms) == 0 {
		return nil
	}
	var errs []error
	fail := func(i int, err error) {
		if errs == nil {
			errs = make([]error, len(ms))
		}
		errs[i] = wrap(err, "publish to", ms[i].Queue)
	}
	ps := make([]publishing, len(ms))
	pubs := make([]natsconn.Pub, 0, len(ms))
	at := make([]int, 0, len(ms))
	for i := range ms {
		p, err := b.prepare(ctx, &ms[i])
		if err != nil {
			fail(i, err)
			continue
		}
		ps[i] = p
		pubs, at = append(pubs, natsconn.Pub{Msg: p.msg}), append(at, i)
	}
	b.conn.PublishBatch(ctx, pubs)
	for k := range pubs {
		if pubs[k].Err == nil && !pubs[k].Ack.Duplicate {
			continue
		}
		if err := b.handleAnswer(ctx, ps[at[k]], pubs[k].Ack, pubs[k].Err); err != nil {
			fail(at[k], err)
		}
	}
	if errs != nil {
		return &broker.BatchError{Errs: errs}
	}
	return nil
}
