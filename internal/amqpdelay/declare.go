package amqpdelay

import (
	"context"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/internal/amqpconn"
)

// Quorum is the type of replicated queues.
const Quorum = "quorum"

// QueueArgs adds the queue type to args, in place, and returns it. args may be nil. A quorum queue
// that dead-letters uses the strategy at-least-once: the message stays until its target has
// confirmed it.
func QueueArgs(queueType string, args amqp.Table) amqp.Table {
	if args == nil {
		args = amqp.Table{}
	}
	args["x-queue-type"] = queueType
	if _, ok := args["x-dead-letter-exchange"]; ok && queueType == Quorum {
		args["x-dead-letter-strategy"] = "at-least-once"
		args["x-overflow"] = "reject-publish" // the server refuses the strategy without it
	}
	return args
}

// BindOn binds queue to the exchange at the end of the delay levels, on ch, waits for the server
// and returns its error. sess is the connection of ch. Call DeclareEnd before.
func (d *Delays) BindOn(ch *amqp.Channel, sess *amqpconn.Session, queue string) error {
	if err := ch.QueueBind(queue, "#."+topic(d.cfg.Trim, queue), d.Deliver(), false, nil); err != nil {
		return err
	}
	d.bound.Store(queue, sess.Generation())
	return nil
}

// DeclareEnd declares the exchange at the end of the delay levels, once per connection. Messages
// that it cannot route, because their queue was deleted meanwhile, go to the undeliverable queue,
// which is declared and bound too. It waits for the server and stops at the first error; the next
// call tries again.
func (d *Delays) DeclareEnd(ctx context.Context, sess *amqpconn.Session) error {
	name := d.Undeliverable()
	if gen, ok := d.bound.Load(name); ok && gen == sess.Generation() {
		return nil
	}
	if err := d.declareOne(ctx, sess, name, name, QueueArgs(d.cfg.QueueType, nil)); err != nil {
		return err
	}
	err := sess.Do(ctx, func(ch *amqp.Channel) error {
		if err := ch.ExchangeDeclare(name, amqp.ExchangeFanout, true, false, false, false, nil); err != nil {
			return err
		}
		if err := ch.QueueBind(name, "", name, false, nil); err != nil {
			return err
		}
		return ch.ExchangeDeclare(d.Deliver(), amqp.ExchangeTopic, true, false, false, false, amqp.Table{"alternate-exchange": name})
	})
	if err == nil {
		d.bound.Store(name, sess.Generation())
	}
	return err
}

// setUp makes sure that the delay levels exist, for a new publishing channel, and waits for the
// server. The Publisher calls it and opens another channel after an error. If the exchange ready
// exists, everything else does: it is declared last. Otherwise setUp declares the levels.
//
// If the queues exist with other settings, the server closes the channel. Another process may be
// configured with another queue type. Then setUp declares each queue singly, sets d.found and
// returns the error. On the next channel it declares only the exchanges and clears d.found.
func (d *Delays) setUp(ch *amqp.Channel) error {
	if d.found.Swap(false) {
		return d.declare(ch, false)
	}
	if found, err := d.find(); found || err != nil {
		return err
	}
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	err := d.declare(ch, true)
	if err == nil {
		err = ch.Qos(0, 0, false) // a round trip that only shows whether the server refused a request
	}
	if err != nil && ch.IsClosed() {
		if cause, ok := <-closed; ok {
			err = cause
		}
	}
	if amqpconn.IsPrecondition(err) {
		if err := d.cfg.Declaring.Retry(d.cfg.Stop, d.declareSingly); err != nil {
			return err
		}
		d.found.Store(true)
	}
	return err
}

