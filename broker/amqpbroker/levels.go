package amqpbroker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/amqpconn"
	"github.com/swarmiji/swarmiji/internal/wake"
)

// Every process has to know the levels of a queue, and AMQP shows no client how a queue was declared. So the first to
// declare levels writes them into a small stream beside the queue, a log that everybody can read from its beginning: its
// first entry holds for ever. No stream means one level. A stream without an entry means nothing: it may be slow, or its maker
// is about to write, or has died before. Whoever declares the queue then writes an entry, which holds unless there is one.

// levelsWait is how long a stream is watched for its first entry.
const levelsWait = 2 * time.Second

var (
	errNoLevels = fmt.Errorf("%w: the queue's levels are not known yet, no entry has come in %v; declaring the queue mends that", broker.ErrUnavailable, levelsWait)
	errNoReader = fmt.Errorf("%w: the reading of the queue's levels was interrupted", broker.ErrUnavailable)
)

// levels are the AMQP queues of a queue with priority levels, ascending by bound.
type levels struct {
	bounds []int
	queues []string
}

// newLevels names the queues. The level of the default priority is the plain queue, so that a process that does not know of
// the levels publishes into the middle.
func (b *Broker) newLevels(queue string, bounds []int) *levels {
	l := &levels{bounds: bounds}
	middle := len(bounds) - 1
	for i, bound := range bounds {
		if bound >= defaultPriority {
			middle = i
			break
		}
	}
	for i, bound := range bounds {
		if i == middle {
			l.queues = append(l.queues, b.names.work(queue))
		} else {
			l.queues = append(l.queues, b.names.level(queue, bound))
		}
	}
	return l
}

// learn asks the server for the levels of a queue, unless they are known. An error wraps errNoLevels if they are not written.
func (b *Broker) learn(ctx context.Context, queue string) error {
	if _, ok := b.queues.Load(queue); ok {
		return nil
	}
	bounds, err := b.readLevels(ctx, queue)
	if err == nil && len(bounds) > 1 {
		b.queues.Store(queue, b.newLevels(queue, bounds))
	}
	return err
}

// settleLevels makes the levels of a queue what is asked for, or learns what they are.
func (b *Broker) settleLevels(ctx context.Context, queue string, want []int) error {
	err := b.learn(ctx, queue)
	unwritten := errors.Is(err, errNoLevels)
	if err != nil && !unwritten {
		return err
	}
	if v, ok := b.queues.Load(queue); ok {
		if have := v.(*levels).bounds; len(want) > 0 && !slices.Equal(have, want) {
			b.warnLevels(ctx, queue, want, have)
		}
		return nil
	}
	if len(want) < 2 && !unwritten { // one level needs nothing of its own
		return nil
	}
	entry := want
	switch _, err := b.ready(ctx, []string{b.names.work(queue)}); {
	case err == nil && !unwritten:
		b.warnLevels(ctx, queue, want, nil)
		return nil
	case err == nil || amqpconn.IsNotFound(err) && len(want) < 2:
		entry = []int{defaultPriority} // one level
	case !amqpconn.IsNotFound(err):
		return err
	}
	if err := b.writeLevels(ctx, queue, entry); err != nil {
		return err
	}
	if err := b.learn(ctx, queue); err != nil { // somebody else may have been first
		return err
	}
	if _, ok := b.queues.Load(queue); !ok && len(want) > 1 {
		b.warnLevels(ctx, queue, want, nil)
	}
	return nil
}

// writeLevels adds an entry to a queue's stream.
func (b *Broker) writeLevels(ctx context.Context, queue string, bounds []int) error {
	stream := b.names.levels(queue)
	if err := b.retry(ctx, func(sess *amqpconn.Session) error {
		return b.declareOne(ctx, sess, stream, amqp.Table{"x-queue-type": "stream"})
	}); err != nil {
		return err
	}
	var text []string
	for _, bound := range bounds {
		text = append(text, strconv.Itoa(bound))
	}
	return b.direct.Publish(ctx, "", stream, &amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte(strings.Join(text, ","))})
}

func (b *Broker) warnLevels(ctx context.Context, queue string, want, have []int) {
	if _, known := b.warned.LoadOrStore(b.names.levels(queue), struct{}{}); !known {
		b.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "amqp: the queue exists with other priority levels and is used as it is; delete it and its levels queue when it is empty to have it made anew",
			slog.String("queue", queue), slog.Any("wanted", want), slog.Any("existing", have))
	}
}

// readLevels returns the first entry of a queue's stream, nil if there is no stream, errNoLevels if there is no entry.
func (b *Broker) readLevels(ctx context.Context, queue string) (bounds []int, err error) {
	name := b.names.levels(queue)
	var body []byte
	err = b.retry(ctx, func(sess *amqpconn.Session) error {
		got := make(chan []byte, 1)
		for {
			err := sess.Do(ctx, func(ch *amqp.Channel) error { return firstEntry(ctx, sess, ch, name, got) })
			if err == nil {
				body = <-got
			}
			// The server also cancels the readers of a stream that moves or is deleted.
			if !errors.Is(err, errNoReader) || sess.Ended() || !wake.Sleep(ctx, lookAgain) {
				return err
			}
		}
	})
	if amqpconn.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for s := range strings.SplitSeq(string(body), ",") {
		n, err := strconv.Atoi(s)
		if err != nil || len(bounds) > 0 && n <= bounds[len(bounds)-1] {
			return nil, fmt.Errorf("%w: the levels in %s are %.80q", broker.ErrMalformed, name, body)
		}
		bounds = append(bounds, n)
	}
	return bounds, nil
}

// firstEntry sends the first entry of a stream to got, or fails.
func firstEntry(ctx context.Context, sess *amqpconn.Session, ch *amqp.Channel, stream string, got chan<- []byte) error {
	if _, err := ch.QueueDeclarePassive(stream, true, false, false, false, nil); err != nil {
		return err
	}
	entries, err := sess.ConsumeStream(ch, stream, "first", 1)
	if err != nil {
		return err
	}
	body, err := awaitEntry(ctx, entries, levelsWait)
	if err == nil {
		got <- body
	}
	return err
}

// awaitEntry returns the body of what comes first. The end of entries says nothing about the stream.
func awaitEntry(ctx context.Context, entries <-chan amqp.Delivery, wait time.Duration) ([]byte, error) {
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case d, ok := <-entries:
		if !ok {
			return nil, errNoReader
		}
		return d.Body, nil
	case <-t.C:
		return nil, errNoLevels
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", broker.ErrUnavailable, ctx.Err())
	}
}
