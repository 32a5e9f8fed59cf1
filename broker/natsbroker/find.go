package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/natsconn"
)

// found is a waiting message.
type found struct {
	q       *queue
	st      *natsconn.Stored
	m       *broker.Message
	at      time.Time // zero: it is due
	delayed bool      // it is a schedule
}

// Find implements [broker.Finder]. A message that was given back counts as held until it is handed out again.
func (b *Broker) Find(ctx context.Context, name, id string) (broker.Outgoing, error) {
	f, err := b.find(ctx, name, id)
	if err != nil {
		return broker.Outgoing{}, wrap(fmt.Errorf("message %.128q: %w", id, err), "find in", name)
	}
	return broker.Outgoing{Queue: name, Message: f.m, At: f.at}, nil
}

func (b *Broker) find(ctx context.Context, name, id string) (*found, error) {
	q, err := b.queue(ctx, name)
	if err != nil {
		return nil, err
	}
	token, err := idToken(id)
	if err != nil {
		return nil, broker.ErrNotFound // no message can have it
	}
	for i, subject := range q.work {
		st, err := b.conn.GetLast(ctx, b.names.stream, subject+token)
		if errors.Is(err, natsconn.ErrNotFound) || err == nil && first(st.Header, headerMoved) != "" {
			continue
		}
		if err != nil {
			return nil, err
		}
		// The consumer hands out in the order of sequences: what lies behind the last one waits.
		c, err := b.state(ctx, q, i)
		if err != nil && !errors.Is(err, natsconn.ErrNoConsumer) {
			return nil, err
		}
		if err == nil && c.Delivered.Stream >= st.Seq {
			return nil, broker.ErrNotFound
		}
		f := &found{q: q, st: st, m: &broker.Message{}}
		decode(f.m, id, st.Header, st.Data)
		if s := first(st.Header, headerNotBefore); s != "" {
			f.at = millis(s)
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
	at, err := time.Parse(time.RFC3339Nano, strings.TrimPrefix(first(st.Header, headerSchedule), "@at "))
	if err != nil {
		return nil, fmt.Errorf("%w: schedule %.80q", broker.ErrMalformed, first(st.Header, headerSchedule))
	}
	f.at = at
	return f, nil
}

// Delete implements [broker.Finder]. A message that a consumer gets at the same moment may be handled although Delete returns
// nil.
func (b *Broker) Delete(ctx context.Context, name, id string) error {
	err := b.remove(ctx, name, id)
	if err != nil {
		err = fmt.Errorf("message %.128q: %w", id, err)
	}
	return wrap(err, "delete from", name)
}

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

// Update implements [broker.Finder]. The message goes to the end of its queue. A change of time or level needs a server
// of 2.12 or later, else it is broker.ErrUnsupported.
func (b *Broker) Update(ctx context.Context, name string, o broker.Outgoing) error {
	err := b.update(ctx, name, o)
	if err != nil && o.Message != nil {
		err = fmt.Errorf("message %.128q: %w", o.Message.ID, err)
	}
	return wrap(err, "update in", name)
}

func (b *Broker) update(ctx context.Context, name string, o broker.Outgoing) error {
	if err := b.check(o.Message); err != nil {
		return err
	}
	if o.Queue != "" && o.Queue != name {
		return fmt.Errorf("%w: the update names queue %q", broker.ErrMalformed, o.Queue)
	}
	f, err := b.find(ctx, name, o.Message.ID)
	if err != nil {
		return err
	}
	can, err := b.ready(ctx)
	if err != nil {
		return err
	}
	if !can.schedules && (f.delayed || f.st.Subject != f.q.work[f.q.level(o.Message.Priority)]+lastToken(f.st.Subject)) {
		return fmt.Errorf("%w: the server is too old to move a message, this needs 2.12 or later", broker.ErrUnsupported)
	}
	o.Queue = name
	err = b.exchange(ctx, f, o)
	if errors.Is(err, natsconn.ErrWrongSequence) { // somebody else took it in the meantime
		return fmt.Errorf("%w: %w", broker.ErrNotFound, err)
	}
	return err
}

// exchange puts o in the place of a waiting message.
func (b *Broker) exchange(ctx context.Context, f *found, o broker.Outgoing) error {
	at, err := b.due(ctx, o.At)
	if err != nil {
		return err
	}
	p := publishing{queue: f.q, m: o.Message, at: at}
	if err := b.place(ctx, &p); err != nil {
		return err
	}
	seq := strconv.FormatUint(f.st.Seq, 10)
	scheduled := first(p.msg.Header, headerSchedule) != ""
	p.msg = with(p.msg, headerMsgID, "")
	switch {
	case f.delayed && scheduled, !f.delayed && p.msg.Subject == f.st.Subject:
		p.msg = with(p.msg, headerExpectedSeq, seq)
	case f.delayed: // the schedule goes with it
		p.msg = with(with(p.msg, headerScheduler, f.st.Subject), headerScheduleNext, "purge")
		p.msg = with(with(p.msg, headerExpectedSeq, seq), headerExpectedSubj, f.st.Subject)
	default:
		old := &delivery{subject: f.st.Subject, seq: f.st.Seq}
		return b.batch(ctx, p.msg, old.notice())
	}
	for {
		_, err := b.conn.Publish(ctx, p.msg)
		if err == nil || !b.again(ctx, err) {
			return err
		}
	}
}
