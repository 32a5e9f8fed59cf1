// Package amqp registers the driver of RabbitMQ with package open, for the schemes amqp:// and
// amqps://. A program imports it for this effect:
//
//	import _ "github.com/swarmiji/swarmiji/open/amqp"
package amqp

import (
	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/amqpbroker"
	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/amqpevents"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/open/internal/params"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/amqpresults"
	"github.com/swarmiji/swarmiji/settings"
	"github.com/swarmiji/swarmiji/settings/eventsettings"
)

func init() { open.Register(Driver{}) }

// Driver constructs the adapters of RabbitMQ. The zero value is usable. Safe for concurrent use.
type Driver struct{}

const paramQueueType = "queue_type"

// Schemes implements [open.Driver]. It returns amqp and amqps.
func (Driver) Schemes() []open.Scheme {
	plain := open.Scheme{ //nolint:gosec // an example, not a password
		Name: "amqp", Form: "amqp://user:password@host:5672/vhost", Port: "5672", Place: open.PlaceHosts, Secured: "amqps",
		Server: "RabbitMQ", Start: "start one (rabbitmq-server), or use mem:// to try without",
		Params: []string{paramQueueType, params.DeadTTL, params.DeadMax},
		Client: []string{"heartbeat", "connection_timeout", "auth_mechanism"},
	}
	secure := plain
	secure.Name, secure.Form, secure.Port = "amqps", "amqps://user:password@host:5671/vhost", "5671"
	secure.Secure, secure.Secured = true, ""
	return []open.Scheme{plain, secure}
}

// Parts implements [open.Driver]. It returns constructors for a broker, a result store, an event
// bus, and settings on such a bus. It reads certificate files. Returns an error if a parameter is
// invalid.
func (Driver) Parts(t *open.Target) (open.Parts, error) {
	ttl, most, err := params.Dead(t)
	if err != nil {
		return open.Parts{}, err
	}
	at := amqpconnect.Config{URLs: t.URLs(), Name: t.Name}
	if t.Scheme.Secure {
		if at.TLS, err = params.TLS(t); err != nil {
			return open.Parts{}, err
		}
	}
	bus := func(namespace string, retain events.Retention) (events.EventBus, error) {
		return amqpevents.New(amqpevents.Config{Connect: at, Namespace: namespace, Retain: retain, Logger: t.Logger})
	}
	return open.Parts{
		Broker: func(namespace string) (broker.Broker, error) {
			return amqpbroker.New(amqpbroker.Config{
				Connect: at, Namespace: namespace, Logger: t.Logger,
				QueueType: amqpbroker.QueueType(t.Params[paramQueueType]), DeadTTL: ttl, DeadMax: most,
			})
		},
		Results: func(namespace string) (resultstore.ResultStore, error) {
			return amqpresults.New(amqpresults.Config{Connect: at, Namespace: namespace, Logger: t.Logger})
		},
		Events: bus,
		EventSettings: func(namespace string) (settings.Store, error) {
			b, err := bus(namespace, eventsettings.Retention())
			if err != nil {
				return nil, err
			}
			return newSettings(b, t.Logger)
		},
	}, nil
}
