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

// consumerState is what of a consumer's state is of use here.
type consumerState struct {
	Delivered struct {
		Consumer uint64 `json:"consumer_seq"`
		Stream   uint64 `json:"stream_seq"`
	} `json:"delivered"`
	AckPending int    `json:"num_ack_pending"`
	Pending    uint64 `json:"num_pending"`
}

// state asks for the state of a level's consumer. natsconn.ErrNoConsumer: nobody has consumed from the level yet.
func (b *Broker) state(ctx context.Context, q *queue, level int) (consumerState, error) {
	var st consumerState
	err := b.conn.API(ctx, "CONSUMER.INFO."+b.names.stream+"."+b.names.consumer(q.name, level), struct{}{}, &st)
	return st, err
}

// Stats implements [broker.Inspector]. What was given back and waits for a consumer counts as held.
// DeadDropped counts what this process has dropped because there were too many; the server does not
// say what was too old.
func (b *Broker) Stats(ctx context.Context, name string) (broker.Stats, error) {
	st, err := b.stats(ctx, name)
	return st, wrap(err, "inspect", name)
}

func (b *Broker) stats(ctx context.Context, name string) (broker.Stats, error) {
	var sum broker.Stats
	q, err := b.queue(ctx, name)
	if err != nil {
		return sum, err
	}
	for i := range q.work {
		st, err := b.state(ctx, q, i)
		if errors.Is(err, natsconn.ErrNoConsumer) {
			n, err := b.conn.Subjects(ctx, b.names.stream, q.work[i]+"*")
			if err != nil {
				return sum, err
			}
			sum.Ready += n
			continue
		}
		if err != nil {
			return sum, err
		}
		sum.Ready += int(st.Pending)
		sum.Held += st.AckPending
	}
	if sum.Delayed, err = b.conn.Subjects(ctx, b.names.stream, q.schedule+"*"); err != nil {
		return sum, err
	}
	sum.DeadDropped = int(q.deadDropped.Load())
	sum.Dead, err = b.conn.Subjects(ctx, b.names.stream, q.dead+">")
	return sum, err
}

// purgeBatch is how many messages Purge takes at once.
const purgeBatch = 256

// Purge implements [broker.Inspector]. What waits is taken through the queue's consumers and acknowledged, since the server can
// purge by subject only, which would take what is held as well.
func (b *Broker) Purge(ctx context.Context, name string) (int, error) {
	n, err := b.purge(ctx, name)
	return n, wrap(err, "purge", name)
}

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

// lastSeq returns the sequence of the newest message that the stream has had.
func (b *Broker) lastSeq(ctx context.Context) (uint64, error) {
	var resp struct {
		State struct {
			Last uint64 `json:"last_seq"`
		} `json:"state"`
	}
	err := b.conn.API(ctx, "STREAM.INFO."+b.names.stream, struct{}{}, &resp)
	return resp.State.Last, err
}

// drain takes and acknowledges what waits at a consumer, up to limit messages.
func (b *Broker) drain(ctx context.Context, q *queue, level, limit int) (int, error) {
	sum := 0
	err := b.conn.Do(ctx, func(ctx context.Context, s *natsconn.Session) error {
		inbox := nats.NewInbox()
		sub, err := s.NATS.SubscribeSync(inbox)
		if err != nil {
			return err
		}
		defer func() { _ = sub.Unsubscribe() }() // the connection may have gone
		ask := "$JS.API.CONSUMER.MSG.NEXT." + b.names.stream + "." + b.names.consumer(q.name, level)
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

// drainBatch takes the answer to a request for n messages and returns how many it held without notices, and whether there may
// be more.
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
		if first(m.Header, headerMoved) == "" {
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
	_, err = nc.RequestWithContext(ctx, last, ackBody) // behind all others: the server has taken them
	return got, more, err
}

// mark is what a queue's mark holds: messages up to this sequence that are not there any more may have been deleted, so the same
// pair published again is a message like any other, also while the server remembers the first.
type mark struct {
	Removed uint64 `json:"removed"`
}

// removed reads a queue's mark; 0 if there is none.
func (b *Broker) removed(ctx context.Context, name string) (uint64, error) {
	m, _, err := b.readMark(ctx, name)
	return m.Removed, err
}

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

// markRemoved raises a queue's mark. It comes before the removal: until that the mark does no harm.
func (b *Broker) markRemoved(ctx context.Context, name string, upTo uint64) error {
	f, err := b.ready(ctx)
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
		case errors.Is(err, natsconn.ErrWrongSequence): // somebody else raised it
		case !b.again(ctx, err):
			return err
		}
	}
}
