package redisbroker

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// Find implements [broker.Finder]. Of several generations it finds the one that was published last. A JSON task that somebody
// pushed has no id until it was handed out once.
func (b *Broker) Find(ctx context.Context, queue, id string) (broker.Outgoing, error) {
	q, err := b.open(queue)
	if err != nil {
		return broker.Outgoing{}, err
	}
	v, err := q.eval(ctx, b.conn.Eval, b.scripts.find, keyOf(id, 0))
	if err != nil {
		return broker.Outgoing{}, wrap(err, "find in", queue)
	}
	answer, status, err := take(v)
	if err := found(id, status, err); err != nil {
		return broker.Outgoing{}, wrap(err, "find in", queue)
	}
	o := broker.Outgoing{Queue: queue, Message: &broker.Message{}}
	var types string
	decode(o.Message, text(answer, 1), text(answer, 2), &types)
	if at := text(answer, 3); at != "" {
		us, err := strconv.ParseFloat(at, 64)
		if err != nil {
			return broker.Outgoing{}, wrap(fmt.Errorf("%w: %w", errAnswer, err), "find in", queue)
		}
		o.At = time.UnixMicro(int64(us))
	}
	return o, nil
}

// found says what a script's status means.
func found(id string, status int64, err error) error {
	switch {
	case err != nil:
		return err
	case status == noQueue:
		return broker.ErrNoQueue
	case status == notFound || !validID(id):
		return fmt.Errorf("%w: %.128q", broker.ErrNotFound, id)
	}
	return nil
}

// Delete implements [broker.Finder].
func (b *Broker) Delete(ctx context.Context, queue, id string) error {
	q, err := b.open(queue)
	if err != nil {
		return err
	}
	return wrap(q.update(ctx, id), "delete in", queue)
}

// Update implements [broker.Finder]. The message keeps its place in the queue when neither its Generation nor its time nor its
// priority level changes; its deliveries are counted from 1 again. The Queue of o is the given one or empty.
func (b *Broker) Update(ctx context.Context, queue string, o broker.Outgoing) error {
	q, err := b.open(queue)
	if err != nil {
		return err
	}
	if o.Queue != "" && o.Queue != queue {
		return fmt.Errorf("redis update in %.128q: %w: it names queue %.128q", queue, broker.ErrMalformed, o.Queue)
	}
	v, err := b.outgoing(o.Message, o.At)
	if err != nil {
		return fmt.Errorf("redis update in %.128q: %w", queue, err)
	}
	return wrap(q.update(ctx, o.Message.ID, v.key, v.value, when(v.at)), "update in", queue)
}

func (q *queue) update(ctx context.Context, id string, with ...any) error {
	args := append([]any{q.names.channels(), keyOf(id, 0)}, with...)
	answer, _, err := q.call(ctx, q.b.write, q.b.scripts.update, args...)
	return found(id, number(answer, 0), err)
}
