package open

import (
	"context"
	"errors"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/resultstore"
)

// stopper stops the resources that Parts.Start has started.
type stopper func(ctx context.Context) error

// The owned adapters are constructed separately. Close also stops the resources that were started
// for them.
type (
	ownedBroker struct {
		broker.Broker
		stop stopper
	}
	ownedResults struct {
		resultstore.ResultStore
		stop stopper
	}
	ownedBatches struct {
		ownedResults
		resultstore.BatchSaver
	}
	ownedEvents struct {
		events.EventBus
		stop stopper
	}
	ownedSchedule struct {
		ScheduleStore
		stop stopper
	}
	ownedJobs struct {
		jobs.Store
		stop stopper
	}
	ownedOutbox struct {
		OutboxStore
		stop stopper
	}
	ownedHistory struct {
		HistoryStore
		stop stopper
	}
)

func ownBroker(b broker.Broker, stop stopper) broker.Broker { return &ownedBroker{b, stop} }
func ownResults(s resultstore.ResultStore, stop stopper) resultstore.ResultStore {
	owned := ownedResults{s, stop}
	if b, ok := capability.As[resultstore.BatchSaver](s); ok {
		return &ownedBatches{owned, b}
	}
	return &owned
}
func ownEvents(b events.EventBus, stop stopper) events.EventBus { return &ownedEvents{b, stop} }
func ownSchedule(s ScheduleStore, stop stopper) ScheduleStore   { return &ownedSchedule{s, stop} }
func ownJobs(s jobs.Store, stop stopper) jobs.Store             { return &ownedJobs{s, stop} }
func ownOutbox(s OutboxStore, stop stopper) OutboxStore         { return &ownedOutbox{s, stop} }
func ownHistory(s HistoryStore, stop stopper) HistoryStore      { return &ownedHistory{s, stop} }

// Close closes the broker, then stops the resources that were started for it.
func (b ownedBroker) Close(ctx context.Context) error {
	return errors.Join(b.Broker.Close(ctx), b.stop(ctx))
}

// Close closes the store, then stops the resources that were started for it.
func (s ownedResults) Close(ctx context.Context) error {
	return errors.Join(s.ResultStore.Close(ctx), s.stop(ctx))
}

// Close closes the bus, then stops the resources that were started for it.
func (b ownedEvents) Close(ctx context.Context) error {
	return errors.Join(b.EventBus.Close(ctx), b.stop(ctx))
}

// Close closes the store, then stops the resources that were started for it.
func (s ownedSchedule) Close(ctx context.Context) error {
	return errors.Join(s.ScheduleStore.Close(ctx), s.stop(ctx))
}

// Close closes the store, then stops the resources that were started for it.
func (s ownedJobs) Close(ctx context.Context) error {
	return errors.Join(s.Store.Close(ctx), s.stop(ctx))
}

// Close closes the store, then stops the resources that were started for it.
func (s ownedOutbox) Close(ctx context.Context) error {
	return errors.Join(s.OutboxStore.Close(ctx), s.stop(ctx))
}

// Close closes the store, then stops the resources that were started for it.
func (s ownedHistory) Close(ctx context.Context) error {
	return errors.Join(s.HistoryStore.Close(ctx), s.stop(ctx))
}

// Unwrap returns the wrapped broker, for capability.As.
func (b ownedBroker) Unwrap() any { return b.Broker }

// Unwrap returns the wrapped store, for capability.As.
func (s ownedResults) Unwrap() any { return s.ResultStore }

// Unwrap returns the wrapped bus, for capability.As.
func (b ownedEvents) Unwrap() any { return b.EventBus }

// Unwrap returns the wrapped store, for capability.As.
func (s ownedSchedule) Unwrap() any { return s.ScheduleStore }

// Unwrap returns the wrapped store, for capability.As.
func (s ownedJobs) Unwrap() any { return s.Store }

// Unwrap returns the wrapped store, for capability.As.
func (s ownedOutbox) Unwrap() any { return s.OutboxStore }

// Unwrap returns the wrapped store, for capability.As.
func (s ownedHistory) Unwrap() any { return s.HistoryStore }
