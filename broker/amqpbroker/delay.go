package amqpbroker

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/amqpconn"
)

// A delayed message waits in one queue for each 1 in the binary form of its delay in milliseconds.
// Level n holds a message for 2^n ms and then dead-letters it to the exchange of its level. All
// messages of one level wait equally long, so none blocks another.
//
// The routing key names the levels, then "q" and the target queue: "06.09.12.q.mail". Each exchange
// looks for the word after its own and routes into the queue of that level, or to the end. A short
// key is cheap: the server compares topics word by word.
//
// The longest wait is the last one. So many messages that are due at once pass one level then, not
// all.

const (
	// delayLevels levels are enough for 8.7 years. The server refuses a time to live of 2^41 ms or
	// more.
	delayLevels = 38
	maxDelay    = 1<<delayLevels - 1 // ms
	// delayBits is the number of binary digits of a delay that are kept: it is rounded up by at most
	// 1/32. That limits the number of its levels.
	delayBits = 6
	// coarsest limits the rounding to multiples of 2^10 ms.
	coarsest = 10
)

// delayMillis returns d in milliseconds, rounded up to delayBits binary digits, at most to a
// multiple of 1,024 ms, at least 1. Returns ErrUnsupported for more than 8.7 years.
func delayMillis(d time.Duration) (int64, error) {
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		ms++
	}
	ms = max(ms, 1)
	unit := lowestBit(bits.Len64(uint64(ms)) - 1)
	ms = (ms + 1<<unit - 1) >> unit << unit
	if ms > maxDelay {
		return 0, fmt.Errorf("%w: a delay of %v is longer than 8.7 years", broker.ErrUnsupported, d)
	}
	return ms, nil
}

// lowestBit returns the lowest bit that a delay may have whose highest bit is the given one.
func lowestBit(highest int) int { return min(max(highest+1-delayBits, 0), coarsest) }

// delayKey returns the routing key that delays a message by ms milliseconds and then routes it to
// amqpQueue.
func (n names) delayKey(ms int64, amqpQueue string) string {
	topic := n.topic(amqpQueue)
	var s strings.Builder
	s.Grow(3*bits.OnesCount64(uint64(ms)) + 2 + len(topic))
	for level := range delayLevels {
		if ms>>level&1 == 1 {
			s.WriteString(levelWord(level))
			s.WriteByte('.')
		}
	}
	s.WriteString("q.")
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
	if b.delaysLost.Load() {
		if err := b.restoreDelays(ctx); err != nil {
			return "", "", err
		}
	}
	ms, err := delayMillis(time.Until(at))
	if err != nil {
		return "", "", err
	}
	return b.names.delayEnter(), b.names.delayKey(ms, amqpQueue), nil
}

// publishDelayed publishes p so that it reaches amqpQueue at the time at and not earlier. It waits
// for the server's confirmation. It changes p: the expiration moves into a header and Timestamp
// becomes at. Returns the errors of delayRoute and of the publish.
func (b *Broker) publishDelayed(ctx context.Context, amqpQueue string, p *amqp.Publishing, at time.Time) error {
	hideExpiration(p)
	p.Timestamp = at // no consumer receives it earlier
	for again := false; ; again = true {
		exchange, key, err := b.delayRoute(ctx, amqpQueue, at)
		if err == nil {
			err = b.delayed.Publish(ctx, exchange, key, p)
			b.noteLostDelays(err)
		}
		if again || !errors.Is(err, amqpconn.ErrUnroutable) {
			return err
		}
	}
}

// noteLostDelays makes the next delayRoute declare the levels again, if err says that one is
// missing.
func (b *Broker) noteLostDelays(err error) {
	if errors.Is(err, amqpconn.ErrUnroutable) {
		b.delaysLost.Store(true)
	}
}

