package redisbroker

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/redisconn"
)

const (
	// maxBatch and maxBytes limit one call of the enqueue script, because the server is blocked during
	// it.
	maxBatch = 500
	maxBytes = 1 << 20
)

// outgoing is an encoded message that will be published.
type outgoing struct {
	key   string
	value []byte
	at    time.Time // zero: at once
}

// outgoing encodes m for delivery at the given time. Returns ErrMalformed or ErrTooLarge if m
// cannot be stored.
func (b *Broker) outgoing(m *broker.Message, at time.Time) (outgoing, error) {
	v, err := b.encode(m)
	if err != nil {
		return outgoing{}, err
	}
	return outgoing{key: keyOf(m.ID, m.Generation), value: v, at: at}, nil
}

// timeArg returns at as a script argument: microseconds on the server's clock, or "+" and the
// microseconds from now. It rounds up, so that no message is early. "0" means at once.
func timeArg(at time.Time) string {
	d, fromNow := broker.FromNow(at)
	if !fromNow {
		return strconv.FormatInt(unixMicro(at), 10)
	}
	return "+" + strconv.FormatInt(int64(max(0, d)+time.Microsecond-1)/1000, 10)
}

// unixMicro returns at in microseconds since 1970, rounded up so that no message is early. It
// returns 0 for the zero time, and 1 for the beginning of 1970.
func unixMicro(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	us := at.UnixMicro()
	if at.Nanosecond()%1000 != 0 {
		us++
	}
	if us == 0 {
		us = 1
	}
	return us
}

// Publish implements [broker.Broker]. It waits for the server and for the replicas of
// Config.WaitReplicas. Concurrent calls share a round trip. Its errors are those of publish.
func (b *Broker) Publish(ctx context.Context, queue string, m *broker.Message) error {
	return b.publish(ctx, broker.Outgoing{Queue: queue, Message: m})
}

// PublishAt implements [broker.Delayer]. It is Publish with a due time. The server's clock counts,
// to the microsecond.
func (b *Broker) PublishAt(ctx context.Context, queue string, m *broker.Message, at time.Time) error {
	return b.publish(ctx, broker.Outgoing{Queue: queue, Message: m, At: at})
}

// publish adds the message to the next round trip of its queue and blocks until the server has
// answered or ctx ends. It takes b.mu and then the lock of the queue's batch, but holds neither
// while it waits.
func (b *Broker) publish(ctx context.Context, o broker.Outgoing) error {
	q, e, err := b.prepare(o)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return wrap(errNotSent(ctx, nil), "publish to", o.Queue)
	}
	c := newCall(1)
	e.call = c
	q.out.add(e)
	return wrap(q.out.wait(ctx, c, []*entry[outgoing]{e})[0], "publish to", o.Queue)
}

// prepare returns the queue of o and an entry with the encoded message. It sends nothing. Returns
// ErrMalformed, ErrTooLarge or ErrClosed.
func (b *Broker) prepare(o broker.Outgoing) (*queue, *entry[outgoing], error) {
	q, err := b.open(o.Queue)
	if err != nil {
		return nil, nil, err
	}
	v, err := b.outgoing(o.Message, o.At)
	if err != nil {
		return nil, nil, fmt.Errorf("redis publish to %.128q: %w", o.Queue, err)
	}
	return q, &entry[outgoing]{v: v}, nil
}

// PublishBatch implements [broker.BatchPublisher]. The messages of one queue are sent in their
// order, up to 500 and about 1 MiB at a time. The queues are served at the same time. It waits for
// all. A message that fails does not stop the others, except those that are sent with it. Returns
// nil if all were stored, otherwise a [broker.BatchError] with the error of each message.
func (b *Broker) PublishBatch(ctx context.Context, ms []broker.Outgoing) error {
	errs := make([]error, len(ms))
	parts := make(map[*queue]*batchPart)
	failed := false
	for i, o := range ms {
		q, e, err := b.prepare(o)
		if err != nil {
			errs[i], failed = err, true
			continue
		}
		p := parts[q]
		if p == nil {
			p = &batchPart{}
			parts[q] = p
		}
		p.es, p.at = append(p.es, e), append(p.at, i)
	}
	for q, p := range parts {
		if ctx.Err() != nil {
			continue
		}
		p.call = newCall(len(p.es))
		for _, e := range p.es {
			e.call = p.call
		}
		q.out.add(p.es...)
	}
	for q, p := range parts {
		var got []error
		if p.call == nil {
			got = make([]error, len(p.es))
			for i := range got {
				got[i] = errNotSent(ctx, nil)
			}
		} else {
			got = q.out.wait(ctx, p.call, p.es)
		}
		for i, err := range got {
			if err != nil {
				errs[p.at[i]], failed = wrap(err, "publish to", q.name), true
			}
		}
	}
	if failed {
		return &broker.BatchError{Errs: errs}
	}
	return nil
}

