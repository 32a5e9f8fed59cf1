package redisbroker

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/messagecode"
)

// Find implements [broker.Finder]. Of several waiting generations it returns the last published
// one. At is the time of a delayed message, otherwise zero. A JSON task that another program pushed
// has no id until it was delivered once. It waits for the server.
//
// Returns ErrNotFound if no such message waits or the id is not valid. Returns ErrNoQueue if the
// queue does not exist, ErrMalformed if its name is not valid.
func (b *Broker) Find(ctx context.Context, queue, id string) (broker.Outgoing, error) {
	q, err := b.open(queue)
	if err != nil {
		return broker.Outgoing{}, err
	}
	v, err := q.eval(ctx, b.conn.Eval, b.scripts.find, keyOf(id, 0))
	if err != nil {
		return broker.Outgoing{}, wrap(err, "find in", queue)
	}
	answer, status, err := parseAnswer(v)
	if err := foundError(id, status, err); err != nil {
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

// foundError returns the error for the status of a script that searched for id: nil if the
// message was found, ErrNoQueue, or ErrNotFound. An id that is not valid is never found. It
// returns err if that is not nil.
func foundError(id string, status int64, err error) error {
	switch {
	case err != nil:
		return err
	case status == noQueue:
		return broker.ErrNoQueue
	case status == notFound || !messagecode.ValidID(id):
		return fmt.Errorf("%w: %.128q", broker.ErrNotFound, id)
	}
	return nil
}

// Delete implements [broker.Finder]. One script removes the waiting message. It waits for the
// server and for the replicas of Config.WaitReplicas. Returns ErrNotFound if no such message waits,
// ErrNoQueue if the queue does not exist.
func (b *Broker) Delete(ctx context.Context, queue, id string) error {
	q, err := b.open(queue)
	if err != nil {
		return err
	}
	return wrap(q.update(ctx, id), "delete in", queue)
}

// Update implements [broker.Finder]. The message keeps its place in the queue if neither its
// Generation nor its time nor its priority level changes. Its deliveries are counted from 1 again.
// It waits for the server and for the replicas of Config.WaitReplicas.
//
//   - o.Queue is neither queue nor empty: ErrMalformed.
//   - The message cannot be stored: ErrMalformed or ErrTooLarge.
//   - No such message waits: ErrNotFound. The queue does not exist: ErrNoQueue.
func (b *Broker) Update(ctx context.Context, queue string, o broker.Outgoing) error {
	q, err := b.open(queue)
	if err != nil {
		return err
	}
	if o.Queue != "" && o.Queue != queue {
		return fmt.Errorf("redis update in %.128q: %w: the message names another queue, %.128q", queue, broker.ErrMalformed, o.Queue)
	}
	v, err := b.outgoing(o.Message, o.At)
	if err != nil {
		return fmt.Errorf("redis update in %.128q: %w", queue, err)
	}
	return wrap(q.update(ctx, o.Message.ID, v.key, v.value, timeArg(v.at)), "update in", queue)
}

// update replaces the waiting message id by the arguments with: key, value and time. Without
// arguments it deletes the message. It waits for the server and for the replicas of
// Config.WaitReplicas. Returns ErrNotFound if no such message waits or the id is not valid,
// ErrNoQueue if the queue does not exist.
func (q *queue) update(ctx context.Context, id string, with ...any) error {
	args := append([]any{q.names.channels(), keyOf(id, 0)}, with...)
	answer, _, err := q.callWithLevels(ctx, q.b.write, q.b.scripts.update, args...)
	return foundError(id, number(answer, 0), err)
}