// restore declares all delay levels again and clears d.lost. It waits for the server and returns
// its error.
func (d *Delays) restore(ctx context.Context) error {
	if err := d.cfg.Declaring.Retry(ctx, d.declareSingly); err != nil {
		return err
	}
	err := d.cfg.Declaring.Retry(ctx, func(sess *amqpconn.Session) error {
		return sess.Do(ctx, func(ch *amqp.Channel) error {
			if err := d.declare(ch, false); err != nil {
				return err
			}
			return ch.Qos(0, 0, false) // a round trip
		})
	})
	if err == nil {
		d.lost.Store(false)
	}
	return err
}

// declareSingly makes sure that the queue of each delay level exists, with one request after the
// other, and waits for the server. It keeps an existing queue whatever its settings are, and
// reports one difference for all levels. It stops at the first error of another kind and returns
// it.
func (d *Delays) declareSingly(sess *amqpconn.Session) error {
	for level := range levels {
		if err := d.declareOne(d.cfg.Stop, sess, d.level(0), d.level(level), d.levelArgs(level)); err != nil {
			return err
		}
	}
	return nil
}

// declareOne declares the queue name and waits for the server. If it exists with other arguments,
// declareOne reports the difference with the given key and uses the queue as it is.
func (d *Delays) declareOne(ctx context.Context, sess *amqpconn.Session, key, name string, args amqp.Table) error {
	difference, err := sess.DeclareOrFind(ctx, name, args)
	if err == nil && difference != nil {
		d.cfg.Differs(ctx, key, name, difference)
	}
	return err
}

// find reports whether the delay levels exist. It reports a difference if their queues have other
// settings than this process would give them. It waits for the server.
func (d *Delays) find() (found bool, err error) {
	missing, err := d.cfg.Declaring.Missing(d.cfg.Stop, func(ch *amqp.Channel) error {
		return ch.ExchangeDeclarePassive(d.ready(), amqp.ExchangeFanout, true, false, false, false, nil)
	})
	if missing || err != nil {
		return false, err
	}
	return true, d.cfg.Declaring.Retry(d.cfg.Stop, func(sess *amqpconn.Session) error {
		return d.declareOne(d.cfg.Stop, sess, d.level(0), d.level(0), d.levelArgs(0))
	})
}

// levelArgs returns the arguments of the queue of a delay level: 2^level ms time to live, then the
// exchange of the level.
func (d *Delays) levelArgs(level int) amqp.Table {
	return QueueArgs(d.cfg.QueueType, amqp.Table{
		"x-message-ttl":          int64(1) << level,
		"x-dead-letter-exchange": d.level(level),
	})
}

// declare declares the exchanges of all delay levels and their bindings on ch, and their queues if
// queues is true. The exchange ready is last. The requests ask for no answer, which saves hundreds
// of round trips. If the server refuses one it closes the channel. The next request with an answer
// then fails. Returns an error only if a request cannot be sent.
func (d *Delays) declare(ch *amqp.Channel, queues bool) error {
	for level := range levels {
		name := d.level(level)
		if err := ch.ExchangeDeclare(name, amqp.ExchangeTopic, true, false, false, true, nil); err != nil {
			return err
		}
		if queues {
			if _, err := ch.QueueDeclare(name, true, false, false, true, d.levelArgs(level)); err != nil {
				return err
			}
		}
		if err := ch.ExchangeBind(d.Deliver(), "#."+levelWord(level)+".q.#", name, true, nil); err != nil {
			return err
		}
		for before := lowestBit(level); before < level; before++ {
			if err := ch.QueueBind(name, "#."+levelWord(before)+"."+levelWord(level)+".#", d.level(before), true, nil); err != nil {
				return err
			}
		}
	}
	if err := ch.ExchangeDeclare(d.enter(), amqp.ExchangeTopic, true, false, false, true, nil); err != nil {
		return err
	}
	for level := range levels {
		if err := ch.QueueBind(d.level(level), levelWord(level)+".#", d.enter(), true, nil); err != nil {
			return err
		}
	}
	return ch.ExchangeDeclare(d.ready(), amqp.ExchangeFanout, true, false, false, true, nil)
}
