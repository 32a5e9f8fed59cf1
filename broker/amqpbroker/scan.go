package amqpbroker

import (
	"context"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
)

// ScanDead implements [broker.DeadLetterer], see [amqpdead.Scans.Scan]. Until it returns, no other
// consumer sees the letters.
//
// Returns nil without a call of fn if the dead queue does not exist, ErrNoQueue if the queue does
// not exist either. If ctx ends it returns ErrUnavailable at once, and another goroutine returns
// the kept letters.
func (b *Broker) ScanDead(ctx context.Context, queue string, fn func(*broker.Dead) broker.DeadAction) error {
	open := func(ctx context.Context, fn func(ch *amqp.Channel, name string) error) error {
		return b.withDeadQueue(ctx, queue, false, fn)
	}
	decode := func(d *amqp.Delivery) broker.Dead { return decodeDead(queue, d) }
	return wrap(b.scans.Scan(ctx, queue, open, decode, fn), "scan the dead letters of", queue)
}
