package open

import (
	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/amqpbroker"
	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/amqpevents"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/amqpresults"
)

const paramQueueType = "queue_type"

func amqpSchemes() []scheme {
	plain := scheme{ //nolint:gosec // nobody's password
		name: "amqp", form: "amqp://user:password@host:5672/vhost", port: "5672", where: servers,
		server: "RabbitMQ", start: "start one (rabbitmq-server), or use mem:// to try without",
		params: []string{paramQueueType, paramDeadTTL, paramDeadMax}, client: []string{"heartbeat", "connection_timeout", "auth_mechanism"},
		broker: amqpBroker, results: amqpResults, events: amqpEvents,
	}
	secure := plain
	secure.name, secure.form, secure.port, secure.secure = "amqps", "amqps://user:password@host:5671/vhost", "5671", true
	return []scheme{plain, secure}
}

// amqp says where RabbitMQ is.
func (t *target) amqp() amqpconnect.Config {
	return amqpconnect.Config{URLs: t.urls(), TLS: t.tls, Name: t.options.Name}
}

func amqpBroker(t *target) (broker.Broker, error) {
	ttl, most, err := t.deadBounds()
	if err != nil {
		return nil, err
	}
	return amqpbroker.New(amqpbroker.Config{
		Connect: t.amqp(), Namespace: t.namespace, Logger: t.options.Logger,
		QueueType: amqpbroker.QueueType(t.params[paramQueueType]), DeadTTL: ttl, DeadMax: most,
	})
}

func amqpResults(t *target) (resultstore.ResultStore, error) {
	return amqpresults.New(amqpresults.Config{
		Connect: t.amqp(), Namespace: t.namespace, Logger: t.options.Logger,
	})
}

func amqpEvents(t *target) (events.EventBus, error) {
	return amqpevents.New(amqpevents.Config{
		Connect: t.amqp(), Namespace: t.namespace, Retain: t.retain, Logger: t.options.Logger,
	})
}
