// Package amqpdead writes and reads the dead letters of brokers over RabbitMQ.
package amqpdead

import (
	"math"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/amqpconn"
)

// The headers of a dead letter.
const (
	headerReason   = "swj-reason"   // string
	headerQueue    = "swj-queue"    // string, the original queue
	headerDied     = "swj-died-ms"  // int64, Unix milliseconds
	headerStack    = "swj-stack"    // string
	headerAttempts = "swj-attempts" // int64
)

// Stamp adds Reason, At, Stack and Attempts of d, which is normalized, and the queue as headers to
// p. p.Headers must not be nil.
func Stamp(p *amqp.Publishing, queue string, d broker.Dead) {
	p.Headers[headerReason] = d.Reason
	p.Headers[headerQueue] = queue
	p.Headers[headerDied] = d.At.UnixMilli()
	if d.Stack != "" {
		p.Headers[headerStack] = d.Stack
	}
	if d.Attempts > 0 {
		p.Headers[headerAttempts] = int64(d.Attempts)
	}
}

// Read returns the dead letter in d, whose message is m. If Stamp has marked it, its headers hold
// queue, reason, time, stack and attempts. Headers of another type are ignored. Without a header
// for it, Queue is queue. If the server has dead-lettered the message, the reason and the time come
// from the server's headers, as far as they exist.
func Read(queue string, m *broker.Message, d *amqp.Delivery) broker.Dead {
	dead := broker.Dead{Message: m, Queue: queue}
	if q, ok := d.Headers[headerQueue].(string); ok {
		dead.Queue = q
	}
	if ms, ok := amqpconn.Integer(d.Headers[headerDied]); ok {
		dead.At = time.UnixMilli(ms)
	}
	if s, ok := d.Headers[headerStack].(string); ok {
		dead.Stack = s
	}
	if n, ok := amqpconn.Integer(d.Headers[headerAttempts]); ok && n > 0 && n <= math.MaxInt32 {
		dead.Attempts = int(n)
	}
	if r, ok := d.Headers[headerReason].(string); ok {
		dead.Reason = r
		return dead
	}
	dead.Reason = "dead-lettered by the server"
	if r, ok := d.Headers["x-first-death-reason"].(string); ok {
		dead.Reason += ": " + r
	}
	if deaths, ok := d.Headers["x-death"].([]any); ok && len(deaths) > 0 {
		if death, ok := deaths[0].(amqp.Table); ok {
			if t, ok := death["time"].(time.Time); ok {
				dead.At = t
			}
		}
	}
	return dead
}
