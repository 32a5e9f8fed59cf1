package endtoend_test

import (
	"crypto/rand"
	"strings"
	"testing"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/amqpbroker"
	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/amqpevents"
	"github.com/swarmiji/swarmiji/internal/endtoend"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/open"
	_ "github.com/swarmiji/swarmiji/open/all"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/amqpresults"
)

// overRabbit returns an Open with tasks, results and events all on one RabbitMQ server, through a
// proxy that can cut connections.
func overRabbit(rabbit *testserver.Rabbit) endtoend.Open {
	return func(*testing.T) *endtoend.Harness {
		namespace := "t" + strings.ToLower(rand.Text()[:10])
		proxies := make(map[broker.Broker]*testserver.Proxy)
		return &endtoend.Harness{
			Broker: func(t *testing.T) broker.Broker {
				proxy := testserver.NewProxy(t, rabbit.Addr())
				b, err := amqpbroker.New(amqpbroker.Config{Connect: amqpconnect.Config{URLs: []string{proxy.URL(rabbit.URL())}}, Namespace: namespace})
				if err != nil {
					t.Fatal(err)
				}
				proxies[b] = proxy
				return b
			},
			Results: func(t *testing.T) resultstore.ResultStore {
				s, err := amqpresults.New(amqpresults.Config{Connect: amqpconnect.Config{URLs: []string{rabbit.URL()}}, Namespace: namespace})
				if err != nil {
					t.Fatal(err)
				}
				return s
			},
			Events: func(t *testing.T) events.EventBus {
				bus, err := amqpevents.New(amqpevents.Config{Connect: amqpconnect.Config{URLs: []string{rabbit.URL()}}, Namespace: namespace})
				if err != nil {
					t.Fatal(err)
				}
				return bus
			},
			Revocations: func(t *testing.T) events.EventBus {
				return opened(t, rabbit.URL(), open.Options{Namespace: namespace, Logger: quiet()}, open.Revocations)
			},
			Sever: func(_ *testing.T, b broker.Broker) { proxies[b].Sever() },
		}
	}
}