// batchPart holds the messages of a batch for one queue.
type batchPart struct {
	es   []*entry[outgoing]
	at   []int // their indexes in the batch
	call *call
}

// sendBatch sends the first messages of es in one round trip, up to maxBytes but at least one, and
// returns their number. In the round trip the messages without a time come before those with a
// time. It waits for the server. Returns its error, which applies to all of them. It is the send
// function of the batcher of a queue.
func (q *queue) sendBatch(ctx context.Context, es []*entry[outgoing]) (int, error) {
	n, bytes, later := 0, 0, 0
	for n < len(es) && (n == 0 || bytes+len(es[n].v.value) <= maxBytes) {
		bytes += len(es[n].v.value)
		if !es[n].v.at.IsZero() {
			later++
		}
		n++
	}
	args := make([]any, 0, 3+2*n+later)
	args = append(args, q.names.channels(), n-later, later)
	for _, e := range es[:n] {
		if e.v.at.IsZero() {
			args = append(args, e.v.key, e.v.value)
		}
	}
	if later > 0 {
		for _, e := range es[:n] {
			if !e.v.at.IsZero() {
				args = append(args, e.v.key, e.v.value)
			}
		}
		for _, e := range es[:n] {
			if !e.v.at.IsZero() {
				args = append(args, timeArg(e.v.at))
			}
		}
	}
	_, _, err := q.callWithLevels(ctx, q.b.writeOnce, q.b.scripts.enqueue, args...)
	return n, err
}

// writeOnce executes a script whose effect is confirmed to a caller, at most once, and returns its
// answer. It waits for the server and for the replicas of Config.WaitReplicas, at most
// Config.WaitTimeout. If they are too few it returns the answer with ErrNotReplicated, which comes
// with ErrIndeterminate.
func (b *Broker) writeOnce(ctx context.Context, s *redisconn.Script, keys []string, args ...any) (any, error) {
	if b.cfg.WaitReplicas == 0 {
		return b.conn.EvalOnce(ctx, s, keys, args...)
	}
	v, replicas, err := b.conn.EvalWait(ctx, b.cfg.WaitReplicas, b.cfg.WaitTimeout, s, keys, args...)
	return v, b.checkReplicas(replicas, err)
}

// write executes a script like writeOnce, but sends it again if it was certainly not executed. If
// ctx or the Broker ends while it waits for the next attempt, it returns the last error.
func (b *Broker) write(ctx context.Context, s *redisconn.Script, keys []string, args ...any) (any, error) {
	if b.cfg.WaitReplicas == 0 {
		return b.conn.Eval(ctx, s, keys, args...)
	}
	for attempt := 0; ; attempt++ {
		v, err := b.writeOnce(ctx, s, keys, args...)
		if err == nil || !redisconn.Repeatable(err) {
			return v, err
		}
		if !b.pause(ctx, attempt) {
			return nil, fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		}
	}
}

// checkReplicas returns err, or ErrNotReplicated with ErrIndeterminate if fewer than
// Config.WaitReplicas replicas have confirmed a write.
func (b *Broker) checkReplicas(replicas int, err error) error {
	if err != nil || replicas >= b.cfg.WaitReplicas {
		return err
	}
	return fmt.Errorf("%w: %w: %d of %d", redisconn.ErrIndeterminate, ErrNotReplicated, replicas, b.cfg.WaitReplicas)
}
