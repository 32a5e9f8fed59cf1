package amqpresults

import (
	"context"
	"errors"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/internal/amqpreplies"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// contentType marks the messages of a reply queue.
const contentType = "application/x-swarmiji-record"

// Store sends and receives records. It publishes and consumes over two connections, because a
// broker that blocks publishers still delivers. It opens each connection at its first use. All
// methods are safe for concurrent use.
type Store struct{ replies *amqpreplies.Store }

var (
	_ resultstore.ResultStore = (*Store)(nil)
	_ resultstore.BatchSaver  = (*Store)(nil)
	_ resultstore.Replier     = (*Store)(nil)
)

// New checks c and makes a Store. It does no I/O and starts no goroutine. It returns all problems
// of c in one error.
func New(c Config) (*Store, error) {
	c, err := c.complete()
	s, connErr := amqpreplies.New(amqpreplies.Config{
		Connect: c.Connect, Prefix: "swj." + c.Namespace + ".reply.",
		Expires: c.Expires, MaxLength: c.MaxLength, MaxResult: c.MaxResult, Prefetch: c.Prefetch, QueueType: string(c.QueueType), Logger: c.Logger,
		Sends: amqpreplies.Final, Encode: encode,
		Decode: func(_ string, d *amqp.Delivery) (resultstore.Record, error) { return wire.DecodeRecord(d.Body) },
	})
	if err = errors.Join(err, connErr); err != nil {
		return nil, err
	}
	return &Store{s}, nil
}

// encode returns the message for a record. Returns the errors of wire.EncodeRecord.
func encode(r *resultstore.Record) (*amqp.Publishing, error) {
	body, err := wire.EncodeRecord(r)
	if err != nil {
		return nil, err
	}
	return &amqp.Publishing{ContentType: contentType, DeliveryMode: amqp.Persistent, MessageId: string(r.ID), Body: body}, nil
}

// Save implements [resultstore.ResultStore]: it publishes a terminal record, or an open one with an
// error, to the reply queue of r.ReplyTo. It waits for the broker's confirmation. For any other
// record, or without ReplyTo, it returns nil and sends nothing.
//
// While the queue does not exist Save tries again, because the submitter may be about to declare
// it. Once the queue has been missing for 3 s, Save returns [resultstore.ErrUnreachable]. All later
// calls for this node return it at once, until the queue exists again.
//
// Save never returns ErrStale. It also returns:
//
//   - [task.ErrBadID] for an invalid ID
//   - [resultstore.ErrMalformed] for an invalid ReplyTo, a state that is not recorded, or a record
//     that cannot be encoded
//   - [resultstore.ErrTooLarge] for a record above the limits
//   - [resultstore.ErrUnavailable] if the record may or may not have arrived, for example when ctx
//     ends; saving it again is safe
//   - ErrClosed after Close, and ctx's error if ctx has already ended
func (s *Store) Save(ctx context.Context, r resultstore.Record) error {
	return s.replies.Save(ctx, r)
}

// SaveBatch implements [resultstore.BatchSaver]: it publishes the records one after the other and
// then waits for all confirmations. It does not wait for a missing reply queue: the outcome is
// [resultstore.ErrUnavailable] then. Its other errors are those of Save.
func (s *Store) SaveBatch(ctx context.Context, rs []resultstore.Record) []error {
	return s.replies.SaveBatch(ctx, rs)
}

// Load implements [resultstore.ResultStore]: it returns [resultstore.ErrNotFound] for every valid
// id, [task.ErrBadID] for another one, ErrClosed after Close, and ctx's error if ctx has ended.
func (s *Store) Load(ctx context.Context, id task.ID) (resultstore.Record, error) {
	return s.replies.Load(ctx, id)
}

// Delete implements [resultstore.ResultStore]: it does nothing, because no record is kept. Returns
// [task.ErrBadID] for an invalid id, ErrClosed after Close, and ctx's error if ctx has ended.
func (s *Store) Delete(ctx context.Context, id task.ID) error { return s.replies.Delete(ctx, id) }

// Replies implements [resultstore.Replier]: it declares the node's reply queue and blocks until the
// stream consumes it. All streams of one node, also of other processes, share its queue, and each
// record goes to one of them. A goroutine receives the records until the stream or the store is
// closed.
//
// If ctx has already ended, Replies returns ctx's error. Without a broker it waits until ctx ends.
// A refusal of the credentials is returned at once. Both are [resultstore.ErrUnavailable]. An
// invalid node name is [resultstore.ErrMalformed]. Returns ErrClosed after Close.
func (s *Store) Replies(ctx context.Context, node string) (resultstore.Replies, error) {
	return s.replies.Replies(ctx, node)
}

// Close implements [resultstore.ResultStore]. It closes all streams, waits for the answers of
// running Saves and closes the connections. If ctx ends first it cuts the connections and returns
// ctx's error.
func (s *Store) Close(ctx context.Context) error { return s.replies.Close(ctx) }
