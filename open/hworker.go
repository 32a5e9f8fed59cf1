package open

import (
	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/hworkerbroker"
)

// hworkerSchemes: results and events are what Redis at the same address gives, since hworker has neither.
func hworkerSchemes() []scheme {
	var all []scheme
	for _, s := range redisSchemes() {
		if s.name != "redis" && s.name != "rediss" {
			continue
		}
		s.name, s.form = "hworker+"+s.name, "hworker+"+s.form
		s.broker, s.schedule = hworkerBroker, nil
		s.params = []string{paramPoolSize, paramDB}
		all = append(all, s)
	}
	return all
}

func hworkerBroker(t *target) (broker.Broker, error) {
	return hworkerbroker.New(hworkerbroker.Config{Redis: t.redis, Name: t.clientName(), Logger: t.options.Logger})
}
