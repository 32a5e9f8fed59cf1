package natsbroker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/natsconn"
)

// Bury implements [broker.Delivery]: a copy with the reason goes to the dead letters, and the delivery is acknowledged when the
// copy is confirmed. The copy is refused when the message is not there any more.
func (d *delivery) Bury(ctx context.Context, dead broker.Dead) error {
	return d.settleBy("bury", func() error {
		dead.Message = &d.msg
		if err := d.bury(ctx, dead); err != nil {
			return err
		}
		b := d.level.s.b
		b.outbox.ack(d.level.s.q, d.reply, d.level.s.deadlineOf(d))
		return nil
	})
}

func (d *delivery) bury(ctx context.Context, dead broker.Dead) error {
	b := d.level.s.b
	m, err := b.encodeDead(d.level.s.q, lastToken(d.subject), dead)
	if err != nil {
		return err
	}
	if f := b.features.Load(); f != nil && f.atomic { // older servers do not look at another subject
		m.Header[headerExpectedSeq] = []string{strconv.FormatUint(d.seq, 10)}
		m.Header[headerExpectedSubj] = []string{d.subject}
	}
	err = b.putDead(ctx, d.level.s.q, m)
	if errors.Is(err, natsconn.ErrWrongSequence) || errors.Is(err, natsconn.ErrNoStream) {
		return fmt.Errorf("%w: %w", broker.ErrLeaseLost, err)
	}
	return err
}

// encodeDead returns a dead letter as it is stored.
func (b *Broker) encodeDead(q *queue, token string, d broker.Dead) (*nats.Msg, error) {
	died := d.At
	d = d.Normalized()
	m, err := encode(d.Message, q.dead+token+"."+strconv.Itoa(d.Message.Generation), "")
	if err != nil {
		return nil, err
	}
	delete(m.Header, headerExpectedSeq)
	m.Header[headerReason] = []string{encodeText(d.Reason)}
	if d.Stack != "" {
		m.Header[headerStack] = []string{encodeText(d.Stack)}
	}
	if d.Attempts > 0 {
		m.Header[headerAttempts] = []string{strconv.Itoa(d.Attempts)}
	}
	if f := b.features.Load(); f != nil && f.ttl && b.cfg.DeadTTL > 0 {
		m.Header[headerTTL] = []string{max(b.cfg.DeadTTL, time.Second).Truncate(time.Second).String()}
	}
	if !died.IsZero() {
		m.Header[headerDied] = []string{strconv.FormatInt(died.UnixMilli(), 10)}
	}
	return m, nil
}

// decodeDead reads a stored dead letter.
func decodeDead(q *queue, st *natsconn.Stored) broker.Dead {
	token, _, _ := strings.Cut(strings.TrimPrefix(st.Subject, q.dead), ".")
	d := broker.Dead{
		Message: &broker.Message{}, Queue: q.name, At: st.Time,
		Reason: decodeText(first(st.Header, headerReason)), Stack: decodeText(first(st.Header, headerStack)),
	}
	decode(d.Message, idOf(token), st.Header, st.Data)
	if n, err := strconv.ParseInt(first(st.Header, headerAttempts), 10, 32); err == nil && n > 0 {
		d.Attempts = int(n)
	}
	if at := millis(first(st.Header, headerDied)); !at.IsZero() {
		d.At = at
	}
	return d
}

// putDead publishes a dead letter. Where it is too large it goes without what is said of it.
func (b *Broker) putDead(ctx context.Context, q *queue, m *nats.Msg) error {
	for {
		_, err := b.conn.Publish(ctx, m)
		switch {
		case err == nil:
			b.boundDead(ctx, q)
			return nil
		case errors.Is(err, natsconn.ErrTooLarge) && first(m.Header, headerStack) != "":
			m = with(m, headerStack, "")
		case errors.Is(err, natsconn.ErrTooLarge) && len(first(m.Header, headerReason)) > 2:
			m = with(m, headerReason, `""`)
		case !b.again(ctx, err):
			return err
		}
	}
}

// PutDead implements [broker.DeadLetterer].
func (b *Broker) PutDead(ctx context.Context, name string, d broker.Dead) error {
	err := b.addDead(ctx, name, d)
	return wrap(err, "dead-letter in", name)
}

