package natsbroker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/natsconn"
)

// consumerState holds the used parts of a server consumer's state.
type consumerState struct {
	Delivered struct {
		Consumer uint64 `json:"consumer_seq"`
		Stream   uint64 `json:"stream_seq"`
	} `json:"delivered"`
	AckPending int    `json:"num_ack_pending"`
	Pending    uint64 `json:"num_pending"`
	Waiting    int    `json:"num_waiting"` // requests for messages, of any process
}

// state asks the server for the state of a level's consumer and waits for the answer. Returns
// natsconn.ErrNoConsumer if no process has consumed from the level yet.
func (b *Broker) state(ctx context.Context, q *queue, level int) (consumerState, error) {
	var st consumerState
	err := b.conn.API(ctx, "CONSUMER.INFO."+b.names.stream+"."+q.consumers[level], struct{}{}, &st)
	return st, err
}

// Stats implements [broker.Inspector]. A message that was returned to the queue and waits for a
// consumer counts as held, and not for Oldest. DeadDropped counts the letters that this process has
// dropped because there were too many. The server does not report expired letters. Returns
// ErrNoQueue if the queue does not exist. It waits for the server.
func (b *Broker) Stats(ctx context.Context, name string) (broker.Stats, error) {
	st, err := b.stats(ctx, name)
	return st, wrap(err, "inspect", name)
}

// stats adds up the counters of all levels of a queue, with one or more requests for each, see
// Stats. All messages of a level without a consumer are ready. Returns ErrNoQueue if the queue does
// not exist. After an error of the server the sums are incomplete. It waits for the server.
func (b *Broker) stats(ctx context.Context, name string) (broker.Stats, error) {
	var sum broker.Stats
	q, err := b.queue(ctx, name)
	if err != nil {
		return sum, err
	}
	for i := range q.work {
		st, err := b.state(ctx, q, i)
		ready := int(st.Pending)
		if errors.Is(err, natsconn.ErrNoConsumer) {
			ready, err = b.conn.Subjects(ctx, b.names.stream, q.work[i]+"*")
		}
		if err != nil {
			return sum, err
		}
		sum.Ready += ready
		sum.Held += st.AckPending
		if ready == 0 {
			continue
		}
		first, err := b.nextWaiting(ctx, q, i, st.Delivered.Stream+1)
		if err != nil {
			return sum, err
		}
		if first != nil && (sum.Oldest.IsZero() || first.Time.Before(sum.Oldest)) {
			sum.Oldest = first.Time
		}
	}
	if sum.Delayed, err = b.conn.Subjects(ctx, b.names.stream, q.schedule+"*"); err != nil {
		return sum, err
	}
	sum.DeadDropped = int(q.deadDropped.Load())
	sum.Dead, err = b.conn.Subjects(ctx, b.names.stream, q.dead+">")
	return sum, err
}

// purgeBatch is the number of messages that Purge requests at once.
const purgeBatch = 256

// Purge implements [broker.Inspector]. It removes the waiting messages and returns their number,
// also after an error. Delayed messages and dead letters stay. It fetches the messages through the
// queue's consumers and acknowledges them. The server itself can purge only by subject, which would
// remove held messages too. Returns ErrNoQueue if the queue does not exist. It waits for the
// server.
func (b *Broker) Purge(ctx context.Context, name string) (int, error) {
	n, err := b.purge(ctx, name)
	return n, wrap(err, "purge", name)
}

// purge removes the waiting messages of all levels and returns their number, also after an error.
// It first raises the queue's mark, so that they can be published again, see mark. The messages of
// a level without a consumer are purged by subject; see drain for the others. It stops at the
// first error. It waits for the server. Returns ErrNoQueue if the queue does not exist.
func (b *Broker) purge(ctx context.Context, name string) (int, error) {
	q, err := b.queue(ctx, name)
	if err != nil {
		return 0, err
	}
	last, err := b.lastSeq(ctx)
	if err != nil {
		return 0, err
	}
	if err := b.markRemoved(ctx, name, last); err != nil {
		return 0, err
	}
	sum := 0
	for i := range q.work {
		st, err := b.state(ctx, q, i)
		n := 0
		switch {
		case errors.Is(err, natsconn.ErrNoConsumer):
			n, err = b.conn.Purge(ctx, b.names.stream, q.work[i]+"*")
		case err == nil:
			n, err = b.drain(ctx, q, i, int(st.Pending)+st.AckPending)
		}
		sum += n
		if err != nil {
			return sum, err
		}
	}
	return sum, nil
}

