package amqpdelay

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/internal/amqpconn"
)

// Config holds the settings of [New]. All fields are required, except Trim.
type Config struct {
	// Prefix begins the names of all exchanges and queues of the levels, such as "swj.default.".
	Prefix string
	// Trim is cut off the names of target queues in routing keys. "": nothing.
	Trim string
	// Publishing is the connection for delayed messages.
	Publishing *amqpconn.Conn
	// Declaring is the connection for declarations that need an answer.
	Declaring *amqpconn.Conn
	// QueueType is the type of the queues: [Quorum] or another x-queue-type.
	QueueType string
	// Differs is called when a queue exists with other settings. Several queues may share a key, for
	// one warning.
	Differs func(ctx context.Context, key, name string, difference error)
	// Stop ends the declarations that belong to no call.
	Stop context.Context
}

// Delays holds messages on the server until their time. Safe for concurrent use.
type Delays struct {
	names

	cfg Config
	// publisher has its own channel because a missing exchange closes the channel and fails all
	// publishes in progress on it.
	publisher *amqpconn.Publisher
	// bound maps a target queue to the number of the connection on which it was bound.
	bound sync.Map
	// found says that the queues of the delay levels were just declared or found one by one.
	found atomic.Bool
	// lost says that a delayed message found no level to wait in.
	lost atomic.Bool
}

// New returns the Delays for cfg. It sends nothing.
func New(cfg Config) *Delays {
	d := &Delays{names: names{cfg.Prefix}, cfg: cfg}
	d.publisher = amqpconn.NewPublisher(cfg.Publishing, amqpconn.PublisherConfig{Setup: d.setUp})
	return d
}

// Close waits for the confirmations of publishes in progress until ctx ends.
func (d *Delays) Close(ctx context.Context) error { return d.publisher.Close(ctx) }

// Route returns the exchange and the routing key for a message that must not reach queue before at.
// It first declares and binds the delay exchanges and queues if this connection has not done so,
// and waits for that until ctx ends. Returns ErrUnsupported for a delay of more than 8.7 years, and
// the server's "not found" if queue does not exist.
func (d *Delays) Route(ctx context.Context, queue string, at time.Time) (exchange, routingKey string, err error) {
	if _, err := millis(time.Until(at)); err != nil {
		return "", "", err
	}
	// The slow steps come before the delay is computed. The queue is first: a missing queue fails at
	// once, and the levels need the exchange that is declared with it.
	if err := d.bind(ctx, queue); err != nil {
		return "", "", err
	}
	if err := d.publisher.Open(ctx); err != nil {
		return "", "", err
	}
	if d.lost.Load() {
		if err := d.restore(ctx); err != nil {
			return "", "", err
		}
	}
	ms, err := millis(time.Until(at))
	if err != nil {
		return "", "", err
	}
	return d.enter(), key(ms, topic(d.cfg.Trim, queue)), nil
}

// Publish publishes p so that it reaches queue at the time at and not earlier. It waits for the
// server's confirmation. p must have no expiration: in a level the server would apply the shorter
// of the two times. Returns the errors of Route and of the publish.
func (d *Delays) Publish(ctx context.Context, queue string, p *amqp.Publishing, at time.Time) error {
	for again := false; ; again = true {
		exchange, routingKey, err := d.Route(ctx, queue, at)
		if err == nil {
			err = d.publisher.Publish(ctx, exchange, routingKey, p)
			d.noteLost(err)
		}
		if again || !errors.Is(err, amqpconn.ErrUnroutable) {
			return err
		}
	}
}

// PublishBatch publishes messages to the exchanges and keys of Route and waits for all
// confirmations. It returns nil or one error per message.
func (d *Delays) PublishBatch(ctx context.Context, ms []amqpconn.Outgoing) []error {
	errs := d.publisher.PublishBatch(ctx, ms)
	d.noteLost(errors.Join(errs...))
	return errs
}

// noteLost makes the next Route declare the levels again, if err says that one is missing.
func (d *Delays) noteLost(err error) {
	if errors.Is(err, amqpconn.ErrUnroutable) {
		d.lost.Store(true)
	}
}

// bind checks that queue exists and binds it to the exchange at the end of the delay levels, which
// it declares too. It does so once per connection, and waits for the server. Returns the server's
// "not found" if the queue does not exist.
func (d *Delays) bind(ctx context.Context, queue string) error {
	sess, err := d.cfg.Declaring.Session(ctx)
	if err != nil {
		return err
	}
	if gen, ok := d.bound.Load(queue); ok && gen == sess.Generation() {
		return nil
	}
	return d.cfg.Declaring.Retry(ctx, func(sess *amqpconn.Session) error {
		if err := d.DeclareEnd(ctx, sess); err != nil {
			return err
		}
		return sess.Do(ctx, func(ch *amqp.Channel) error {
			if _, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil); err != nil {
				return err
			}
			return d.BindOn(ch, sess, queue)
		})
	})
}
