package amqpbroker

import (
	"context"
	"log/slog"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/amqpconn"
)

// encodeCopy fills p with m, a message that the server has delivered, with the adapter's headers
// and the current time. It returns the names of the headers and properties that the copy does not
// keep.
//
// It never fails, because a message that could be neither released nor dead-lettered would be
// delivered for ever. A foreign publisher may have sent a message that encode refuses. So the
// limits of bodies and headers do not apply. encodeCopy drops these:
//   - headers that would route the copy to further queues
//   - the largest headers, if all together are larger than 96 KiB
//   - properties that AMQP cannot carry
//
// A copy never expires on the server, see [amqpconn.HideExpiration].
func encodeCopy(p *amqp.Publishing, m *broker.Message) (dropped []string) {
	*p = amqp.Publishing{
		ContentType: m.ContentType, MessageId: m.ID, DeliveryMode: amqp.Persistent, Timestamp: time.Now(), Body: m.Body,
		Headers: make(amqp.Table, len(m.Headers)+8),
	}
	for k, v := range m.Headers {
		if amqpconn.Reroutes(k) {
			dropped = append(dropped, k)
			continue
		}
		p.Headers[k] = v
	}
	dropped = append(dropped, amqpconn.TrimHeaders(p.Headers, func(k string) int { return fieldSize(k, p.Headers[k]) })...)
	encodeOwn(p, m)
	return append(dropped, amqpconn.CopyProperties(p, m.Properties)...)
}

// warnDropped logs a warning with the names of the headers that the copy of a message has lost. It
// does nothing if dropped is empty.
func (b *Broker) warnDropped(ctx context.Context, queue, id string, dropped []string) {
	if len(dropped) > 0 {
		b.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "amqp: a copy of a message could not keep all headers",
			slog.String("queue", queue), slog.String("task_id", id), slog.Any("dropped", dropped))
	}
}
