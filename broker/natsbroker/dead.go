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

// DeadLetter implements [broker.Delivery]. It publishes a copy with the reason to the dead letters,
// and waits until the server has confirmed it. Then it acknowledges the delivery without waiting. A
// server of 2.12 or later refuses the copy if the message no longer exists: then it returns
// ErrLeaseLost.
//
// Returns ErrSettled or ErrLeaseLost if d cannot be settled. After another error d can be settled
// again, see settleAndWait; after ErrIndeterminate the letter may be stored.
func (d *delivery) DeadLetter(ctx context.Context, dead broker.Dead) error {
	return d.settleAndWait("dead-letter", func() error {
		dead.Message = &d.msg
		if err := d.deadLetter(ctx, dead); err != nil {
			return err
		}
		b := d.level.s.b
		b.outbox.ack(d.level.s.q, d.reply, d.level.s.deadlineOf(d))
		return nil
	})
}

// deadLetter publishes the dead letter of d and waits for the confirmation. Returns ErrLeaseLost if
// the stream no longer exists. Returns it too if the message no longer exists, but only servers of
// 2.12 and later check that. It does not settle d. Returns the errors of encodeDead and
// publishDead.
func (d *delivery) deadLetter(ctx context.Context, dead broker.Dead) error {
	b := d.level.s.b
	m, err := b.encodeDead(d.level.s.q, lastToken(d.subject), dead)
	if err != nil {
		return err
	}
	if f := b.features.Load(); f != nil && f.atomic { // older servers do not check another subject
		m.Header[headerExpectedSeq] = []string{strconv.FormatUint(d.seq, 10)}
		m.Header[headerExpectedSubj] = []string{d.subject}
	}
	err = b.publishDead(ctx, d.level.s.q, m)
	if errors.Is(err, natsconn.ErrWrongSequence) || errors.Is(err, natsconn.ErrNoStream) {
		return fmt.Errorf("%w: %w", broker.ErrLeaseLost, err)
	}
	return err
}

// encodeDead returns the stored form of the dead letter d, normalized: a message to a dead-letter
// subject of q. It replaces a stored letter of the same id and generation. token is the message's
// id in a subject. With a server of 2.11 or later the letter expires after Config.DeadTTL, at least
// a second. Without d.At the letter holds no time of death. Returns ErrMalformed or ErrTooLarge if
// the headers cannot be sent.
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

// decodeDead returns the dead letter in st, a message of a dead-letter subject of q. A missing
// field is empty, and a reason or stack that is not JSON is returned as it is. Without a valid
// time At is when the letter was stored.
func decodeDead(q *queue, st *natsconn.Stored) broker.Dead {
	token, _, _ := strings.Cut(strings.TrimPrefix(st.Subject, q.dead), ".")
	d := broker.Dead{
		Message: &broker.Message{}, Queue: q.name, At: st.Time,
		Reason: decodeText(headerValue(st.Header, headerReason)), Stack: decodeText(headerValue(st.Header, headerStack)),
	}
	decode(d.Message, idOf(token), st.Header, st.Data)
	if n, err := strconv.ParseInt(headerValue(st.Header, headerAttempts), 10, 32); err == nil && n > 0 {
		d.Attempts = int(n)
	}
	if at := parseMillis(headerValue(st.Header, headerDied)); !at.IsZero() {
		d.At = at
	}
	return d
}

// publishDead publishes a dead letter and waits for the confirmation. It repeats while the server
// is busy. If the letter is too large it is published without the stack, then without the reason.
// After the confirmation it drops the oldest letters if there are too many, see limitDead. Returns
// all other errors of the publish; after ErrIndeterminate the letter may be stored.
func (b *Broker) publishDead(ctx context.Context, q *queue, m *nats.Msg) error {
	for {
		_, err := b.conn.Publish(ctx, m)
		switch {
		case err == nil:
			b.limitDead(ctx, q)
			return nil
		case errors.Is(err, natsconn.ErrTooLarge) && headerValue(m.Header, headerStack) != "":
			m = withHeader(m, headerStack, "")
		case errors.Is(err, natsconn.ErrTooLarge) && len(headerValue(m.Header, headerReason)) > 2:
			m = withHeader(m, headerReason, `""`)
		case !b.retryLater(ctx, err):
			return err
		}
	}
}

// PutDead implements [broker.DeadLetterer]. It creates the queue if that does not exist, and waits
// until the stream has stored the letter. A letter that is too large loses its stack, then its
// reason. After ErrIndeterminate the letter may be stored.
//
//   - ErrMalformed: the message is missing, its id is empty, or the name is not valid.
//   - ErrTooLarge: the body or the headers cannot be sent.
func (b *Broker) PutDead(ctx context.Context, name string, d broker.Dead) error {
	err := b.addDead(ctx, name, d)
	return wrap(err, "dead-letter in", name)
}

