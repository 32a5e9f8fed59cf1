package amqp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/celery/wire"
	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/internal/amqpreplies"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// ResultsConfig holds the settings of [NewResults]. Connect is the only required field.
type ResultsConfig struct {
	// Connect holds the addresses of RabbitMQ and how to connect to them.
	Connect amqpconnect.Config
	// Expires is the time after which RabbitMQ removes the reply queue of a disconnected submitter, at
	// least 1 s. Default: 30 minutes.
	Expires time.Duration
	// MaxResult is the largest Result in bytes. Save returns [resultstore.ErrTooLarge] for a larger
	// one. Default: 15 MiB.
	MaxResult int
	// Logger receives a warning with the cause when a stream of replies is interrupted. Default:
	// slog.Default().
	Logger *slog.Logger
}

// Results sends results as Celery's rpc:// backend does: each state of a task is a message for the
// queue that the task names in reply_to. Nothing is stored.
//
//   - The reply queue of a Go submitter has the name of its node. Unlike the queues of Python
//     submitters, it is durable and outlives a lost connection by [ResultsConfig].Expires.
//   - Load always returns [resultstore.ErrNotFound], and Delete does nothing.
//   - Save never returns [resultstore.ErrStale]. A submitter uses the first terminal record.
//   - Chords are not supported, as with Celery's backend.
//
// All methods are safe for concurrent use.
type Results struct{ replies *amqpreplies.Store }

var (
	_ resultstore.ResultStore = (*Results)(nil)
	_ resultstore.BatchSaver  = (*Results)(nil)
	_ resultstore.Replier     = (*Results)(nil)
)

// NewResults checks c and makes a Results. It does no I/O and starts no goroutine. It returns all
// problems of c in one error.
func NewResults(c ResultsConfig) (*Results, error) {
	var err error
	if c.Expires < 0 || c.Expires > 0 && c.Expires < time.Second {
		err = errors.New("celery/amqp: Expires is shorter than 1s: no reconnect would be in time")
	}
	if c.MaxResult < 0 {
		err = errors.Join(err, errors.New("celery/amqp: MaxResult is negative"))
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	s, connErr := amqpreplies.New(amqpreplies.Config{
		Connect: c.Connect, Purpose: "celery ",
		Expires:   cmp.Or(c.Expires, amqpreplies.DefaultExpires),
		MaxLength: amqpreplies.DefaultMaxLength,
		MaxResult: cmp.Or(c.MaxResult, amqpreplies.DefaultMaxResult),
		Prefetch:  amqpreplies.DefaultPrefetch,
		QueueType: "classic", Shared: true, Logger: c.Logger,
		Sends:  func(*resultstore.Record) bool { return true },
		Encode: encodeResult, Decode: decodeResult,
	})
	if err = errors.Join(err, connErr); err != nil {
		return nil, err
	}
	return &Results{s}, nil
}

// encodeResult returns the message for a record, as Celery sends it. The document is JSON, or
// msgpack if the result is. Returns [resultstore.ErrMalformed] for a record that cannot be encoded.
func encodeResult(r *resultstore.Record) (*amqp.Publishing, error) {
	body, err := wire.EncodeResult(r, r.ContentType)
	if err != nil {
		return nil, err
	}
	p := &amqp.Publishing{
		ContentType: serializer.ContentJSON, ContentEncoding: "utf-8", CorrelationId: string(r.ID), DeliveryMode: amqp.Transient, Body: body,
	}
	if r.ContentType == serializer.ContentMsgpack {
		p.ContentType, p.ContentEncoding = serializer.ContentMsgpack, "binary"
	}
	return p, nil
}

// decodeResult returns the record in a message for node. Returns [resultstore.ErrMalformed] for any
// other message, and for one whose correlation id names another task.
func decodeResult(node string, d *amqp.Delivery) (resultstore.Record, error) {
	r, _, err := wire.DecodeResult(d.Body)
	if err != nil {
		return r, err
	}
	if d.CorrelationId != "" && d.CorrelationId != string(r.ID) {
		return r, fmt.Errorf("%w: the message for %.64q has the result of %.64q", resultstore.ErrMalformed, d.CorrelationId, string(r.ID))
	}
	r.ReplyTo = node
	return r, nil
}

// Save implements [resultstore.ResultStore]: it publishes r to the reply queue r.ReplyTo, and waits
// for the broker's confirmation. Without ReplyTo it returns nil and sends nothing.
//
// While the queue does not exist Save tries again, because the submitter may be about to declare
// it. Once the queue has been missing for 3 s, Save returns [resultstore.ErrUnreachable]. All later
// calls for this queue return it at once, until the queue exists again. It also returns:
//
//   - [task.ErrBadID] for an invalid ID
//   - [resultstore.ErrMalformed] for an invalid ReplyTo, a state that is not recorded, or a record
//     that cannot be encoded
//   - [resultstore.ErrTooLarge] for a record above the limits
//   - [resultstore.ErrUnavailable] if the record may or may not have arrived; saving it again is
//     safe
//   - ErrClosed after Close, and ctx's error if ctx has already ended
func (s *Results) Save(ctx context.Context, r resultstore.Record) error {
	return s.replies.Save(ctx, r)
}

// SaveBatch implements [resultstore.BatchSaver]: it publishes the records one after the other and
// then waits for all confirmations. It does not wait for a missing reply queue: the outcome is
// [resultstore.ErrUnavailable] then. Its other errors are those of Save.
func (s *Results) SaveBatch(ctx context.Context, rs []resultstore.Record) []error {
	return s.replies.SaveBatch(ctx, rs)
}

// Load implements [resultstore.ResultStore]: it returns [resultstore.ErrNotFound] for every valid
// id, [task.ErrBadID] for another one, ErrClosed after Close, and ctx's error if ctx has ended.
func (s *Results) Load(ctx context.Context, id task.ID) (resultstore.Record, error) {
	return s.replies.Load(ctx, id)
}

// Delete implements [resultstore.ResultStore]: it does nothing, because no record is kept. Returns
// [task.ErrBadID] for an invalid id, ErrClosed after Close, and ctx's error if ctx has ended.
func (s *Results) Delete(ctx context.Context, id task.ID) error { return s.replies.Delete(ctx, id) }

// Replies implements [resultstore.Replier]: it declares the node's reply queue and blocks until the
// stream consumes it. The queue has the name of the node.
//
// If a queue of that name exists with another purpose, such as a queue of tasks, it returns
// [resultstore.ErrMalformed] and leaves the queue alone. Only a queue with an x-expires passes for
// a reply queue. Its other errors are those of [resultstore.Replier].
func (s *Results) Replies(ctx context.Context, node string) (resultstore.Replies, error) {
	return s.replies.Replies(ctx, node)
}

// Close implements [resultstore.ResultStore]. It closes all streams, waits for the answers of
// running Saves and closes the connections. If ctx ends first it cuts the connections and returns
// ctx's error.
func (s *Results) Close(ctx context.Context) error { return s.replies.Close(ctx) }
