package amqpbroker

import (
	"context"
	"fmt"
	"math/bits"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/amqpconn"
)

// A delayed message walks through one queue for each 1 in the binary form of its delay in milliseconds: level n holds a
// message for 2^n ms and then dead-letters it to the exchange of the level below. The routing key holds the bits, from the
// highest level to level 0, and the queue that is meant. Each exchange looks at its own bit: 1 leads into its queue, 0 to
// the next exchange. All messages of one queue wait equally long, so none waits behind another.

const (
	// delayLevels are enough for 8.7 years. Time-to-lives of 2^41 ms and above are refused by the server.
	delayLevels = 38
	maxDelay    = 1<<delayLevels - 1 // ms
	// coarseDelay is from when on a delay is rounded up to 1,024 ms, which saves half of the hops.
	coarseDelay = int64(time.Hour / time.Millisecond)
	coarseBits  = 10
)

// delayMillis is the wait that is asked of the server: never shorter than d.
func delayMillis(d time.Duration) (int64, error) {
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		ms++
	}
	if ms > coarseDelay {
		ms = (ms + 1<<coarseBits - 1) >> coarseBits << coarseBits
	}
	if ms > maxDelay {
		return 0, fmt.Errorf("%w: a delay of %v is longer than 8.7 years", broker.ErrUnsupported, d)
	}
	return max(ms, 1), nil
}

// delayKey is the routing key of a delay in front of an AMQP queue.
func (n names) delayKey(ms int64, amqpQueue string) string {
	topic := n.topic(amqpQueue)
	var s strings.Builder
	s.Grow(2*delayLevels + len(topic))
	for level := delayLevels - 1; level >= 0; level-- {
		s.WriteByte('0' + byte(ms>>level&1))
		s.WriteByte('.')
	}
	s.WriteString(topic)
	return s.String()
}

// delay returns where to publish a message for amqpQueue that is not to be seen before at, and sees to it that it will
// arrive there.
func (b *Broker) delay(ctx context.Context, amqpQueue string, at time.Time) (exchange, key string, err error) {
	if _, err := delayMillis(time.Until(at)); err != nil {
		return "", "", err
	}
	// What takes time the first time comes before the wait is reckoned. The queue comes first: a missing one is told at once,
	// and the levels lead to the exchange that is declared with it.
	if err := b.bind(ctx, amqpQueue); err != nil {
		return "", "", err
	}
	if err := b.delayed.Open(ctx); err != nil {
		return "", "", err
	}
	ms, err := delayMillis(time.Until(at))
	if err != nil {
		return "", "", err
	}
	return b.names.delay(bits.Len64(uint64(ms)) - 1), b.names.delayKey(ms, amqpQueue), nil
}

func (b *Broker) publishDelayed(ctx context.Context, amqpQueue string, p *amqp.Publishing, at time.Time) error {
	exchange, key, err := b.delay(ctx, amqpQueue, at)
	if err != nil {
		return err
	}
	holdExpiration(p)
	p.Timestamp = at // nobody gets it before
	return b.delayed.Publish(ctx, exchange, key, p)
}

// bind makes sure, once per connection, that amqpQueue exists and gets its delayed messages.
func (b *Broker) bind(ctx context.Context, amqpQueue string) error {
	sess, err := b.con.Session(ctx)
	if err != nil {
		return err
	}
	if gen, ok := b.bound.Load(amqpQueue); ok && gen == sess.Generation() {
		return nil
	}
	return b.retry(ctx, func(sess *amqpconn.Session) error {
		if err := b.declareDeliver(ctx, sess); err != nil {
			return err
		}
		return sess.Do(ctx, func(ch *amqp.Channel) error {
			if _, err := ch.QueueDeclarePassive(amqpQueue, true, false, false, false, nil); err != nil {
				return err
			}
			return b.bindOn(ch, sess, amqpQueue)
		})
	})
}

