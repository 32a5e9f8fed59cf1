package natsbroker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/natsconn"
)

// Bury implements [broker.Delivery]: a copy with the reason goes to the dead letters, and the delivery is acknowledged when the
// copy is confirmed. The copy is refused when the message is not there any more.
func (d *delivery) Bury(ctx context.Context, cause error) error {
	return d.settleBy("bury", func() error {
		reason := ""
		if cause != nil {
			reason = cause.Error()
		}
		if err := d.bury(ctx, reason); err != nil {
			return err
		}
		b := d.level.s.b
		b.outbox.ack(d.level.s.q, d.reply, d.level.s.deadlineOf(d))
		return nil
	})
}

func (d *delivery) bury(ctx context.Context, reason string) error {
	b := d.level.s.b
	m, err := encode(&d.msg, d.level.s.q.dead+lastToken(d.subject)+"."+strconv.Itoa(d.msg.Generation), "")
	if err != nil {
		return err
	}
	m.Header[headerReason] = []string{encodeReason(reason)}
	delete(m.Header, headerExpectedSeq)
	if f := b.features.Load(); f != nil && f.atomic { // older servers do not look at another subject
		m.Header[headerExpectedSeq] = []string{strconv.FormatUint(d.seq, 10)}
		m.Header[headerExpectedSubj] = []string{d.subject}
	}
	for {
		_, err := b.conn.Publish(ctx, m)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, natsconn.ErrTooLarge) && len(first(m.Header, headerReason)) > 2:
			m = with(m, headerReason, `""`)
		case errors.Is(err, natsconn.ErrWrongSequence), errors.Is(err, natsconn.ErrNoStream):
			return fmt.Errorf("%w: %w", broker.ErrLeaseLost, err)
		case !b.again(ctx, err):
			return err
		}
	}
}

// encodeReason makes a header of any text.
func encodeReason(s string) string {
	if len(s) > maxReason {
		s = s[:maxReason]
	}
	text, err := json.Marshal(strings.ToValidUTF8(s, "\uFFFD"))
	if err != nil {
		return `""`
	}
	return string(text)
}

func decodeReason(s string) string {
	var text string
	if json.Unmarshal([]byte(s), &text) != nil {
		return s
	}
	return text
}

// ListDead implements [broker.DeadLetterer].
func (b *Broker) ListDead(ctx context.Context, name string, n int) ([]broker.Dead, error) {
	var dead []broker.Dead
	err := b.eachDead(ctx, name, n, func(_ *queue, st *natsconn.Stored, m *broker.Message) error {
		dead = append(dead, broker.Dead{Message: m, Reason: decodeReason(first(st.Header, headerReason)), Queue: name, At: st.Time})
		return nil
	})
	return dead, wrap(err, "list the dead letters of", name)
}

// eachDead calls fn with up to n dead letters, oldest first.
func (b *Broker) eachDead(ctx context.Context, name string, n int, fn func(q *queue, st *natsconn.Stored, m *broker.Message) error) error {
	q, err := b.queue(ctx, name)
	if err != nil {
		return err
	}
	for seq := uint64(1); n > 0; n-- {
		st, err := b.conn.GetNext(ctx, b.names.stream, q.dead+">", seq)
		if errors.Is(err, natsconn.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		token, _, _ := strings.Cut(strings.TrimPrefix(st.Subject, q.dead), ".")
		m := &broker.Message{}
		decode(m, idOf(token), st.Header, st.Data)
		if err := fn(q, st, m); err != nil {
			return err
		}
		seq = st.Seq + 1
	}
	return nil
}

// RequeueDead implements [broker.DeadLetterer].
func (b *Broker) RequeueDead(ctx context.Context, name string, n int) (int, error) {
	sum := 0
	err := b.eachDead(ctx, name, n, func(q *queue, st *natsconn.Stored, m *broker.Message) error {
		m.Generation++
		done, err := b.requeue(ctx, q, st, m)
		if done {
			sum++
		}
		return err
	})
	return sum, wrap(err, "requeue the dead letters of", name)
}

// requeue publishes a dead letter as m and removes it. It is false when somebody else has done so.
func (b *Broker) requeue(ctx context.Context, q *queue, st *natsconn.Stored, m *broker.Message) (bool, error) {
	p := publishing{queue: q, m: m}
	if err := b.place(ctx, &p); err != nil {
		return false, err
	}
	// Whatever the server remembers of the id: a dead letter is requeued once, whoever else does it at the same time.
	p.msg = with(p.msg, headerMsgID, fmt.Sprintf("dead/%d", st.Seq))
	if ack, err := b.conn.Publish(ctx, p.msg); err != nil || !ack.Duplicate {
		if err := b.resolve(ctx, p, ack, err); err != nil {
			return false, err
		}
	}
	err := b.conn.DeleteSeq(ctx, b.names.stream, st.Seq)
	if errors.Is(err, natsconn.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// PurgeDead implements [broker.DeadLetterer].
func (b *Broker) PurgeDead(ctx context.Context, name string) (int, error) {
	q, err := b.queue(ctx, name)
	n := 0
	if err == nil {
		n, err = b.conn.Purge(ctx, b.names.stream, q.dead+">")
	}
	return n, wrap(err, "purge the dead letters of", name)
}
