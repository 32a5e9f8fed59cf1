package amqpbroker

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/amqpconn"
)

// Every process has to know the levels of a queue, and AMQP shows no client how a queue was declared. So the first to
// declare levels writes them into a small stream beside the queue, a log that everybody can read from its beginning: its
// first entry holds for ever. No stream means one level.

// levelsWait is how long an empty stream is watched for the entry of whoever has just made it.
const levelsWait = 2 * time.Second

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

// learn asks the server for the levels of a queue, unless they are known.
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
	if err := b.learn(ctx, queue); err != nil {
		return err
	}
	if v, ok := b.queues.Load(queue); ok {
		if have := v.(*levels).bounds; len(want) > 0 && !slices.Equal(have, want) {
			b.warnLevels(ctx, queue, want, have)
		}
		return nil
	}
	if len(want) < 2 { // one level needs nothing of its own
		return nil
	}
	switch _, err := b.ready(ctx, []string{b.names.work(queue)}); {
	case err == nil:
		b.warnLevels(ctx, queue, want, nil)
		return nil
	case !amqpconn.IsNotFound(err):
		return err
	}
	stream := b.names.levels(queue)
	if err := b.retry(ctx, func(sess *amqpconn.Session) error {
		return b.declareOne(ctx, sess, stream, amqp.Table{"x-queue-type": "stream"})
	}); err != nil {
		return err
	}
	var text []string
	for _, bound := range want {
		text = append(text, strconv.Itoa(bound))
	}
	if err := b.direct.Publish(ctx, "", stream, &amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte(strings.Join(text, ","))}); err != nil {
		return err
	}
	if err := b.learn(ctx, queue); err != nil { // somebody else may have been first
		return err
	}
	if _, ok := b.queues.Load(queue); !ok {
		return fmt.Errorf("%w: the levels were written and cannot be read", broker.ErrUnavailable)
	}
	return nil
}

func (b *Broker) warnLevels(ctx context.Context, queue string, want, have []int) {
	if _, known := b.warned.LoadOrStore(b.names.levels(queue), struct{}{}); !known {
		b.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "amqp: the queue exists with other priority levels and is used as it is; delete it and its levels queue when it is empty to have it made anew",
			slog.String("queue", queue), slog.Any("wanted", want), slog.Any("existing", have))
	}
}

// readLevels returns the first entry of a queue's stream, nil if there is none.
func (b *Broker) readLevels(ctx context.Context, queue string) (bounds []int, err error) {
	name := b.names.levels(queue)
	var body []byte
	err = b.retry(ctx, func(sess *amqpconn.Session) error {
		got := make(chan []byte, 1)
		err := sess.Do(ctx, func(ch *amqp.Channel) error {
			if _, err := ch.QueueDeclarePassive(name, true, false, false, false, nil); err != nil {
				return err
			}
			if err := ch.Qos(1, 0, false); err != nil { // a stream has no consumers without
				return err
			}
			entries, err := ch.Consume(name, "", false, false, false, false, amqp.Table{"x-stream-offset": "first"})
			if err != nil {
				return err
			}
			t := time.NewTimer(levelsWait)
			defer t.Stop()
			select {
			case d := <-entries:
				got <- d.Body
			case <-t.C:
			case <-ctx.Done():
			}
			return nil
		})
		if err == nil && len(got) > 0 {
			body = <-got
		}
		return err
	})
	if amqpconn.IsNotFound(err) {
		return nil, nil
	}
	if err != nil || body == nil {
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
