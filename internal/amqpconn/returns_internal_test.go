package amqpconn

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Celery's messages have no message id, and calls of a task without arguments have equal bodies. A
// returned one must not be taken for another that was published before it.
func TestReturnsAreMatchedByCorrelationID(t *testing.T) {
	for name, message := range map[string]func(id string) amqp.Publishing{
		"message id":     func(id string) amqp.Publishing { return amqp.Publishing{MessageId: id, CorrelationId: "same"} },
		"correlation id": func(id string) amqp.Publishing { return amqp.Publishing{CorrelationId: id} },
	} {
		t.Run(name, func(t *testing.T) {
			o := &outlet{returns: make(chan amqp.Return, 1), all: make([]flight, 2)}
			for i, id := range []string{"first", "second"} {
				m := message(id)
				o.fly(&o.all[i], "", "q", &m, nil)
			}
			m := message("second")
			o.returns <- amqp.Return{RoutingKey: "q", MessageId: m.MessageId, CorrelationId: m.CorrelationId}
			o.matchReturns()
			if o.all[0].returned.Load() != nil || o.all[1].returned.Load() == nil {
				t.Error("the first message counts as returned, not the second")
			}
		})
	}
}
