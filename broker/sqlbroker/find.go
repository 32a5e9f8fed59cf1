package sqlbroker

import (
	"context"
	"errors"
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/messagecode"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

// Find implements [broker.Finder]. Of several waiting generations it returns the highest. At is the
// time of a delayed message, otherwise zero. It waits for the database.
//
// Returns ErrNotFound if no such message waits or the id is not valid, and ErrNoQueue if the queue
// does not exist. Returns ErrMalformed for an invalid queue name, ErrClosed after Close, and errors
// of the database.
func (b *Broker) Find(ctx context.Context, queue, id string) (broker.Outgoing, error) {
	q, err := b.queue(ctx, queue)
	if err != nil {
		return broker.Outgoing{}, wrap(err, "find in", queue)
	}
	if !messagecode.ValidID(id) {
		return broker.Outgoing{}, wrap(errNotFound(id), "find in", queue)
	}
	var now int64
	var r stored
	err = b.view(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
		return tx.Row(ctx, q.text.find, q.id, id).Scan(append([]any{&now}, r.columns()...)...)
	})
	if errors.Is(err, sqlconn.ErrNoRows) {
		err = errNotFound(id)
	}
	if err != nil {
		return broker.Outgoing{}, wrap(err, "find in", queue)
	}
	o := broker.Outgoing{Queue: queue, Message: &broker.Message{}}
	r.fill(o.Message)
	if *r.due > now {
		o.At = sqlconn.Time(*r.due)
	}
	return o, nil
}

// Delete implements [broker.Finder]. It removes the waiting message with the highest Generation. It
// waits for the database. Its errors are those of Find.
func (b *Broker) Delete(ctx context.Context, queue, id string) error {
	q, err := b.queue(ctx, queue)
	if err == nil {
		err = b.change(ctx, "", q.text.remove, q.id, id)
	}
	return wrap(err, "delete in", queue)
}

// Update implements [broker.Finder]. It replaces the waiting message with the highest Generation.
// The message keeps its place in the queue if it is ready and neither its Generation nor its time
// nor its priority level changes. In a fair queue a new Key gives it a new place. Its deliveries
// are counted from 1 again. It waits for the database.
//
//   - o.Queue is neither queue nor empty, or a consumer holds the new Generation: ErrMalformed.
//   - The message cannot be stored: ErrMalformed or ErrTooLarge.
//   - No such message waits: ErrNotFound. The queue does not exist: ErrNoQueue.
//   - After Close: ErrClosed. The database fails: its error, for example ErrUnavailable.
func (b *Broker) Update(ctx context.Context, queue string, o broker.Outgoing) error {
	if o.Queue != "" && o.Queue != queue {
		return fmt.Errorf("sql update in %.128q: %w: the message names another queue, %.128q", queue, broker.ErrMalformed, o.Queue)
	}
	o.Queue = queue
	r, err := b.prepare(ctx, o)
	if err == nil {
		args := []any{
			r.q.id, r.m.ID, r.level, r.due, r.relative, int64(r.m.Generation), int64(r.m.Priority), r.expires, r.m.ContentType, r.meta, body(r.m),
		}
		if r.q.text.fair {
			args = append(args, r.m.Key, weight(r.m))
		}
		err = b.change(ctx, r.q.topic, r.q.text.update, args...)
	}
	if sqlconn.IsUnique(err) {
		return fmt.Errorf("sql update in %.128q: %w: generation %d exists: %w", queue, broker.ErrMalformed, r.m.Generation, err)
	}
	return wrap(err, "update in", queue)
}

// change runs a statement for a waiting message, whose id is the second argument, and notifies the
// consumers of topic unless that is "". It waits for the database. Returns ErrNotFound if the id is
// not valid or the statement changes no row, and errors of the database.
func (b *Broker) change(ctx context.Context, topic, query string, args ...any) error {
	id, _ := args[1].(string)
	if !messagecode.ValidID(id) {
		return errNotFound(id)
	}
	n, err := b.exec(ctx, topic, query, args...)
	if err == nil && n == 0 {
		err = errNotFound(id)
	}
	return err
}
