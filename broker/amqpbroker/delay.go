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

// A delayed message waits in one queue for each 1 in the binary form of its delay in milliseconds.
// Level n holds a message for 2^n ms and then dead-letters it to the exchange of the level below.
//
// The routing key holds the bits, from the highest level to level 0, and the target queue. Each
// exchange checks its own bit: 1 routes into its queue, 0 to the next exchange. All messages of one
// level wait equally long, so none blocks another.

const (
	// delayLevels levels are enough for 8.7 years. The server refuses a time to live of 2^41 ms or
	// more.
	delayLevels = 38
	maxDelay    = 1<<delayLevels - 1 // ms
	// coarseDelay is the delay above which it is rounded up to a multiple of 1,024 ms. That saves half
	// of the hops.
	coarseDelay = int64(time.Hour / time.Millisecond)
	coarseBits  = 10
)

// delayMillis returns d in milliseconds, rounded up, at least 1. Delays of more than an hour are
// rounded up to a multiple of 1,024 ms. Returns ErrUnsupported for more than 8.7 years.
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

// delayKey returns the routing key that delays a message by ms milliseconds and then routes it to
// amqpQueue.
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

// delayRoute returns the exchange and the routing key for a message that must not reach amqpQueue
// before at. It first declares and binds the delay exchanges and queues if this connection has not
// done so, and waits for that until ctx ends. Returns ErrUnsupported for a delay of more than 8.7
// years, and the server's "not found" if amqpQueue does not exist.
func (b *Broker) delayRoute(ctx context.Context, amqpQueue string, at time.Time) (exchange, key string, err error) {
	if _, err := delayMillis(time.Until(at)); err != nil {
		return "", "", err
	}
	// The slow steps come before the delay is computed. The queue is first: a missing queue fails at
	// once, and the levels need the exchange that is declared with it.
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

// publishDelayed publishes p so that it reaches amqpQueue at the time at and not earlier. It waits
// for the server's confirmation. It changes p: the expiration moves into a header and Timestamp
// becomes at. Returns the errors of delayRoute and of the publish.
func (b *Broker) publishDelayed(ctx context.Context, amqpQueue string, p *amqp.Publishing, at time.Time) error {
	exchange, key, err := b.delayRoute(ctx, amqpQueue, at)
	if err != nil {
		return err
	}
	hideExpiration(p)
	p.Timestamp = at // no consumer receives it earlier
	return b.delayed.Publish(ctx, exchange, key, p)
}

// bind checks that amqpQueue exists and binds it to the exchange at the end of the delay levels,
// which it declares too. It does so once per connection, and waits for the server. Returns the
// server's "not found" if the queue does not exist.
func (b *Broker) bind(ctx context.Context, amqpQueue string) error {
	sess, err := b.con.Session(ctx)
	if err != nil {
		return err
	}
	if gen, ok := b.bound.Load(amqpQueue); ok && gen == sess.Generation() {
		return nil
	}
	return b.retry(ctx, func(sess *amqpconn.Session) error {
		if err := b.declareDeliverExchange(ctx, sess); err != nil {
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

// bindOn binds amqpQueue to the exchange at the end of the delay levels, on ch, waits for the
// server and returns its error. After a success it stores the number of the connection sess in
// b.bound.
func (b *Broker) bindOn(ch *amqp.Channel, sess *amqpconn.Session, amqpQueue string) error {
	if err := ch.QueueBind(amqpQueue, "#."+b.names.topic(amqpQueue), b.names.deliver(), false, nil); err != nil {
		return err
	}
	b.bound.Store(amqpQueue, sess.Generation())
	return nil
}

// declareDeliverExchange declares the exchange at the end of the delay levels, once per connection.
// Messages that it cannot route, because their queue was deleted meanwhile, go to the undeliverable
// queue, which is declared and bound too. It waits for the server and stops at the first error; the
// next call tries again.
func (b *Broker) declareDeliverExchange(ctx context.Context, sess *amqpconn.Session) error {
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

// setUpDelays declares the delay exchanges and queues on a new publishing channel, and waits for
// the server. The Publisher calls it and opens another channel after an error.
//
// If the queues exist with other settings, the server closes the channel. Another process may be
// configured with another queue type. Then setUpDelays declares each queue singly, sets
// b.delaysFound and returns the error. On the next channel it declares only the exchanges and
// clears b.delaysFound.
func (b *Broker) setUpDelays(ch *amqp.Channel) error {
	if b.delaysFound.Swap(false) {
		return b.declareDelays(ch, false)
	}
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	err := b.declareDelays(ch, true)
	if err == nil {
		err = ch.Qos(0, 0, false) // a round trip that only shows whether the server refused a request
	}
	if err != nil && ch.IsClosed() {
		if cause, ok := <-closed; ok {
			err = cause
		}
	}
	if amqpconn.IsPrecondition(err) {
		if err := b.retry(b.stop, b.declareDelaysSingly); err != nil {
			return err
		}
		b.delaysFound.Store(true)
	}
	return err
}

// declareDelaysSingly makes sure that the queue of each delay level exists, with one request after
// the other, and waits for the server. It keeps an existing queue whatever its settings are, and
// logs one warning, for all levels, if they differ. It stops at the first error of another kind
// and returns it.
func (b *Broker) declareDelaysSingly(sess *amqpconn.Session) error {
	for level := range delayLevels {
		name := b.names.delay(level)
		difference, err := b.declareOrFind(b.stop, sess, name, b.delayArgs(level))
		if err != nil {
			return err
		}
		if difference != nil {
			b.warnDifference(b.stop, b.names.delay(0), name, difference) // one warning for all levels
		}
	}
	return nil
}

// nextExchange returns the exchange to which the queue of a delay level dead-letters: that of the
// level below, or after level 0 the exchange that routes to the queues.
func (b *Broker) nextExchange(level int) string {
	if level == 0 {
		return b.names.deliver()
	}
	return b.names.delay(level - 1)
}

// delayArgs returns the arguments of the queue of a delay level: 2^level ms time to live, then
// nextExchange.
func (b *Broker) delayArgs(level int) amqp.Table {
	return b.queueArgs(amqp.Table{
		"x-message-ttl":          int64(1) << level,
		"x-dead-letter-exchange": b.nextExchange(level),
	})
}

// declareDelays declares the exchanges of all delay levels and their bindings on ch, and their
// queues if queues is true. The requests ask for no answer, which saves 150 round trips. If the
// server refuses one it closes the channel. The next request with an answer then fails. Returns an
// error only if a request cannot be sent.
func (b *Broker) declareDelays(ch *amqp.Channel, queues bool) error {
	for level := range delayLevels {
		name, next := b.names.delay(level), b.nextExchange(level)
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
