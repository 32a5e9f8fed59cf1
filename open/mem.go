package open

import (
	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/limit"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
)

func memSchemes() []scheme {
	return []scheme{{
		name: "mem", form: "mem://", where: nowhere,
		broker: func(t *target) (broker.Broker, error) {
			return membroker.NewServer(membroker.Config{Logger: t.options.Logger}).Connect(), nil
		},
		results: func(*target) (resultstore.ResultStore, error) { return memresults.New(memresults.Config{}), nil },
		events: func(t *target) (events.EventBus, error) {
			return memevents.New(memevents.Config{Retain: t.retain}), nil
		},
		limiter:  func(*target) (limit.Limiter, error) { return limit.NewMemory(), nil },
		schedule: memSchedule,
	}}
}