// addDead stores the dead letter d for the queue, see PutDead, and waits for the confirmation. It
// creates a queue or stream that does not exist. Returns ErrMalformed or ErrTooLarge if the message
// cannot be stored, and the errors of publishDead. Its errors do not name the queue.
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
		q, err = b.writeRecord(ctx, broker.Queue{Name: name})
	}
	if err != nil {
		return err
	}
	m, err := b.encodeDead(q, token, d)
	if err != nil {
		return err
	}
	err = b.publishDead(ctx, q, m)
	if errors.Is(err, natsconn.ErrNoStream) { // nothing was stored; the stream is created again
		b.forgetStream(ctx)
		if _, err := b.ensureStream(ctx); err != nil {
			return err
		}
		err = b.publishDead(ctx, q, m)
	}
	return err
}

// limitDeadTimeout limits the time for limitDead after a letter was stored.
const limitDeadTimeout = 5 * time.Second

// limitDead drops the oldest letters of a queue if there are more than Config.DeadMax, and adds
// their number to q.deadDropped. It counts them at the first letter that this process stores, and
// after each hundredth part of the limit. It does nothing without a limit.
//
// It waits for the server up to limitDeadTimeout. It does not report errors: after one it counts
// again at the next letter.
func (b *Broker) limitDead(ctx context.Context, q *queue) {
	if b.cfg.DeadMax <= 0 {
		return
	}
	n := q.deadPut.Add(1)
	if n > 1 && n <= int64(b.cfg.DeadMax/100) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, limitDeadTimeout)
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

// dropExpiredDead drops the letters that are older than Config.DeadTTL, one by one from the oldest
// on, and counts them in q.deadDropped. It does nothing with a server of 2.11 or later, which
// drops them itself, or without a DeadTTL. It waits for the server and stops at its first error.
func (b *Broker) dropExpiredDead(ctx context.Context, q *queue) error {
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

// encodeText returns s as a JSON string, which can be a header's value.
func encodeText(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		return `""`
	}
	return string(text)
}

// decodeText returns the text that encodeText encoded, or s itself if it is not a JSON string.
func decodeText(s string) string {
	var text string
	if json.Unmarshal([]byte(s), &text) != nil {
		return s
	}
	return text
}

// ScanDead implements [broker.DeadLetterer]. It calls fn with each dead letter, from the oldest on,
// until fn returns DeadStop. fn runs on the calling goroutine. Each letter is read, and removed if
// fn says so, with a separate request to the server. A letter is removed before the next is shown.
// On servers before 2.11 it first drops letters older than Config.DeadTTL. Returns ErrNoQueue if
// the queue does not exist, and the server's first error.
func (b *Broker) ScanDead(ctx context.Context, name string, fn func(*broker.Dead) broker.DeadAction) error {
	return wrap(b.scanDead(ctx, name, ">", fn), "scan the dead letters of", name)
}

// ScanDeadID implements [broker.DeadFinder]. It is ScanDead for the subjects of one id: the server
// finds their letters without a search.
func (b *Broker) ScanDeadID(ctx context.Context, name, id string, fn func(*broker.Dead) broker.DeadAction) error {
	token, err := idToken(id)
	if err != nil { // no letter can have it
		_, err = b.queue(ctx, name)
	} else {
		err = b.scanDead(ctx, name, token+".*", fn)
	}
	return wrap(err, "find dead letters of", name)
}

// scanDead calls fn with letters from the oldest on, up to the last message that the stream held at
// the beginning. The ends of their subjects match the pattern which. It deletes a letter if fn
// returns DeadRemove, and ends after DeadStop. On servers before 2.11 it first drops expired
// letters, see dropExpiredDead. It waits for the server. Returns ErrNoQueue if the queue does not
// exist, and ctx's cause if ctx ends between two letters.
func (b *Broker) scanDead(ctx context.Context, name, which string, fn func(*broker.Dead) broker.DeadAction) error {
	q, err := b.queue(ctx, name)
	if err != nil {
		return err
	}
	if err := b.dropExpiredDead(ctx, q); err != nil {
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
		st, err := b.conn.GetNext(ctx, b.names.stream, q.dead+which, seq)
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

// PurgeDead implements [broker.DeadLetterer]. One request removes all messages of the queue's
// dead-letter subjects; PurgeDead waits for the answer. Returns their number, ErrNoQueue if the
// queue does not exist. After ErrIndeterminate letters may have been removed.
func (b *Broker) PurgeDead(ctx context.Context, name string) (int, error) {
	q, err := b.queue(ctx, name)
	n := 0
	if err == nil {
		n, err = b.conn.Purge(ctx, b.names.stream, q.dead+">")
	}
	return n, wrap(err, "purge the dead letters of", name)
}
