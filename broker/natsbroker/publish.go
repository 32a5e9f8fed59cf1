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
	// shortDelay is up to which delay a message lies in the work subject and its consumer waits the rest: schedules of the
	// server fire after 250 ms at the earliest.
	shortDelay = 250 * time.Millisecond
	// busyPause is how long to wait before a message that the server cannot take just now is offered again.
	busyPause = 100 * time.Millisecond
	// lastYear is the last in which a schedule may fire. The server reckons in 64-bit nanoseconds, which end in 2262, and
	// takes what lies beyond for the past.
	lastYear = 2200
)

// Publish implements [broker.Broker].
func (b *Broker) Publish(ctx context.Context, queue string, m *broker.Message) error {
	return wrap(b.publish(ctx, broker.Outgoing{Queue: queue, Message: m}), "publish to", queue)
}

// PublishAt implements [broker.Delayer]. The server's clock decides; this process asks for it once a
// minute at most. A time after the year 2200 is broker.ErrUnsupported.
func (b *Broker) PublishAt(ctx context.Context, queue string, m *broker.Message, at time.Time) error {
	return wrap(b.publish(ctx, broker.Outgoing{Queue: queue, Message: m, At: at}), "publish later to", queue)
}

func (b *Broker) publish(ctx context.Context, o broker.Outgoing) error {
	p, err := b.prepare(ctx, &o)
	if err != nil {
		return err
	}
	ack, err := b.conn.Publish(ctx, p.msg)
	if err == nil && !ack.Duplicate {
		return nil
	}
	return b.resolve(ctx, p, ack, err)
}

// publishing is a message on its way.
type publishing struct {
	queue *queue
	m     *broker.Message
	at    time.Time // on the server's clock; zero: at once
	msg   *nats.Msg
}

// prepare encodes a message for where it belongs.
func (b *Broker) prepare(ctx context.Context, o *broker.Outgoing) (publishing, error) {
	if err := b.check(o.Message); err != nil {
		return publishing{}, err
	}
	q, err := b.queue(ctx, o.Queue)
	if err != nil {
		return publishing{}, err
	}
	p := publishing{queue: q, m: o.Message}
	if p.at, err = b.due(ctx, o.At); err != nil {
		return publishing{}, err
	}
	return p, b.place(ctx, &p)
}

// spare is how many bytes of the server's largest message are left for what is added to a message later, so that what was
// published can be retried and buried: headers, and broker.RetryRoom.
const spare = 2 << 10

// fits refuses a message that the server would not take. Its headers are reckoned with roughly; the client library counts them
// exactly before it sends.
func (b *Broker) fits(m *broker.Message) error {
	limit := b.conn.MaxPayload()
	if limit > 0 && len(m.Body) > broker.BodyLimit(int(limit)-spare, m.Generation) {
		return fmt.Errorf("%w: body of %d bytes, the server takes %d with headers", broker.ErrTooLarge, len(m.Body), limit)
	}
	return nil
}

// place writes p.msg.
func (b *Broker) place(ctx context.Context, p *publishing) error {
	token, err := idToken(p.m.ID)
	if err != nil {
		return err
	}
	if err := b.fits(p.m); err != nil {
		return err
	}
	work := p.queue.work[p.queue.level(p.m.Priority)] + token
	msgID := p.queue.msgID(work, p.m.Generation)
	if p.at.IsZero() {
		p.msg, err = encode(p.m, work, msgID)
		return err
	}
	if p.at.Year() > lastYear {
		return fmt.Errorf("%w: the time %s is after the year %d", broker.ErrUnsupported, p.at.UTC().Format(time.RFC3339), lastYear)
	}
	f, err := b.ready(ctx)
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
		schedule(p.msg.Header, p.at, work)
	}
	return err
}

// schedule makes a message one that the server publishes to target at the given time, in the place of what may lie there.
func schedule(h nats.Header, at time.Time, target string) {
	h[headerSchedule] = []string{"@at " + at.UTC().Format(time.RFC3339Nano)}
	h[headerScheduleTarget] = []string{target}
}

// resolve goes on from an answer that is not a plain yes. The message was surely not stored where it is published again.
func (b *Broker) resolve(ctx context.Context, p publishing, ack natsconn.Ack, err error) error {
	for {
		switch {
		case err == nil && !ack.Duplicate:
			return nil
		case err == nil:
			// The pair was published a short time ago. If it was deleted or purged since, it is a new message.
			removed, err := b.removed(ctx, p.queue.name)
			if err != nil {
				return fmt.Errorf("%w: looking what became of the same message: %w", broker.ErrIndeterminate, err)
			}
			if ack.Sequence > removed {
				return nil
			}
			p.msg = with(p.msg, headerMsgID, "")
		case errors.Is(err, natsconn.ErrWrongSequence):
			done, err := b.displace(ctx, &p)
			if done || err != nil {
				return err
			}
		case errors.Is(err, natsconn.ErrNoStream):
			b.streamGone(ctx)
			q, err := b.queue(ctx, p.queue.name)
			if err != nil {
				return err
			}
			p.queue = q
			if err := b.place(ctx, &p); err != nil {
				return err
			}
		default:
			if !b.again(ctx, err) {
				return err
			}
		}
		ack, err = b.conn.Publish(ctx, p.msg)
	}
}

// again waits a moment after an error that says that the server cannot take the message just now, and reports whether it may
// be offered again.
func (b *Broker) again(ctx context.Context, err error) bool {
	busy := errors.Is(err, natsconn.ErrBlocked) || errors.Is(err, natsconn.ErrUnavailable) && natsconn.Code(err) != 0
	return busy && b.pause(ctx, busyPause)
}

// displace decides about a message whose subject holds one of the same id: an older generation gives way, and what is the same
// or newer makes the message superfluous.
func (b *Broker) displace(ctx context.Context, p *publishing) (done bool, err error) {
	st, err := b.conn.GetLast(ctx, b.names.stream, p.msg.Subject)
	switch {
	case errors.Is(err, natsconn.ErrNotFound): // it has gone in the meantime
		p.msg = with(p.msg, headerExpectedSeq, "0")
		return false, nil
	case err != nil:
		return false, err
	case first(st.Header, headerMoved) == "" && generationOf(st.Header) >= p.m.Generation:
		return true, nil
	}
	p.msg = with(p.msg, headerExpectedSeq, strconv.FormatUint(st.Seq, 10))
	return false, nil
}

// with returns a copy of m with a header set, or left out if the value is empty.
func with(m *nats.Msg, k, v string) *nats.Msg {
	h := maps.Clone(m.Header)
	if v == "" {
		delete(h, k)
	} else {
		h[k] = []string{v}
	}
	return &nats.Msg{Subject: m.Subject, Header: h, Data: m.Data}
}

// PublishBatch implements [broker.BatchPublisher].
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
		if err := b.resolve(ctx, ps[at[k]], pubs[k].Ack, pubs[k].Err); err != nil {
			fail(at[k], err)
		}
	}
	if errs != nil {
		return &broker.BatchError{Errs: errs}
	}
	return nil
}
