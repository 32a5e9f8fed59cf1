package amqpbroker

import (
	"context"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/internal/amqpconn"
	"github.com/swarmiji/swarmiji/internal/amqpdelay"
)

// newDelays returns the delay levels of the namespace.
func (b *Broker) newDelays() *amqpdelay.Delays {
	return amqpdelay.New(amqpdelay.Config{
		Prefix: b.names.prefix, Trim: b.names.work(""), Publishing: b.pub, Declaring: b.con,
		QueueType: string(b.cfg.QueueType), Differs: b.warnDifference, Stop: b.stop,
	})
}

// publishDelayed publishes p so that it reaches amqpQueue at the time at and not earlier. It waits
// for the server's confirmation. It changes p as holdUntil does. Returns the errors of
// [amqpdelay.Delays.Publish].
func (b *Broker) publishDelayed(ctx context.Context, amqpQueue string, p *amqp.Publishing, at time.Time) error {
	holdUntil(p, at)
	return b.delays.Publish(ctx, amqpQueue, p, at)
}

// holdUntil prepares p for the delay levels: the expiration moves into a header and Timestamp
// becomes at.
func holdUntil(p *amqp.Publishing, at time.Time) {
	amqpconn.HideExpiration(p)
	p.Timestamp = at // no consumer receives it earlier
}