func (b *Broker) addDead(ctx context.Context, name string, d broker.Dead) error {
	if err := b.check(d.Message); err != nil {
		return err
	}
	token, err := idToken(d.Message.ID)
	if err != nil {
		return err
	}
	q, err := b.queue(ctx, name)
	if errors.Is(err, broker.ErrNoQueue) {
		q, err = b.settle(ctx, name, nil)
	}
	if err != nil {
		return err
	}
	m, err := b.encodeDead(q, token, d)
	if err != nil {
		return err
	}
	err = b.putDead(ctx, q, m)
	if errors.Is(err, natsconn.ErrNoStream) { // nothing was stored; it is made anew
		b.streamGone(ctx)
		if _, err := b.ready(ctx); err != nil {
			return err
		}
		err = b.putDead(ctx, q, m)
	}
	return err
}

// sweepTime bounds what is done for the bound after a letter is stored.
const sweepTime = 5 * time.Second

// boundDead drops the oldest letters of a queue when there are too many. It looks at the first
// letter that this process puts and after each hundredth part of the bound. What fails is tried
// again after the next letter.
func (b *Broker) boundDead(ctx context.Context, q *queue) {
	if b.cfg.DeadMax <= 0 {
		return
	}
	n := q.deadPut.Add(1)
	if n > 1 && n <= int64(b.cfg.DeadMax/100) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	count, err := b.conn.Subjects(ctx, b.names.stream, q.dead+">")
	if err == nil && count > b.cfg.DeadMax {
		count, err = b.conn.PurgeOldest(ctx, b.names.stream, q.dead+">", b.cfg.DeadMax)
		q.deadDropped.Add(int64(count))
	}
	if err != nil {
		q.deadPut.Store(0)
		return
	}
	q.deadPut.Store(1)
}

// dropOld drops the letters that are too old, which the server does by itself since 2.11.
func (b *Broker) dropOld(ctx context.Context, q *queue) error {
	if f := b.features.Load(); b.cfg.DeadTTL <= 0 || f == nil || f.ttl {
		return nil
	}
	for {
		st, err := b.conn.GetNext(ctx, b.names.stream, q.dead+">", 1)
		if errors.Is(err, natsconn.ErrNotFound) {
			return nil
		}
		if err != nil || time.Since(st.Time) < b.cfg.DeadTTL {
			return err
		}
		if err := b.conn.DeleteSeq(ctx, b.names.stream, st.Seq); err != nil && !errors.Is(err, natsconn.ErrNotFound) {
			return err
		}
		q.deadDropped.Add(1)
	}
}

// encodeText makes a header of any text.
func encodeText(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		return `""`
	}
	return string(text)
}

func decodeText(s string) string {
	var text string
	if json.Unmarshal([]byte(s), &text) != nil {
		return s
	}
	return text
}

// ScanDead implements [broker.DeadLetterer].
func (b *Broker) ScanDead(ctx context.Context, name string, fn func(*broker.Dead) broker.DeadAction) error {
	return wrap(b.scanDead(ctx, name, fn), "scan the dead letters of", name)
}

func (b *Broker) scanDead(ctx context.Context, name string, fn func(*broker.Dead) broker.DeadAction) error {
	q, err := b.queue(ctx, name)
	if err != nil {
		return err
	}
	if err := b.dropOld(ctx, q); err != nil {
		return err
	}
	last, err := b.lastSeq(ctx)
	if err != nil {
		return err
	}
	for seq := uint64(1); ; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		st, err := b.conn.GetNext(ctx, b.names.stream, q.dead+">", seq)
		if errors.Is(err, natsconn.ErrNotFound) || err == nil && st.Seq > last {
			return nil
		}
		if err != nil {
			return err
		}
		d := decodeDead(q, st)
		switch fn(&d) {
		case broker.DeadRemove:
			if err := b.conn.DeleteSeq(ctx, b.names.stream, st.Seq); err != nil && !errors.Is(err, natsconn.ErrNotFound) {
				return err
			}
		case broker.DeadStop:
			return nil
		}
		seq = st.Seq + 1
	}
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
