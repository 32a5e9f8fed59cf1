package main

import (
	"context"

	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/amqpevents"
	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/open"
)

// room is how many events may wait for the listener, so that none is dropped while its goroutine waits for a core: the
// buses' default, 8,192, is a few milliseconds' worth here.
const room = 1 << 20

// roomy is the event bus of s, with room where that can be had.
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
