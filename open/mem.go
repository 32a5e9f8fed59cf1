package open

import (
	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
	"github.com/swarmiji/swarmiji/limit"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/schedule/memschedule"
	"github.com/swarmiji/swarmiji/settings"
	"github.com/swarmiji/swarmiji/settings/memsettings"
)

// memory is the scheme that every Registry supports.
const memory = "mem"

// memDriver constructs adapters in the memory of this process.
type memDriver struct{}

func memScheme() Scheme { return Scheme{Name: memory, Form: "mem://", Place: PlaceNone} }

// Schemes implements Driver. It returns mem.
func (memDriver) Schemes() []Scheme { return []Scheme{memScheme()} }

// Parts implements Driver. It returns constructors for all adapters, in memory. Each constructor
// returns a separate adapter and ignores the namespace. It never returns an error.
func (memDriver) Parts(t *Target) (Parts, error) {
	return Parts{
		Broker: func(string) (broker.Broker, error) {
			return membroker.NewServer(membroker.Config{Logger: t.Logger}).Connect(), nil
		},
		Results: func(string) (resultstore.ResultStore, error) {
			return memresults.New(memresults.Config{}), nil
		},
		Events: func(_ string, retain events.Retention) (events.EventBus, error) {
			return memevents.New(memevents.Config{Retain: retain}), nil
		},
		Settings: func(string) (settings.Store, error) { return memsettings.New(), nil },
		Limiter:  func(string) (limit.Limiter, error) { return limit.NewMemory(), nil },
		Schedule: func(name string) (ScheduleStore, error) { return memschedule.New(memschedule.Config{Name: name}) },
		Jobs:     func() (jobs.Store, error) { return memjobs.New(memjobs.Config{}) },
	}, nil
}
