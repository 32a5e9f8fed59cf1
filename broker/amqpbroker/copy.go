package amqpbroker

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/amqpconn"
)

// maxCopied limits the headers of a copy of a received message, in bytes. All headers must fit into
// one frame of 128 KiB. The frame also holds the reason of a dead letter (4 KiB). The server adds
// about 500 bytes at each of up to 38 delay levels. A consumer that receives a larger frame loses
// its connection.
const maxCopied = 96 << 10

// encodeCopy fills p with m, a message that the server has delivered, with the adapter's headers
// and the current time. It returns the names of the headers and properties that the copy does not
// keep.
//
// It never fails, because a message that could be neither released nor dead-lettered would be
// delivered for ever. A foreign publisher may have sent a message that encode refuses. So the
// limits of bodies and headers do not apply. encodeCopy drops these:
//   - headers that would route the copy to further queues
//   - the largest headers, if all together are larger than maxCopied
//   - properties that AMQP cannot carry
//
// A copy never expires on the server, see hideExpiration.
func encodeCopy(p *amqp.Publishing, m *broker.Message) (dropped []string) {
	*p = amqp.Publishing{
		ContentType: m.ContentType, MessageId: m.ID, DeliveryMode: amqp.Persistent, Timestamp: time.Now(), Body: m.Body,
		Headers: make(amqp.Table, len(m.Headers)+8),
	}
	size := 0
	for k, v := range m.Headers {
		if reroutes(k) {
			dropped = append(dropped, k)
			continue
		}
		p.Headers[k] = v
		size += fieldSize(k, v)
	}
	if size > maxCopied {
		bySize := slices.SortedFunc(maps.Keys(p.Headers), func(a, b string) int {
			return cmp.Compare(fieldSize(b, p.Headers[b]), fieldSize(a, p.Headers[a]))
		})
		for _, k := range bySize {
			if size <= maxCopied {
				break
			}
			size -= fieldSize(k, p.Headers[k])
			delete(p.Headers, k)
			dropped = append(dropped, k)
		}
	}
	encodeOwn(p, m)
	for k, v := range m.Properties {
		if k == "expiration" {
			p.Expiration = v
		} else if err := amqpconn.SetProperty(p, k, v); err != nil {
			dropped = append(dropped, k)
		}
	}
	hideExpiration(p)
	return dropped
}

// hideExpiration moves the AMQP property expiration of p into the header swj-ttl, which only
// decode reads. It does nothing if the property is empty. A foreign format may have set the
// property.
//
// The server must not see it. In a delay level it would apply the shorter of the message's and
// the queue's time to live, and the message would be delivered early. Dead letters must not
// expire by it either.
func hideExpiration(p *amqp.Publishing) {
	if p.Expiration == "" {
		return
	}
	if p.Headers == nil {
		p.Headers = make(amqp.Table, 1)
	}
	p.Headers[headerExpiration] = p.Expiration
	p.Expiration = ""
}

// warnDropped logs a warning with the names of the headers that the copy of a message has lost. It
// does nothing if dropped is empty.
func (b *Broker) warnDropped(ctx context.Context, queue, id string, dropped []string) {
	if len(dropped) > 0 {
		b.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "amqp: a copy of a message could not keep all headers",
			slog.String("queue", queue), slog.String("task_id", id), slog.Any("dropped", dropped))
	}
}
