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
	"github.com/swarmiji/swarmiji/internal/lanes"
	"github.com/swarmiji/swarmiji/internal/wake"
)

// Every process must know the priority levels of a queue and whether it is fair. AMQP does not show
// a client how a queue was declared. So the first process that declares them writes them into a
// small stream beside the queue. Every process can read this log from its beginning, and its first
// entry is valid for ever.
//
// A queue without a stream has one level and is not fair. A stream without an entry decides
// nothing: it may be slow, or its creator may be about to write or may have died. A process that
// declares the queue then writes an entry. If another entry comes first, that one is valid.

// levelsWait limits the time that a reader waits for the first entry of a stream.
const levelsWait = 2 * time.Second

var (
	errNoLevels = fmt.Errorf("%w: the queue's priority levels are not known, no entry arrived within %v; declare the queue", broker.ErrUnavailable, levelsWait)
	errNoReader = fmt.Errorf("%w: reading the queue's priority levels was interrupted", broker.ErrUnavailable)
)

// levels holds the AMQP queues of a queue with priority levels, in ascending order of their bounds,
// or of a fair queue.
type levels struct {
	bounds []int
	fair   bool
	queues []string // level by level; of a fair queue lanes.Count for each level
}

// width returns the number of AMQP queues of each level.
func (l *levels) width() int { return lanes.Width(l.fair) }

// level returns the index of the level for a priority: the first one whose bound is at least
// priority, otherwise the last.
func (l *levels) level(priority int) int {
	for i, bound := range l.bounds {
		if priority <= bound {
			return i
		}
	}
	return len(l.bounds) - 1
}

// newLevels returns the AMQP queue names of a queue with the given bounds, at least one. The level
// of the default priority, or the last if all bounds are lower, has the plain queue's name. So a
// process that does not know the levels publishes into the middle. Lane 0 of a fair queue has the
// name of its level.
func (b *Broker) newLevels(queue string, bounds []int, fair bool) *levels {
	l := &levels{bounds: bounds, fair: fair}
	middle := len(bounds) - 1
	for i, bound := range bounds {
		if bound >= defaultPriority {
			middle = i
			break
		}
	}
	for i, bound := range bounds {
		name := b.names.work(queue)
		if i != middle {
			name = b.names.level(queue, bound)
		}
		l.queues = append(l.queues, name)
		for lane := 1; lane < l.width(); lane++ {
			l.queues = append(l.queues, b.names.lane(name, lane))
		}
	}
	return l
}

// loadLevels reads the levels of a queue from the server and stores them in b.queues. It does
// nothing if b.queues holds them. A queue with one level that is not fair is not stored. It waits
// for the server. Returns the errors of readLevels: one that wraps errNoLevels if the stream exists
// but holds no entry.
func (b *Broker) loadLevels(ctx context.Context, queue string) error {
	if _, ok := b.queues.Load(queue); ok {
		return nil
	}
	bounds, fair, err := b.readLevels(ctx, queue)
	if err == nil && (len(bounds) > 1 || fair) {
		b.queues.Store(queue, b.newLevels(queue, bounds, fair))
	}
	return err
}

// declareLevels decides the priority levels and the fairness of a queue and stores them in
// b.queues. It may wait up to levelsWait for the first entry of the queue's stream.
//
//   - The stream holds an entry: that is valid.
//   - The queue exists without a stream: it has one level and is not fair.
//   - Neither exists: it writes want as an entry. A queue with one level that is not fair needs no
//     entry.
//   - The stream exists without an entry: it writes want. It writes one level if the queue exists
//     or want is such a queue.
//
// If another process has written an entry first, that one is valid. If the valid one differs from
// want, it logs a warning, once. Returns the server's errors; then b.queues is unchanged, although
// an entry may have been written.
func (b *Broker) declareLevels(ctx context.Context, want broker.Queue) error {
	queue := want.Name
	err := b.loadLevels(ctx, queue)
	unwritten := errors.Is(err, errNoLevels)
	if err != nil && !unwritten {
		return err
	}
	if _, ok := b.queues.Load(queue); ok {
		b.warnLevels(ctx, want)
		return nil
	}
	plain := len(want.Levels) < 2 && !want.Fair
	if plain && !unwritten { // it needs no stream
		return nil
	}
	entry := want
	switch _, err := b.countReady(ctx, []string{b.names.work(queue)}); {
	case err == nil && !unwritten:
		b.warnLevels(ctx, want)
		return nil
	case err == nil || amqpconn.IsNotFound(err) && plain:
		entry = broker.Queue{Name: queue}
	case !amqpconn.IsNotFound(err):
		return err
	}
	if err := b.writeLevels(ctx, entry); err != nil {
		return err
	}
	if err := b.loadLevels(ctx, queue); err != nil { // the entry of another process may be first
		return err
	}
	b.warnLevels(ctx, want)
	return nil
}

// fairEntry is the beginning of an entry of a fair queue. Versions without fair queues refuse such
// an entry, so that none of them consumes only a part of the queue.
const fairEntry = "fair;"

// entryOf returns the entry with the levels and the fairness of q: the bounds, separated by commas,
// after fairEntry if q is fair. A queue without levels has the bound of the default priority.
func entryOf(q broker.Queue) string {
	bounds := q.Levels
	if len(bounds) < 2 {
		bounds = []int{defaultPriority}
	}
	var text []string
	for _, bound := range bounds {
		text = append(text, strconv.Itoa(bound))
	}
	entry := strings.Join(text, ",")
	if q.Fair {
		entry = fairEntry + entry
	}
	return entry
}

