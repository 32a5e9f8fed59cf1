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
	// maxBatch and maxBytes bound one call of the enqueue script: the server does nothing else meanwhile.
	maxBatch = 500
	maxBytes = 1 << 20
)

// outgoing is a message on its way into a queue.
type outgoing struct {
	key   string
	value []byte
	at    time.Time // zero: at once
}

// outgoing encodes a message.
func (b *Broker) outgoing(m *broker.Message, at time.Time) (outgoing, error) {
	v, err := b.encode(m)
	if err != nil {
		return outgoing{}, err
	}
	return outgoing{key: keyOf(m.ID, m.Generation), value: v, at: at}, nil
}

// when returns at as the scripts take it: microseconds on the server's clock, or "+" and the
// microseconds from now, rounded up so that nothing is early. "0" is at once.
func when(at time.Time) string {
	d, fromNow := broker.FromNow(at)
	if !fromNow {
		return strconv.FormatInt(micros(at), 10)
	}
	return "+" + strconv.FormatInt(int64(max(0, d)+time.Microsecond-1)/1000, 10)
}

// micros is a time on the server's clock, rounded up so that nothing is early; 0 for the zero time.
func micros(at time.Time) int64 {
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

// Publish implements [broker.Broker].
func (b *Broker) Publish(ctx context.Context, queue string, m *broker.Message) error {
	return b.publish(ctx, broker.Outgoing{Queue: queue, Message: m})
}

// PublishAt implements [broker.Delayer]. The server's clock decides, to the microsecond.
func (b *Broker) PublishAt(ctx context.Context, queue string, m *broker.Message, at time.Time) error {
	return b.publish(ctx, broker.Outgoing{Queue: queue, Message: m, At: at})
}

func (b *Broker) publish(ctx context.Context, o broker.Outgoing) error {
	q, e, err := b.accept(o)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return wrap(notSent(ctx, nil), "publish to", o.Queue)
	}
	c := newCall(1)
	e.call = c
	q.out.add(e)
	return wrap(q.out.wait(ctx, c, []*entry[outgoing]{e})[0], "publish to", o.Queue)
}

// accept checks and encodes one message.
func (b *Broker) accept(o broker.Outgoing) (*queue, *entry[outgoing], error) {
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

// PublishBatch implements [broker.BatchPublisher]. The messages of one queue go out in their order, some hundreds at a time.
func (b *Broker) PublishBatch(ctx context.Context, ms []broker.Outgoing) error {
	errs := make([]error, len(ms))
	parts := make(map[*queue]*part)
	failed := false
	for i, o := range ms {
		q, e, err := b.accept(o)
		if err != nil {
			errs[i], failed = err, true
			continue
		}
		p := parts[q]
		if p == nil {
			p = &part{}
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
				got[i] = notSent(ctx, nil)
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

// part is what of a batch goes into one queue.
type part struct {
	es   []*entry[outgoing]
	at   []int // their places in the batch
	call *call
}

// send makes one trip with messages: as many as one call of the script should take.
func (q *queue) send(ctx context.Context, es []*entry[outgoing]) (int, error) {
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
				args = append(args, when(e.v.at))
			}
		}
	}
	_, _, err := q.call(ctx, q.b.writeOnce, q.b.scripts.enqueue, args...)
	return n, err
}

// writeOnce executes a script whose effect the caller is told of as confirmed, and waits for replicas if it shall.
func (b *Broker) writeOnce(ctx context.Context, s *redisconn.Script, keys []string, args ...any) (any, error) {
	if b.cfg.WaitReplicas == 0 {
		return b.conn.EvalOnce(ctx, s, keys, args...)
	}
	v, replicas, err := b.conn.EvalWait(ctx, b.cfg.WaitReplicas, b.cfg.WaitTimeout, s, keys, args...)
	return v, b.replicated(replicas, err)
}

// write is writeOnce, repeated while it was surely not executed.
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

// replicated says whether enough replicas have what was written.
func (b *Broker) replicated(replicas int, err error) error {
	if err != nil || replicas >= b.cfg.WaitReplicas {
		return err
	}
	return fmt.Errorf("%w: %w: %d of %d", redisconn.ErrIndeterminate, ErrNotReplicated, replicas, b.cfg.WaitReplicas)
}