// lastSeq returns the highest sequence of the stream so far. It asks the server, waits for the
// answer and returns the error of the request.
func (b *Broker) lastSeq(ctx context.Context) (uint64, error) {
	var resp struct {
		State struct {
			Last uint64 `json:"last_seq"`
		} `json:"state"`
	}
	err := b.conn.API(ctx, "STREAM.INFO."+b.names.stream, struct{}{}, &resp)
	return resp.State.Last, err
}

// drain fetches and acknowledges waiting messages of a level, until it has counted limit or none
// waits. It waits until the server has received the acknowledgements. It returns the number of
// messages, without notices of moved messages, also after an error: that of ctx or of the
// connection.
func (b *Broker) drain(ctx context.Context, q *queue, level, limit int) (int, error) {
	sum := 0
	err := b.conn.Do(ctx, func(ctx context.Context, s *natsconn.Session) error {
		inbox := nats.NewInbox()
		sub, err := s.NATS.SubscribeSync(inbox)
		if err != nil {
			return err
		}
		defer func() { _ = sub.Unsubscribe() }() // the connection may be lost
		ask := "$JS.API.CONSUMER.MSG.NEXT." + b.names.stream + "." + q.consumers[level]
		for sum < limit {
			n := min(purgeBatch, limit-sum)
			if err := s.NATS.PublishRequest(ask, inbox, fmt.Appendf(nil, `{"batch":%d,"no_wait":true}`, n)); err != nil {
				return err
			}
			got, more, err := drainBatch(ctx, s.NATS, sub, n)
			sum += got
			if err != nil || !more {
				return err
			}
		}
		return nil
	})
	return sum, err
}

// drainBatch acknowledges the messages that answer a request for n messages, and waits until the
// server has received the acknowledgements. It returns their number without notices of moved
// messages, and whether further messages may wait. After an error the number may be too high.
func drainBatch(ctx context.Context, nc *nats.Conn, sub *nats.Subscription, n int) (got int, more bool, err error) {
	last := ""
	more = true
	for range n {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return got, false, err
		}
		if m.Reply == "" { // the request has ended
			more = false
			break
		}
		if headerValue(m.Header, headerMoved) == "" {
			got++
		}
		last = m.Reply
		if err := nc.Publish(m.Reply, ackBody); err != nil {
			return got, false, err
		}
	}
	if last == "" {
		return got, false, nil
	}
	// The answer to the last one shows that the server has received all of them.
	_, err = nc.RequestWithContext(ctx, last, ackBody)
	return got, more, err
}

// mark is the JSON in a queue's M subject. Messages up to the sequence Removed that no longer
// exist may have been deleted. So the same (ID, Generation) published again is a new message, even
// while the server remembers the first one.
type mark struct {
	Removed uint64 `json:"removed"`
}

// removed returns the sequence in a queue's mark, up to which messages may have been deleted. It
// returns 0 if the queue has no mark. It waits for the server. Returns the errors of readMark.
func (b *Broker) removed(ctx context.Context, name string) (uint64, error) {
	m, _, err := b.readMark(ctx, name)
	return m.Removed, err
}

// readMark returns a queue's mark and the sequence under which it is stored. The mark is zero and
// the sequence 0 if none is stored. Returns an error if the stored mark is not JSON. It waits for
// the server.
func (b *Broker) readMark(ctx context.Context, name string) (m mark, seq uint64, err error) {
	st, err := b.conn.GetLast(ctx, b.names.stream, b.names.mark(name))
	if errors.Is(err, natsconn.ErrNotFound) {
		return m, 0, nil
	}
	if err != nil {
		return m, 0, err
	}
	return m, st.Seq, errors.Join(json.Unmarshal(st.Data, &m))
}

// markRemoved raises a queue's mark to the sequence upTo, unless it is higher already. It waits for
// the confirmation, and repeats after a conflict and while the server is busy. It returns other
// errors of the server. With a server of 2.11 or later the mark expires shortly after
// Config.Dedupe. Call it before the removal: a mark without a removal is harmless.
func (b *Broker) markRemoved(ctx context.Context, name string, upTo uint64) error {
	f, err := b.ensureStream(ctx)
	if err != nil {
		return err
	}
	for {
		have, seq, err := b.readMark(ctx, name)
		if err != nil || have.Removed >= upTo {
			return err
		}
		data, err := json.Marshal(mark{Removed: upTo})
		if err != nil {
			return err
		}
		m := &nats.Msg{Subject: b.names.mark(name), Data: data, Header: nats.Header{headerExpectedSeq: {strconv.FormatUint(seq, 10)}}}
		if f.ttl {
			m.Header[headerTTL] = []string{(f.window + 2*time.Second).Truncate(time.Second).String()}
		}
		_, err = b.conn.Publish(ctx, m)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, natsconn.ErrWrongSequence): // another process has raised it
		case !b.retryLater(ctx, err):
			return err
		}
	}
}