// parseEntry returns the bounds and the fairness in an entry. It returns false if the entry is not
// a list of ascending numbers, after fairEntry or not.
func parseEntry(entry string) (bounds []int, fair, ok bool) {
	entry, fair = strings.CutPrefix(entry, fairEntry)
	for s := range strings.SplitSeq(entry, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || len(bounds) > 0 && n <= bounds[len(bounds)-1] {
			return nil, false, false
		}
		bounds = append(bounds, n)
	}
	return bounds, fair, true
}

// writeLevels declares the stream of a queue's levels, appends the entry of q, and waits for the
// confirmation. It does not check whether another entry is first. Returns the error of the
// declaration or of the publish; after ErrIndeterminate the entry may be stored.
//
// While another process declares the stream, it repeats the publish until ctx ends. It uses the
// connection for notes, because the server then closes the connection. A second entry is harmless.
func (b *Broker) writeLevels(ctx context.Context, q broker.Queue) error {
	stream := b.names.levels(q.Name)
	if err := b.con.Retry(ctx, func(sess *amqpconn.Session) error {
		return b.declareOne(ctx, sess, stream, amqp.Table{"x-queue-type": "stream"})
	}); err != nil {
		return err
	}
	p := &amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte(entryOf(q))}
	for {
		err := b.acks.log.publisher.Publish(ctx, "", stream, p)
		again := amqpconn.IsBeingDeclared(err) || errors.Is(err, amqpconn.ErrIndeterminate)
		if !again || !wake.Sleep(ctx, pollPause) {
			return err
		}
	}
}

// warnLevels logs once per queue that the queue exists with other priority levels or another
// fairness than want. It does nothing if want names neither levels nor Fair.
func (b *Broker) warnLevels(ctx context.Context, want broker.Queue) {
	if len(want.Levels) == 0 && !want.Fair {
		return
	}
	have := b.known(want.Name)
	if entryOf(have) == entryOf(want) {
		return
	}
	if _, known := b.warned.LoadOrStore(b.names.levels(want.Name), struct{}{}); !known {
		b.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "amqp: the queue exists with other priority levels or another fairness and is used as it is; to create it again, delete it and its levels queue when it is empty",
			slog.String("queue", want.Name), slog.Any("wanted", want.Levels), slog.Any("existing", have.Levels),
			slog.Bool("wanted_fair", want.Fair), slog.Bool("existing_fair", have.Fair))
	}
}

// known returns a queue with the levels and the fairness in b.queues. A queue without an entry has
// one level and is not fair.
func (b *Broker) known(queue string) broker.Queue {
	q := broker.Queue{Name: queue}
	if v, ok := b.queues.Load(queue); ok {
		l := v.(*levels) //nolint:forcetypeassert // nothing else is in it
		q.Fair = l.fair
		if len(l.bounds) > 1 {
			q.Levels = slices.Clone(l.bounds)
		}
	}
	return q
}

// Describe implements [broker.Describer]. It waits for the server. Returns ErrNoQueue if the queue
// does not exist, ErrMalformed for a name that is not valid, and ErrUnavailable if its levels
// cannot be read.
func (b *Broker) Describe(ctx context.Context, queue string) (broker.Queue, error) {
	_, err := b.route(queue, defaultPriority)
	if err == nil {
		err = b.loadLevelsCached(ctx, queue)
	}
	if err == nil {
		_, err = b.countReadyInQueue(ctx, queue)
	}
	if err != nil {
		return broker.Queue{}, wrap(err, "describe", queue)
	}
	return b.known(queue), nil
}

// readLevels returns the bounds and the fairness in the first entry of a queue's stream, nil and
// false if the stream does not exist. It waits for the server, and up to levelsWait for the entry.
// If the reading is interrupted, or the stream is just being created, it begins again after
// pollPause. Returns errNoLevels if the stream
// holds no entry by then, ErrMalformed if parseEntry cannot read it.
func (b *Broker) readLevels(ctx context.Context, queue string) (bounds []int, fair bool, err error) {
	name := b.names.levels(queue)
	var body []byte
	begin := time.Now()
	err = b.con.Retry(ctx, func(sess *amqpconn.Session) error {
		got := make(chan []byte, 1)
		for {
			err := sess.Do(ctx, func(ch *amqp.Channel) error { return firstEntry(ctx, sess, ch, name, got) })
			if err == nil {
				body = <-got
			}
			// The server also cancels the readers of a stream that is moved or deleted.
			again := errors.Is(err, errNoReader) || isBeingCreated(err) && time.Since(begin) < levelsWait
			if !again || sess.Ended() || !wake.Sleep(ctx, pollPause) {
				return err
			}
		}
	})
	if amqpconn.IsNotFound(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	bounds, fair, ok := parseEntry(string(body))
	if !ok {
		return nil, false, fmt.Errorf("%w: the levels in %s are %.80q", broker.ErrMalformed, name, body)
	}
	return bounds, fair, nil
}

// isBeingCreated reports whether the server refused to read a stream because its node has no
// replica of it. That is so for a moment while another process creates the stream.
func isBeingCreated(err error) bool {
	return amqpconn.IsPrecondition(err) && strings.Contains(err.Error(), "replica on the local node")
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
