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

// Every process must know the priority levels of a queue, and AMQP does not show a client how a
// queue was declared. So the first process that declares levels writes them into a small stream
// beside the queue. Every process can read this log from its beginning, and its first entry is
// valid for ever.
//
// A queue without a stream has one level. A stream without an entry decides nothing: it may be
// slow, or its creator may be about to write or may have died. A process that declares the queue
// then writes an entry. If another entry comes first, that one is valid.

// levelsWait limits the time that a reader waits for the first entry of a stream.
const levelsWait = 2 * time.Second

var (
	errNoLevels = fmt.Errorf("%w: the queue's priority levels are not known, no entry arrived within %v; declare the queue", broker.ErrUnavailable, levelsWait)
	errNoReader = fmt.Errorf("%w: reading the queue's priority levels was interrupted", broker.ErrUnavailable)
)

// levels holds the AMQP queues of a queue with priority levels, in ascending order of their bounds.
type levels struct {
	bounds []int
	queues []string
}

// newLevels returns the AMQP queue names of a queue with the given bounds. The level of the
// default priority, or the last if all bounds are lower, has the plain queue's name. So a process
// that does not know the levels publishes into the middle.
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

// loadLevels reads the levels of a queue from the server and stores them in b.queues. It does
// nothing if b.queues holds them. A queue with one level is not stored. It waits for the server.
// Returns the errors of readLevels: one that wraps errNoLevels if the stream exists but holds no
// entry.
func (b *Broker) loadLevels(ctx context.Context, queue string) error {
	if _, ok := b.queues.Load(queue); ok {
		return nil
	}
	bounds, err := b.readLevels(ctx, queue)
	if err == nil && len(bounds) > 1 {
		b.queues.Store(queue, b.newLevels(queue, bounds))
	}
	return err
}

// declareLevels decides the priority levels of a queue and stores them in b.queues. It may wait up
// to levelsWait for the first entry of the queue's stream.
//
//   - The stream holds an entry: those levels are valid.
//   - The queue exists without a stream: it has one level.
//   - Neither exists: it writes want as an entry. A queue with one level needs no entry.
//   - The stream exists without an entry: it writes want. It writes one level if the queue exists
//     or want has fewer than two.
//
// If another process has written an entry first, the levels of that one are valid. If the valid
// levels differ from want, it logs a warning, once. Returns the server's errors; then b.queues is
// unchanged, although an entry may have been written.
func (b *Broker) declareLevels(ctx context.Context, queue string, want []int) error {
	err := b.loadLevels(ctx, queue)
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
	if len(want) < 2 && !unwritten { // a queue with one level needs no stream
		return nil
	}
	entry := want
	switch _, err := b.countReady(ctx, []string{b.names.work(queue)}); {
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
	if err := b.loadLevels(ctx, queue); err != nil { // the entry of another process may be first
		return err
	}
	if _, ok := b.queues.Load(queue); !ok && len(want) > 1 {
		b.warnLevels(ctx, queue, want, nil)
	}
	return nil
}

// writeLevels declares the stream of a queue's levels, appends an entry with bounds, separated by
// commas, and waits for the confirmation. It does not check whether another entry is first. Returns
// the error of the declaration or of the publish; after ErrIndeterminate the entry may be stored.
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

// warnLevels logs once per queue that the queue exists with the priority levels have, not want. A
// nil have means one level.
func (b *Broker) warnLevels(ctx context.Context, queue string, want, have []int) {
	if _, known := b.warned.LoadOrStore(b.names.levels(queue), struct{}{}); !known {
		b.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "amqp: the queue exists with other priority levels and is used as it is; to create it again, delete it and its levels queue when it is empty",
			slog.String("queue", queue), slog.Any("wanted", want), slog.Any("existing", have))
	}
}

// readLevels returns the bounds in the first entry of a queue's stream, nil if the stream does not
// exist. It waits for the server, and up to levelsWait for the entry. If the reading is
// interrupted, it begins again after pollPause. Returns errNoLevels if the stream holds no entry by
// then, ErrMalformed if the entry is not a list of ascending numbers.
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
			// The server also cancels the readers of a stream that is moved or deleted.
			if !errors.Is(err, errNoReader) || sess.Ended() || !wake.Sleep(ctx, pollPause) {
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

// firstEntry consumes the stream on ch, waits up to levelsWait for its first entry and sends that
// to got, which must have space for it. The consumer ends with ch. Returns the error of awaitEntry
// if no entry arrives, the server's "not found" if the stream does not exist.
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

// awaitEntry blocks until an entry arrives and returns its body. Returns errNoLevels after wait,
// errNoReader if entries is closed, ErrUnavailable if ctx ends.
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
