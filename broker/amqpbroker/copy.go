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
)

// maxCopied is the most bytes of headers that a copy of a received message keeps. A table has to fit into one frame of 128
// KiB with the reason of a dead letter (4 KiB) and with what the server adds at each of up to 38 delay levels (about 500
// bytes); a consumer that is sent a larger one loses its connection.
const maxCopied = 96 << 10

// encodeCopy fills p with a message that the server has handed out. It never refuses: who publishes past this adapter may send
// what encode does not, and a delivery that could neither be released nor buried would come again for ever. The limits of
// bodies and headers do not hold; left out are only headers that would send the copy to more queues, and the largest ones
// of a table that has no room in a frame. Their names are returned. A copy never expires on the server: see holdExpiration.
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
		} else if err := encodeProperty(p, k, v); err != nil {
			dropped = append(dropped, k)
		}
	}
	holdExpiration(p)
	return dropped
}

// holdExpiration puts the native time to live, which a foreign format may have given a message, where the server does not see
// it and decode does. In a delay level the shorter of the message's and the level's time would count, so that the message
// came early; and the dead do not expire.
func holdExpiration(p *amqp.Publishing) {
	if p.Expiration == "" {
		return
	}
	if p.Headers == nil {
		p.Headers = make(amqp.Table, 1)
	}
	p.Headers[headerExpiration] = p.Expiration
	p.Expiration = ""
}

// warnDropped says what a copy has lost.
func (b *Broker) warnDropped(ctx context.Context, queue, id string, dropped []string) {
	if len(dropped) > 0 {
		b.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "amqp: a copy of a message could not keep all headers",
			slog.String("queue", queue), slog.String("task_id", id), slog.Any("dropped", dropped))
	}
}
