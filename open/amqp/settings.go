package amqp

import (
	"context"
	"errors"
	"log/slog"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/settings"
	"github.com/swarmiji/swarmiji/settings/eventsettings"
)

// busSettings is a store of settings with a bus of its own.
type busSettings struct {
	*eventsettings.Store
	bus events.EventBus
}

// newSettings returns a store of settings on bus, which must be used for it alone. Close of the
// store closes bus. After an error bus is closed.
func newSettings(bus events.EventBus, logger *slog.Logger) (settings.Store, error) {
	s, err := eventsettings.New(eventsettings.Config{Events: bus, Logger: logger})
	if err != nil {
		return nil, errors.Join(err, bus.Close(context.Background())) // it was never used
	}
	return &busSettings{s, bus}, nil
}

// Close closes the store and then its bus.
func (s *busSettings) Close(ctx context.Context) error {
	return errors.Join(s.Store.Close(ctx), s.bus.Close(ctx))
}
