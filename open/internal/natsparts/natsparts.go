// Package natsparts constructs the adapters of NATS, for the drivers nats and natsembedded.
package natsparts

import (
	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/natsbroker"
	"github.com/swarmiji/swarmiji/connect/natsconnect"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/natsevents"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/open/internal/params"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/natsresults"
	"github.com/swarmiji/swarmiji/schedule/natsschedule"
	"github.com/swarmiji/swarmiji/settings"
	"github.com/swarmiji/swarmiji/settings/natssettings"
)

// New returns the constructors of broker, result store, event bus and schedule store for the URL t.
// Each constructor calls at for the address of the server. replicas is the number of copies of each
// stream; 0 means the default. Returns an error if the dead-letter parameters of t are invalid.
func New(t *open.Target, replicas int, at func() natsconnect.Config) (open.Parts, error) {
	ttl, most, err := params.Dead(t)
	if err != nil {
		return open.Parts{}, err
	}
	return open.Parts{
		Broker: func(namespace string) (broker.Broker, error) {
			return natsbroker.New(natsbroker.Config{
				Connect: at(), Namespace: namespace, Replicas: replicas, Logger: t.Logger, DeadTTL: ttl, DeadMax: most,
			})
		},
		Results: func(namespace string) (resultstore.ResultStore, error) {
			return natsresults.New(natsresults.Config{Connect: at(), Namespace: namespace, Replicas: replicas, Logger: t.Logger})
		},
		Events: func(namespace string, retain events.Retention) (events.EventBus, error) {
			return natsevents.New(natsevents.Config{Connect: at(), Namespace: namespace, Retain: retain, Logger: t.Logger})
		},
		Settings: func(namespace string) (settings.Store, error) {
			return natssettings.New(natssettings.Config{Connect: at(), Namespace: namespace, Replicas: replicas, Logger: t.Logger})
		},
		Schedule: func(name string) (open.ScheduleStore, error) {
			return natsschedule.New(natsschedule.Config{Connect: at(), Name: name, Replicas: replicas, Logger: t.Logger})
		},
	}, nil
}