// restoreDelays declares all delay levels again and clears b.delaysLost. It waits for the server
// and returns its error.
func (b *Broker) restoreDelays(ctx context.Context) error {
	if err := b.retry(ctx, b.declareDelaysSingly); err != nil {
		return err
	}
	err := b.retry(ctx, func(sess *amqpconn.Session) error {
		return sess.Do(ctx, func(ch *amqp.Channel) error {
			if err := b.declareDelays(ch, false); err != nil {
				return err
			}
			return ch.Qos(0, 0, false) // a round trip
		})
	})
	if err == nil {
		b.delaysLost.Store(false)
	}
	return err
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

// setUpDelays makes sure that the delay levels exist, for a new publishing channel, and waits for
// the server. The Publisher calls it and opens another channel after an error. If the exchange
// delayReady exists, everything else does: it is declared last. Otherwise setUpDelays declares the
// levels.
//
// If the queues exist with other settings, the server closes the channel. Another process may be
// configured with another queue type. Then setUpDelays declares each queue singly, sets
// b.delaysFound and returns the error. On the next channel it declares only the exchanges and
// clears b.delaysFound.
func (b *Broker) setUpDelays(ch *amqp.Channel) error {
	if b.delaysFound.Swap(false) {
		return b.declareDelays(ch, false)
	}
	if found, err := b.findDelays(); found || err != nil {
		return err
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

// findDelays reports whether the delay levels exist. It logs a warning, once, if their queues have
// other settings than this process would give them. It waits for the server.
func (b *Broker) findDelays() (found bool, err error) {
	missing, err := b.isMissing(b.stop, func(ch *amqp.Channel) error {
		return ch.ExchangeDeclarePassive(b.names.delayReady(), amqp.ExchangeFanout, true, false, false, false, nil)
	})
	if missing || err != nil {
		return false, err
	}
	return true, b.retry(b.stop, func(sess *amqpconn.Session) error {
		return b.declareOne(b.stop, sess, b.names.delay(0), b.delayArgs(0))
	})
}

// delayArgs returns the arguments of the queue of a delay level: 2^level ms time to live, then the
// exchange of the level.
func (b *Broker) delayArgs(level int) amqp.Table {
	return b.queueArgs(amqp.Table{
		"x-message-ttl":          int64(1) << level,
		"x-dead-letter-exchange": b.names.delay(level),
	})
}

// declareDelays declares the exchanges of all delay levels and their bindings on ch, and their
// queues if queues is true. The exchange delayReady is last. The requests ask for no answer, which
// saves hundreds of round trips. If the server refuses one it closes the channel. The next request
// with an answer then fails. Returns an error only if a request cannot be sent.
func (b *Broker) declareDelays(ch *amqp.Channel, queues bool) error {
	for level := range delayLevels {
		name := b.names.delay(level)
		if err := ch.ExchangeDeclare(name, amqp.ExchangeTopic, true, false, false, true, nil); err != nil {
			return err
		}
		if queues {
			if _, err := ch.QueueDeclare(name, true, false, false, true, b.delayArgs(level)); err != nil {
				return err
			}
		}
		if err := ch.ExchangeBind(b.names.deliver(), "#."+levelWord(level)+".q.#", name, true, nil); err != nil {
			return err
		}
		for before := lowestBit(level); before < level; before++ {
			if err := ch.QueueBind(name, "#."+levelWord(before)+"."+levelWord(level)+".#", b.names.delay(before), true, nil); err != nil {
				return err
			}
		}
	}
	enter := b.names.delayEnter()
	if err := ch.ExchangeDeclare(enter, amqp.ExchangeTopic, true, false, false, true, nil); err != nil {
		return err
	}
	for level := range delayLevels {
		if err := ch.QueueBind(b.names.delay(level), levelWord(level)+".#", enter, true, nil); err != nil {
			return err
		}
	}
	return ch.ExchangeDeclare(b.names.delayReady(), amqp.ExchangeFanout, true, false, false, true, nil)
}
