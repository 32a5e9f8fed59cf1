package main

import (
	"context"

	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/amqpevents"
	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/open"
	_ "github.com/swarmiji/swarmiji/open/all"
)

// room is the number of events that may wait for the listener. It is large so that no event is
// dropped while the listener's goroutine waits for a processor. The buses' default of 8,192 is used
// up within a few milliseconds here.
const room = 1 << 20

// roomy returns an event bus for s. With the memory broker and RabbitMQ it opens a bus with a
// buffer of room events, and end closes it. Otherwise it returns s.Events, and end does nothing.
func roomy(cfg *config, s *open.Swarm) (bus events.EventBus, end func(context.Context) error, err error) {
	switch cfg.technology() {
	case techMemory:
		b := memevents.New(memevents.Config{Buffer: room})
		return b, b.Close, nil
	case techAMQP:
		b, err := amqpevents.New(amqpevents.Config{
			Connect: amqpconnect.Config{URLs: []string{cfg.Broker}}, Buffer: room, Batch: events.BatcherConfig{Capacity: room}, Logger: logger(),
		})
		if err != nil {
			return nil, nil, err
		}
		return b, b.Close, nil
	}
	return s.Events, func(context.Context) error { return nil }, nil
}