func (b *Broker) bindOn(ch *amqp.Channel, sess *amqpconn.Session, amqpQueue string) error {
	if err := ch.QueueBind(amqpQueue, "#."+b.names.topic(amqpQueue), b.names.deliver(), false, nil); err != nil {
		return err
	}
	b.bound.Store(amqpQueue, sess.Generation())
	return nil
}

// declareDeliver declares the exchange at the end of the levels. What it cannot route, since its queue was deleted in the
// meantime, is kept in the undeliverable queue.
func (b *Broker) declareDeliver(ctx context.Context, sess *amqpconn.Session) error {
	name := b.names.undeliverable()
	if gen, ok := b.bound.Load(name); ok && gen == sess.Generation() {
		return nil
	}
	if err := b.declareOne(ctx, sess, name, b.queueArgs(nil)); err != nil {
		return err
	}
	err := sess.Do(ctx, func(ch *amqp.Channel) error {
		if err := ch.ExchangeDeclare(name, amqp.ExchangeFanout, true, false, false, false, nil); err != nil {
			return err
		}
		if err := ch.QueueBind(name, "", name, false, nil); err != nil {
			return err
		}
		return ch.ExchangeDeclare(b.names.deliver(), amqp.ExchangeTopic, true, false, false, false, amqp.Table{"alternate-exchange": name})
	})
	if err == nil {
		b.bound.Store(name, sess.Generation())
	}
	return err
}

// setUpDelays prepares a fresh publishing channel. When levels exist with other settings (another process was configured with
// another type of queue) the server closes the channel: then each is declared or found by itself, and the next channel, which
// the Publisher opens by itself, leaves the queues as they are.
func (b *Broker) setUpDelays(ch *amqp.Channel) error {
	if b.delaysFound.Swap(false) {
		return b.declareDelays(ch, false)
	}
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	err := b.declareDelays(ch, true)
	if err == nil {
		err = ch.Qos(0, 0, false) // a round trip: nothing is consumed here
	}
	if err != nil && ch.IsClosed() {
		if cause, ok := <-closed; ok {
			err = cause
		}
	}
	if amqpconn.IsPrecondition(err) {
		if err := b.retry(b.stop, b.findDelays); err != nil {
			return err
		}
		b.delaysFound.Store(true)
	}
	return err
}

// findDelays sees to it that the queue of each level exists, with whatever settings.
func (b *Broker) findDelays(sess *amqpconn.Session) error {
	for level := range delayLevels {
		name := b.names.delay(level)
		difference, err := b.declareOrFind(b.stop, sess, name, b.delayArgs(level))
		if err != nil {
			return err
		}
		if difference != nil {
			b.warnDifference(b.stop, b.names.delay(0), name, difference) // once for all levels
		}
	}
	return nil
}

// delayNext is the exchange below a level.
func (b *Broker) delayNext(level int) string {
	if level == 0 {
		return b.names.deliver()
	}
	return b.names.delay(level - 1)
}

func (b *Broker) delayArgs(level int) amqp.Table {
	return b.queueArgs(amqp.Table{
		"x-message-ttl":          int64(1) << level,
		"x-dead-letter-exchange": b.delayNext(level),
	})
}

// declareDelays declares the exchanges of the levels with their bindings, and the queues if they are asked for. The requests
// ask for no answer, which saves 150 round trips; what the server refuses closes the channel, and that is seen with the next
// request that asks for one.
func (b *Broker) declareDelays(ch *amqp.Channel, queues bool) error {
	for level := range delayLevels {
		name, next := b.names.delay(level), b.delayNext(level)
		if err := ch.ExchangeDeclare(name, amqp.ExchangeTopic, true, false, false, true, nil); err != nil {
			return err
		}
		if queues {
			if _, err := ch.QueueDeclare(name, true, false, false, true, b.delayArgs(level)); err != nil {
				return err
			}
		}
		skip := strings.Repeat("*.", delayLevels-1-level)
		if err := ch.QueueBind(name, skip+"1.#", name, true, nil); err != nil {
			return err
		}
		if err := ch.ExchangeBind(next, skip+"0.#", name, true, nil); err != nil {
			return err
		}
	}
	return nil
}
