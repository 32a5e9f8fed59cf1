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

// headerTaken is when a message was sent, in milliseconds since 1970. The timestamp of AMQP has seconds.
const headerTaken = "swj-taken"

// Sizes of the stream queue. It forgets whole segments, never the last one; a segment holds a full message at least, so
// that a lone event does not push out what came right before it.
const (
	eventSize  = 1 << 10   // what an event takes at most on average, with its share of a message's header
	minSegment = 256 << 10 // bytes
	maxSegment = 512 << 20 // bytes, of those that RabbitMQ allows
)

// log is the stream queue of kept events, and what publishes to it. It has a connection of its own: where a stream is slow,
// or is just being made, the server holds up or ends the connection that uses it, and live events shall not suffer for that.
type log struct {
	queue     string
	keep      events.Retention
	logger    *slog.Logger
	conn      *amqpconn.Conn
	publisher *amqpconn.Publisher
	batcher   *events.Batcher

	warned atomic.Bool // the logger knows of the other retention

	// For the batcher's goroutine alone.
	declared uint64 // the session on which the queue was seen
	proven   bool   // the queue has taken a message
	refused  bool   // the server has refused to make the queue, and the logger knows
}

// newLog makes the log of a complete configuration on a connection that it closes. It does no I/O.
func newLog(c Config, conn *amqpconn.Conn) *log {
	l := &log{
		queue: "swj." + c.Namespace + ".ev.log", keep: c.Retain, logger: c.Logger, conn: conn,
		publisher: amqpconn.NewPublisher(conn, amqpconn.PublisherConfig{}),
	}
	l.batcher = events.NewBatcher(l.send, c.Batch)
	return l
}

// add keeps e if its type is kept. A log that is closed drops it, as the bus does.
func (l *log) add(e events.Event) {
	if l.keep.Keeps(e.Type) {
		_ = l.batcher.Add(e) // the bus's own batcher tells of the end
	}
}

// close sends what waits.
func (l *log) close(ctx context.Context) error {
	return errors.Join(l.batcher.Close(ctx), closing(l.publisher.Close(ctx)))
}

// send publishes one message and waits for its confirmation: the broker is asked for one at a time, which bounds what a
// slow one holds, and what it does not have is counted. Until the queue has taken a message, a refusal only means that it
// is still being made, and not that the message may be there.
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
		if errors.Is(err, amqpconn.ErrUnroutable) { // somebody has deleted it
			l.declared, l.proven = 0, false
		}
		if l.proven || !amqpconn.IsInTheMaking(err) || !wake.Sleep(ctx, makingPause) {
			return err
		}
	}
}

func (l *log) sendOnce(ctx context.Context, m *amqp.Publishing) error {
	sess, err := l.conn.Session(ctx)
	if err != nil {
		return err
	}
	if l.declared != sess.Generation() {
		if err := l.declare(ctx, sess); err != nil {
			if amqpconn.IsChannelError(err) && !l.refused {
				l.refused = true
				l.logger.LogAttrs(ctx, slog.LevelError, "amqp: the server refuses the stream queue for events, so that none is kept",
					slog.String("queue", l.queue), slog.Any("error", err))
			}
			return err
		}
		l.declared, l.refused = sess.Generation(), false
	}
	return l.publisher.Publish(ctx, "", l.queue, m)
}

// makingPause is the time between two attempts at a stream that is being made, which takes some 50 ms.
const makingPause = 20 * time.Millisecond

// ready makes the stream queue and tries to read it, so that no other connection is ended for doing so. It is not tried on
// a connection that the server does not read just now.
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

// declare makes the stream queue. One that exists with other arguments is used as it is.
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
		l.logger.LogAttrs(ctx, slog.LevelWarn, "amqp: the stream queue for events exists with another retention and is used as it is; delete it to have it made anew, without its events",
			slog.String("queue", l.queue), slog.Any("error", err))
	}
	return nil
}

// arguments say what the server keeps. It looks at both limits when a segment is full.
func (l *log) arguments() amqp.Table {
	size := min(int64(l.keep.Max), math.MaxInt64/4/eventSize) * eventSize
	segment := min(max(size/4, minSegment), maxSegment)
	return amqp.Table{
		"x-queue-type":                    "stream",
		"x-max-age":                       fmt.Sprintf("%ds", int64(math.Ceil(l.keep.Age.Seconds()))),
		"x-max-length-bytes":              size + 2*segment, // what it forgets, and what it has just begun
		"x-stream-max-segment-size-bytes": segment,
	}
}
