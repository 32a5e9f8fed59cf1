package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/lanes"
	"github.com/swarmiji/swarmiji/internal/natsconn"
)

// found is a waiting message that find returned.
type found struct {
	q       *queue
	st      *natsconn.Stored
	m       *broker.Message
	at      time.Time // zero: it is due
	delayed bool      // it is a schedule
}

// Find implements [broker.Finder]. It returns the waiting message id and the time when it is due,
// zero for one without a delay. A message that was returned to the queue counts as held until it is
// delivered again. Returns ErrNotFound if no such message waits, ErrNoQueue if the queue does not
// exist. It waits for the server.
func (b *Broker) Find(ctx context.Context, name, id string) (broker.Outgoing, error) {
	f, err := b.find(ctx, name, id)
	if err != nil {
		return broker.Outgoing{}, wrap(fmt.Errorf("message %.128q: %w", id, err), "find in", name)
	}
	return broker.Outgoing{Queue: name, Message: f.m, At: f.at}, nil
}

// find searches the levels and then the schedules of a queue for the message id, and waits for the
// server. It skips notices of moved messages. Returns ErrNotFound if no such message waits, if a
// consumer has received it, or if the id is not valid. Returns ErrNoQueue if the queue does not
// exist, ErrMalformed if the time of a schedule cannot be read.
func (b *Broker) find(ctx context.Context, name, id string) (*found, error) {
	q, err := b.queue(ctx, name)
	if err != nil {
		return nil, err
	}
	token, err := idToken(id)
	if err != nil {
		return nil, broker.ErrNotFound // a message cannot have it
	}
	for i, subject := range q.work {
		st, err := b.conn.GetLast(ctx, b.names.stream, subject+token)
		if errors.Is(err, natsconn.ErrNotFound) || err == nil && headerValue(st.Header, headerMoved) != "" {
			continue
		}
		if err != nil {
			return nil, err
		}
		// The consumer delivers in the order of sequences: messages after the last delivered one wait.
		c, err := b.state(ctx, q, i)
		if err != nil && !errors.Is(err, natsconn.ErrNoConsumer) {
			return nil, err
		}
		if err == nil && c.Delivered.Stream >= st.Seq {
			return nil, broker.ErrNotFound
		}
		f := &found{q: q, st: st, m: &broker.Message{}}
		decode(f.m, id, st.Header, st.Data)
		if s := headerValue(st.Header, headerNotBefore); s != "" {
			f.at = parseMillis(s)
		}
		return f, nil
	}
	st, err := b.conn.GetLast(ctx, b.names.stream, q.schedule+token)
	if errors.Is(err, natsconn.ErrNotFound) {
		return nil, broker.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	f := &found{q: q, st: st, m: &broker.Message{}, delayed: true}
	decode(f.m, id, st.Header, st.Data)
	at, err := time.Parse(time.RFC3339Nano, strings.TrimPrefix(headerValue(st.Header, headerSchedule), "@at "))
	if err != nil {
		return nil, fmt.Errorf("%w: schedule %.80q", broker.ErrMalformed, headerValue(st.Header, headerSchedule))
	}
	f.at = at
	return f, nil
}

// Delete implements [broker.Finder]. It removes the waiting message id and waits for the server. If
// a consumer receives the message at that moment it may be handled although Delete returns nil.
// Returns ErrNotFound if no such message waits, ErrNoQueue if the queue does not exist. After
// ErrIndeterminate the message may be removed. See remove for a second effect.
func (b *Broker) Delete(ctx context.Context, name, id string) error {
	err := b.remove(ctx, name, id)
	if err != nil {
		err = fmt.Errorf("message %.128q: %w", id, err)
	}
	return wrap(err, "delete from", name)
}

// remove deletes the waiting message id. It first raises the queue's mark, so that the same (ID,
// Generation) can be published again, see mark. It waits for the server. Returns ErrNotFound if no
// such message waits, and the errors of find, markRemoved and the deletion. After an error of the
// deletion the mark stays raised, which is harmless.
func (b *Broker) remove(ctx context.Context, name, id string) error {
	f, err := b.find(ctx, name, id)
	if err != nil {
		return err
	}
	if err := b.markRemoved(ctx, name, f.st.Seq); err != nil {
		return err
	}
	err = b.conn.DeleteSeq(ctx, b.names.stream, f.st.Seq)
	if errors.Is(err, natsconn.ErrNotFound) {
		return broker.ErrNotFound
	}
	return err
}

// Update implements [broker.Finder]. It replaces the waiting message with the id of o.Message by o,
// and waits for the server. The message goes to the end of its queue. With a server before 2.12 a
// new time takes effect at the next delivery, and a change of the level is broker.ErrUnsupported.
//
// Returns ErrNotFound if no such message waits, ErrNoQueue if the queue does not exist. Returns
// ErrMalformed or ErrTooLarge if o cannot be sent.
func (b *Broker) Update(ctx context.Context, name string, o broker.Outgoing) error {
	err := b.update(ctx, name, o)
	if err != nil && o.Message != nil {
		err = fmt.Errorf("message %.128q: %w", o.Message.ID, err)
	}
	return wrap(err, "update in", name)
}

// update replaces the waiting message with the id of o.Message by o, see Update. It waits for the
// server.
//
//   - Returns ErrNotFound if no such message waits or another process has changed it meanwhile.
//   - Returns ErrMalformed if o names another queue, and the errors of check.
//   - Returns ErrUnsupported if the server is too old to move the message to another subject.
func (b *Broker) update(ctx context.Context, name string, o broker.Outgoing) error {
	if err := b.check(o.Message); err != nil {
		return err
	}
	if o.Queue != "" && o.Queue != name {
		return fmt.Errorf("%w: the message names another queue, %q", broker.ErrMalformed, o.Queue)
	}
	f, err := b.find(ctx, name, o.Message.ID)
	if err != nil {
		return err
	}
	can, err := b.ensureStream(ctx)
	if err != nil {
		return err
	}
	if !can.schedules && (f.delayed || f.st.Subject != f.q.workOf(o.Message.Priority, lanes.Of(f.m))+lastToken(f.st.Subject)) {
		return fmt.Errorf("%w: the server is too old to move a message; it needs version 2.12 or later", broker.ErrUnsupported)
	}
	o.Queue = name
	err = b.exchange(ctx, f, o)
	if errors.Is(err, natsconn.ErrWrongSequence) { // another process has taken or changed it meanwhile
		return fmt.Errorf("%w: %w", broker.ErrNotFound, err)
	}
	return err
}

// exchange replaces the waiting message f by o in one atomic step and waits for the server, also
// while that is busy. The message may change its subject: level, or from and to the schedules.
// Returns natsconn.ErrWrongSequence, and stores nothing, if f.st is no longer the last message of
// its subject. Returns the errors of dueTime, encodeTo and the publish.
func (b *Broker) exchange(ctx context.Context, f *found, o broker.Outgoing) error {
	at, err := b.dueTime(ctx, o.At)
	if err != nil {
		return err
	}
	p := publishing{queue: f.q, m: o.Message, at: at, lane: lanes.Of(f.m)}
	if err := b.encodeTo(ctx, &p); err != nil {
		return err
	}
	seq := strconv.FormatUint(f.st.Seq, 10)
	scheduled := headerValue(p.msg.Header, headerSchedule) != ""
	p.msg = withHeader(p.msg, headerMsgID, "")
	switch {
	case f.delayed && scheduled, !f.delayed && p.msg.Subject == f.st.Subject:
		p.msg = withHeader(p.msg, headerExpectedSeq, seq)
	case f.delayed: // the schedule is removed with it
		p.msg = withHeader(withHeader(p.msg, headerScheduler, f.st.Subject), headerScheduleNext, "purge")
		p.msg = withHeader(withHeader(p.msg, headerExpectedSeq, seq), headerExpectedSubj, f.st.Subject)
	default:
		old := &delivery{subject: f.st.Subject, seq: f.st.Seq}
		return b.publishAtomic(ctx, p.msg, old.movedNotice())
	}
	for {
		_, err := b.conn.Publish(ctx, p.msg)
		if err == nil || !b.retryLater(ctx, err) {
			return err
		}
	}
}
