package celery

import (
	"context"
	"fmt"
	"slices"

	"github.com/swarmiji/swarmiji/celery/amqpcontrol"
	"github.com/swarmiji/swarmiji/celery/control"
	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/consumer"
	core "github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/events"
)

// openEvents makes the bus of s. It does no I/O.
func (s *Swarm) openEvents(connect amqpconnect.Config) error {
	t, err := amqpcontrol.New(amqpcontrol.Config{Connect: connect, Logger: s.options.Logger})
	if err != nil {
		return fmt.Errorf("celery: %w", err)
	}
	if s.bus, err = control.NewBus(control.Config{Transport: t}); err != nil {
		return fmt.Errorf("celery: %w", err)
	}
	s.bus.EnableTaskEvents(s.options.TaskEvents)
	s.Events = s.bus
	return nil
}

// monitored adds Celery's events and commands to the configuration of a consumer.
func (s *Swarm) monitored(c *consumer.Config) error {
	if c.Events == nil {
		c.Events = s.Events
	}
	if s.options.Commands != nil && len(s.options.Commands) == 0 {
		return nil
	}
	service, err := control.NewService(control.ServiceConfig{Bus: s.bus, Allow: s.options.Commands, Mingle: true, Logger: s.options.Logger})
	if err != nil {
		return fmt.Errorf("celery: %w", err)
	}
	c.ControlServices = append(slices.Clone(c.ControlServices), core.Service(service))
	return nil
}

// OpenEvents opens Celery's events on a broker of Celery, for programs that only listen, such as a
// history of tasks. It takes the URLs that [Open] takes, connects at the first use, and does not
// need the other parts. Close the bus at the end. Returns the errors of [Open].
func OpenEvents(_ context.Context, brokerURL string, o Options) (events.EventBus, error) {
	urls, secure, err := brokerURLs(brokerURL)
	if err != nil {
		return nil, err
	}
	connect := amqpconnect.Config{URLs: urls, Name: o.Name}
	if secure {
		connect.TLS = o.TLS
	}
	s := &Swarm{options: o}
	if err := s.openEvents(connect); err != nil {
		return nil, err
	}
	return s.Events, nil
}
