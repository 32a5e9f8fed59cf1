package amqpevents

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/amqpconn"
	"github.com/swarmiji/swarmiji/internal/wake"
)

// headerTaken holds the time of sending in milliseconds since 1970. The timestamp of AMQP has only
// seconds.
const headerTaken = "swj-taken"

// Sizes of the stream queue. RabbitMQ removes whole segments, but never the last one. A segment
// holds at least one full message, so that a single event does not remove the one before it.
const (
	eventSize  = 1 << 10   // largest average size of an event, with its share of the message's header
	minSegment = 256 << 10 // bytes
	maxSegment = 512 << 20 // bytes; below the limit of RabbitMQ
)

// log publishes kept events to the stream queue. It has its own connection. The server delays or
// closes a connection that uses a stream which is slow or being declared, and live events must not
// suffer from that.
type log struct {
	queue     string
	keep      events.Retention
	logger    *slog.Logger
	conn      *amqpconn.Conn
	publisher *amqpconn.Publisher
	batcher   *events.Batcher

	warned atomic.Bool // the warning about another retention was logged

	// The fields below are only for the batcher's goroutine.
	declared uint64 // generation of the session on which the queue was declared
	proven   bool   // the queue has accepted a message
	refused  bool   // the server refused to declare the queue, and this was logged
}

// newLog makes the log, which publishes over conn, for a complete configuration. [Bus.Close] closes
// conn. It does no I/O and starts no goroutine.
func newLog(c Config, conn *amqpconn.Conn) *log {
	l := &log{
		queue: "swj." + c.Namespace + ".ev.log", keep: c.Retain, logger: c.Logger, conn: conn,
		publisher: amqpconn.NewPublisher(conn, amqpconn.PublisherConfig{}),
	}
	l.batcher = events.NewBatcher(l.send, c.Batch)
	return l
}

// add queues e if its type is kept. It does not block. After close it drops e.
func (l *log) add(e events.Event) {
	if l.keep.Keeps(e.Type) {
		_ = l.batcher.Add(e) // the bus's own batcher reports ErrClosed
	}
}

// close sends the waiting events until ctx ends, and closes the publisher, but not the connection.
// After ctx's end it drops and counts the rest. It returns the errors of the batcher and the
// publisher joined.
func (l *log) close(ctx context.Context) error {
	return errors.Join(l.batcher.Close(ctx), closeError(l.publisher.Close(ctx)))
}

// send publishes one message and waits for its confirmation; the batcher's goroutine calls it. Only
// one message is unconfirmed at a time, to limit the memory of a slow broker. After an error the
// batcher counts the events of the message as unkept.
//
// Until the queue has accepted a message, a refusal means that the queue is still being declared.
// send then tries again until ctx ends. If the queue was deleted, send forgets that it was declared
// and tries again, too. It returns any other error at once.
func (l *log) send(ctx context.Context, message []byte, _ int) error {
	m := &amqp.Publishing{
		ContentType:  contentType,
		DeliveryMode: amqp.Persistent,
		Headers:      amqp.Table{headerTaken: time.Now().UnixMilli()},
		Body:         message,
	}
	for {
		err := l.sendOnce(ctx, m)
		if err == nil {
			l.proven = true
			return nil
		}
		if errors.Is(err, amqpconn.ErrUnroutable) { // the queue was deleted
			l.declared, l.proven = 0, false
		}
		if l.proven || !amqpconn.IsBeingDeclared(err) || !wake.Sleep(ctx, declarePause) {
			return err
		}
	}
}

// sendOnce publishes m and waits for the confirmation. Before that it declares the queue if that
// was not done on the current session. Returns the error of the connection, the declaration or the
// publication. It logs the server's refusal to declare the queue as an error, once until a
// declaration succeeds.
func (l *log) sendOnce(ctx context.Context, m *amqp.Publishing) error {
	sess, err := l.conn.Session(ctx)
	if err != nil {
		return err
	}
	if l.declared != sess.Generation() {
		if err := l.declare(ctx, sess); err != nil {
			if amqpconn.IsChannelError(err) && !l.refused {
				l.refused = true
				l.logger.LogAttrs(ctx, slog.LevelError, "amqp: the server refuses to declare the stream queue for events; events are not kept",
					slog.String("queue", l.queue), slog.Any("error", err))
			}
			return err
		}
		l.declared, l.refused = sess.Generation(), false
	}
	return l.publisher.Publish(ctx, "", l.queue, m)
}

// declarePause is the time between two attempts while a stream is being declared, which takes about
// 50 ms.
const declarePause = 20 * time.Millisecond

// ready declares the stream queue and tries to consume it on the log's own connection, and waits
// for the server. If the server closes a connection for that, it is not the one of the listeners.
// On a connection that the server has blocked it does nothing and returns nil. Returns the error
// of the connection, the declaration or the consumer.
func (l *log) ready(ctx context.Context) error {
	sess, err := l.conn.Session(ctx)
	if err != nil || sess.Blocked() {
		return err
	}
	if err := l.declare(ctx, sess); err != nil {
		return err
	}
	return sess.Do(ctx, func(ch *amqp.Channel) error {
		_, err := sess.ConsumeStream(ch, l.queue, "next", 1)
		return err
	})
}

// declare declares the stream queue. If it exists with other arguments, declare uses it unchanged,
// logs one warning for this bus and returns nil. Returns the server's refusal if it cannot be used
// either, and any other error unchanged. It waits for the server.
func (l *log) declare(ctx context.Context, sess *amqpconn.Session) error {
	err := sess.Do(ctx, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(l.queue, true, false, false, false, l.arguments())
		return err
	})
	if !amqpconn.IsPrecondition(err) {
		return err
	}
	passive := sess.Do(ctx, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive(l.queue, true, false, false, false, nil)
		return err
	})
	if passive != nil {
		return fmt.Errorf("%w (%w)", err, passive)
	}
	if !l.warned.Swap(true) {
		l.logger.LogAttrs(ctx, slog.LevelWarn, "amqp: the stream queue for events exists with another retention and is used unchanged; delete it to apply the new retention (this removes its events)",
			slog.String("queue", l.queue), slog.Any("error", err))
	}
	return nil
}

// arguments returns the arguments of the stream queue: the age in whole seconds, and a size in
// bytes for Max events of eventSize. The server applies both limits when a segment is full.
func (l *log) arguments() amqp.Table {
	size := min(int64(l.keep.Max), math.MaxInt64/4/eventSize) * eventSize
	segment := min(max(size/4, minSegment), maxSegment)
	return amqp.Table{
		"x-queue-type": "stream",
		"x-max-age":    fmt.Sprintf("%ds", int64(math.Ceil(l.keep.Age.Seconds()))),
		// plus the segment that is removed and the one just begun
		"x-max-length-bytes":              size + 2*segment,
		"x-stream-max-segment-size-bytes": segment,
	}
}
